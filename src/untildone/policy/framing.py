"""Text from outside put into a prompt as data: it cannot close the frame that it stands in."""

from __future__ import annotations


def framed(label: str, text: str) -> str:
    """``text`` between marks that do not occur in it."""
    opening, closing = frame(label, text)
    return f"{opening}\n{text}\n{closing}"


def frame(label: str, text: str) -> tuple[str, str]:
    """The two marks for ``text``, where it does not go into the prompt as one piece.

    The mark carries a hash of the text, so a text would have to contain its own hash to close the
    frame; the same text always gets the same mark, which keeps prompt caches warm.
    """
    from hashlib import sha256  # loaded with the first frame: OpenSSL takes a millisecond

    mark = f"{label}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
    return f"<{mark}>", f"</{mark}>"
