"""Server-Sent Events, cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.models.sse import EventStream


def payloads(*pieces: bytes) -> list[str]:
    events = EventStream()
    found = [payload for piece in pieces for payload in events.feed(piece)]
    return found + events.end()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data\n\n", [""]),
        (b"data:\ndata:\n\n", ["\n"]),
        (b": ping\n\n: ping\n\n", []),
        (b"event: x\nid: 7\nretry: 10\ndata: a\n\n", ["a"]),
        (b"event: x\n\n", []),
        (b"database: no\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", ["a"]),
        ("data: ü€😀\n\n".encode(), ["ü€😀"]),
        (b"data: \xff\xfe!\n\n", ["\ufffd\ufffd!"]),
        ("data: a\u2028b\x0bc\n\n".encode(), ["a\u2028b\x0bc"]),
        (b"data: no blank line\n", ["no blank line"]),
        (b"data: no line end", ["no line end"]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream_gives_its_data_payloads(stream: bytes, expected: list[str]):
    assert payloads(stream) == expected
    assert payloads(*(stream[i : i + 1] for i in range(len(stream)))) == expected
    for cut in range(len(stream)):
        assert payloads(stream[:cut], stream[cut:]) == expected


@given(
    events=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 500)),
)
def test_where_a_stream_is_cut_changes_nothing(events: list[str], line_end: str, cuts: list[int]):
    stream = "".join(f"data: {text}{line_end}{line_end}" for text in events).encode()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert payloads(*pieces) == events


@given(st.binary(), st.integers(0, 300))
def test_any_bytes_are_read_without_an_error(stream: bytes, cut: int):
    assert payloads(stream[:cut], stream[cut:]) == payloads(stream)


def test_a_payload_is_given_as_soon_as_its_blank_line_is_there():
    events = EventStream()
    assert events.feed(b"data: a\r\n\r") == ["a"]
    assert events.feed(b"\ndata: b\r\n") == []
    assert events.feed(b"\r") == ["b"]
    assert events.end() == []


def test_five_megabytes_in_one_line_and_small_packets_are_one_payload():
    line = b"data: " + b"x" * 5_000_000
    pieces = [line[i : i + 1000] for i in range(0, len(line), 1000)]
    assert [len(payload) for payload in payloads(*pieces, b"\n\n")] == [5_000_000]
