"""Server-Sent Events: bytes in, data payloads out. Pure: no I/O, no JSON, no knowledge of models.

It follows the WHATWG rules (any of LF, CR, CRLF ends a line; several data lines are one payload;
comments and a BOM are dropped; invalid UTF-8 becomes U+FFFD) with one leniency: what stands before
the end of the stream counts as an event although its blank line is missing, since many servers
forget it. A payload that was cut there is no valid JSON, so nobody takes it for whole.
"""

from __future__ import annotations

from typing import Final

_BOM: Final = b"\xef\xbb\xbf"


class EventStream:
    """Takes a stream in pieces cut anywhere and gives the data payloads as they become whole."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_rest")

    def __init__(self) -> None:
        # A list of pieces: a line of 5 MB in packets of 1 kB must not be copied for each packet.
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[str]:
        """The payloads that this piece completes, in order."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            self._rest.append(piece)
            return []
        self._rest.append(piece)
        lines = b"".join(self._rest).split(b"\n")
        self._rest = [lines.pop()]
        return self._payloads(lines)

    def end(self) -> list[str]:
        """The payload that the end of the stream completes, if any."""
        return self._payloads([b"".join(self._rest), b""])

    def _payloads(self, lines: list[bytes]) -> list[str]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        payloads: list[str] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if data:
                    payloads.append(b"\n".join(data).decode("utf-8", "replace"))
                    data.clear()
            elif line == b"data":
                data.append(b"")
        return payloads
