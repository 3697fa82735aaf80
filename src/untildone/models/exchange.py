"""From an open answer to a whole reply: the one loop that both wires read with.

It knows time-outs, Server-Sent Events and plain JSON bodies; what a payload means is the wire's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from untildone.domain.requests import Delta, DeltaSink
from untildone.models.endpoint import Endpoint
from untildone.models.failures import unreadable
from untildone.models.http import Response
from untildone.models.sse import EventStream

_BOM: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 120


class Assembler(Protocol):
    """Puts a reply together from its payloads.

    Attributes:
        heard: Set where a payload held something of the reply: text, a piece of a call, usage.
            Empty payloads, which some servers send without end, do not count. Reset by the reader.
    """

    heard: bool

    @property
    def done(self) -> bool:
        """Whether the protocol's last payload was seen: nothing after it is read."""
        ...

    def feed(self, payload: str) -> Sequence[Delta]:
        """Takes one payload of the stream and gives what a live reader may see of it.

        Raises:
            ModelError: It holds an error, or cannot be read.
        """
        ...

    def feed_whole(self, body: str) -> Sequence[Delta]:
        """Takes the whole reply as one JSON document, from servers that do not stream."""
        ...


async def read_reply(
    response: Response, assembler: Assembler, endpoint: Endpoint, on_delta: DeltaSink | None
) -> None:
    """Reads the answer to its end, or to the protocol's last payload.

    Raises:
        ModelError: The stream broke, stalled, or holds what is no reply.
    """
    events = EventStream()
    start = await _first_piece(response)
    if start.lstrip()[:1] in (b"{", b"["):
        deltas = assembler.feed_whole(await _whole_body(response, start))
        await _hand_out(deltas, on_delta)
        return
    piece, seen = start, False
    while True:
        payloads = events.feed(piece) if piece else events.end()
        seen = seen or bool(payloads)
        for payload in payloads:
            deltas = assembler.feed(payload)
            if on_delta is not None:
                for delta in deltas:
                    await on_delta(delta)
            if assembler.done:
                return
        if not piece:
            break
        if assembler.heard:
            assembler.heard = False
            response.heard()
        piece = await response.chunk()
    if not seen:
        raise _no_stream(start, response, endpoint)


async def _first_piece(response: Response) -> bytes:
    """The body's beginning without BOM and blanks, long enough to tell what it is."""
    start = b""
    while piece := await response.chunk():
        start += piece
        if len(start) >= len(_BOM) and start.removeprefix(_BOM).strip():
            break
    return start.removeprefix(_BOM)


async def _whole_body(response: Response, start: bytes) -> str:
    pieces = [start]
    while piece := await response.chunk():
        if not piece.isspace():
            response.heard()
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")


async def _hand_out(deltas: Sequence[Delta], on_delta: DeltaSink | None) -> None:
    if on_delta is not None:
        for delta in deltas:
            await on_delta(delta)


def _no_stream(start: bytes, response: Response, endpoint: Endpoint) -> Exception:
    text = endpoint.clean(start.decode("utf-8", "replace"), longest=_SHOWN)
    kind = endpoint.clean(response.headers.get("content-type", "no content type"), longest=_SHOWN)
    what = f"the answer is no event stream ({kind}: {text!r})" if text else "the answer is empty"
    return unreadable(what, endpoint)
