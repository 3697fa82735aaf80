"""Tool calls in pieces: two calls are never merged into one, one never split in two."""

from __future__ import annotations

import json
from typing import Any

import pytest

from untildone.models.openai_calls import CallAssembler, _Call


def piece(
    arguments: Any = None,
    *,
    name: str | None = None,
    id: str | None = None,  # noqa: A002
    index: int | None = None,
) -> dict[str, Any]:
    form: dict[str, Any] = {"function": {}}
    if index is not None:
        form["index"] = index
    if id is not None:
        form["id"] = id
    if name is not None:
        form["function"]["name"] = name
    if arguments is not None:
        form["function"]["arguments"] = arguments
    return form


def calls(*deltas: list[dict[str, Any]]) -> list[tuple[str, str]]:
    assembler = CallAssembler()
    for delta in deltas:
        assembler.feed(delta)
    return [(call.name, call.arguments) for call in assembler.calls()]


TWO = [("f", '{"a":1}'), ("g", '{"b":2}')]
TWICE = [("f", '{"a":1}'), ("f", '{"a":2}')]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                [piece("", name="f", id="1", index=0)],
                [piece('{"a"', index=0)],
                [piece(":1}", index=0)],
                [piece("", name="g", id="2", index=1)],
                [piece('{"b":2}', index=1)],
            ],
            TWO,
            id="OpenAI: one after the other by index",
        ),
        pytest.param(
            [
                [piece("", name="f", id="1", index=0), piece("", name="g", id="2", index=1)],
                [piece('{"a"', index=0), piece('{"b"', index=1)],
                [piece(":2}", index=1), piece(":1}", index=0)],
            ],
            TWO,
            id="interleaved by index",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f", id="1"), piece('{"b":2}', name="g", id="2")]],
            TWO,
            id="whole calls in one delta without index",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f", id="1")], [piece('{"b":2}', name="g", id="2")]],
            TWO,
            id="whole calls in two deltas without index",
        ),
        pytest.param(
            [
                [piece('{"a":1}', name="f", id="1", index=0)],
                [piece('{"b":2}', name="g", id="2", index=0)],
            ],
            TWO,
            id="every call has index 0",
        ),
        pytest.param(
            [
                [piece('{"a":1}', name="f", id="", index=0)],
                [piece('{"a":2}', name="f", id="", index=0)],
            ],
            TWICE,
            id="every call has index 0 and an empty id",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f")], [piece('{"a":2}', name="f")]],
            TWICE,
            id="the same tool twice, neither index nor id",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f", id="1")], [piece('{"a":2}', name="f", id="1")]],
            TWICE,
            id="two calls with one id",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f", id="1"), piece('{"a":2}', name="f", id="1")]],
            TWICE,
            id="two calls with one id in one delta",
        ),
        pytest.param(
            [
                [piece(name="f", id="1")],
                [piece('{"a"')],
                [piece(":1}")],
                [piece(name="g", id="2")],
                [piece('{"b":2}')],
            ],
            TWO,
            id="pieces without index or id follow the last call",
        ),
        pytest.param(
            [
                [piece('{"a"', name="f", id="1")],
                [piece('{"b"', name="g", id="2")],
                [piece(":1}", id="1")],
                [piece(":2}", id="2")],
            ],
            TWO,
            id="interleaved by id",
        ),
        pytest.param(
            [
                [piece(name="f", id="1"), piece(name="g", id="2")],
                [piece('{"a":1}'), piece('{"b":2}')],
            ],
            TWO,
            id="by position in each delta",
        ),
        pytest.param(
            [
                [piece('{"a"', name="f", id="1", index=0)],
                [piece(":1}", name="f", id="1", index=0)],
                [piece("", name="f", id="1", index=0)],
            ],
            [("f", '{"a":1}')],
            id="name and id repeated on each piece",
        ),
        pytest.param(
            [[piece('{"a"', name="f", id="1")], [piece(":1}", name="f", id="1")]],
            [("f", '{"a":1}')],
            id="name and id repeated on each piece, without index",
        ),
        pytest.param(
            [[piece(name="get_", id="1", index=0)], [piece("{}", name="weather", index=0)]],
            [("get_weather", "{}")],
            id="a name in two pieces",
        ),
        pytest.param(
            [[piece({"a": 1}, name="f"), piece({"b": 2}, name="g")]],
            [("f", '{"a": 1}'), ("g", '{"b": 2}')],
            id="arguments as objects",
        ),
        pytest.param([[piece("", name="f", id="1")]], [("f", "")], id="no arguments"),
        pytest.param([[piece(name="f", id="1")]], [("f", "")], id="arguments missing"),
        pytest.param(
            [[piece('{"a": "tru', name="f", id="1", index=0)]],
            [("f", '{"a": "tru')],
            id="cut arguments stay as they are",
        ),
        pytest.param(
            [[piece("[1]", name="f", id="1", index=0)]],
            [("f", "[1]")],
            id="arguments that are no object stay as they are",
        ),
    ],
)
def test_pieces_become_the_calls_they_are_of(
    deltas: list[list[dict[str, Any]]], expected: list[tuple[str, str]]
):
    assert calls(*deltas) == expected


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                [piece('{"a"', name="f", id="1")],
                [piece('{"b"', name="g", id="2")],
                [piece(":1}", name="f", id="1")],
                [piece(":2}", name="g", id="2")],
            ],
            TWO,
            id="id and name on each piece, in turn",
        ),
        pytest.param(
            [
                [piece('{"a"', name="f", id="1"), piece('{"b"', name="g", id="2")],
                [piece(":1}", name="f", id="1"), piece(":2}", name="g", id="2")],
            ],
            TWO,
            id="id and name on each piece, both in each delta",
        ),
        pytest.param(
            [
                [piece('{"a"', name="f"), piece('{"b"', name="g")],
                [piece(":1}", name="f"), piece(":2}", name="g")],
            ],
            TWO,
            id="name on each piece, both in each delta, no id",
        ),
        pytest.param(
            [[piece('{"a":1}', name="f"), piece('{"a":2}', name="f")] for _ in range(2)],
            [*TWICE, *TWICE],
            id="two whole calls in each of two deltas, no id",
        ),
        pytest.param(
            [
                [{**piece('{"a"', name="f", id="1"), "index": "0"}],
                [{**piece('{"b"', name="g", id="2"), "index": "1"}],
                [{**piece(":1}"), "index": "0"}],
                [{**piece(":2}"), "index": "1"}],
            ],
            TWO,
            id="an index as text",
        ),
        pytest.param(
            [
                [piece("", name="f", id="1", index=0)],
                [piece('{"a"', id="2", index=0)],
                [piece(":1}", id="3", index=0)],
                [piece("", id="4", index=0)],
                [piece('{"b":2}', name="g", id="5", index=1)],
            ],
            TWO,
            id="a new id on each piece of one index (mlx-openai-server)",
        ),
        pytest.param(
            [
                [piece("", name="f", id="1", index=0)],
                [piece('{"a"', index=1)],
                [piece(":1}", index=2)],
                [piece("", name="g", id="2", index=3)],
                [piece('{"b":2}', index=4)],
            ],
            TWO,
            id="an index that counts pieces",
        ),
    ],
)
def test_pieces_with_ids_and_indexes_that_mean_nothing_are_put_together_too(
    deltas: list[list[dict[str, Any]]], expected: list[tuple[str, str]]
):
    assert calls(*deltas) == expected


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"a":', "{}", "}"],
        ['{"a":"}', "}", '"}'],
        ['{"a":"\\', '"}', '"}'],
        ['{"a":"\\\\', '"', "}"],
        ['{"a":[{}', ',{"b":{}', "}]}"],
    ],
)
def test_a_name_on_each_piece_divides_a_call_only_where_its_arguments_end(pieces: list[str]):
    whole = "".join(pieces)
    assert isinstance(json.loads(whole), dict)
    deltas = [[piece(text, name="f", id="1", index=0)] for text in pieces]
    assert calls(*deltas, *deltas) == [("f", whole), ("f", whole)]


def test_each_piece_is_looked_at_once_however_often_the_name_is_repeated():
    looked_at = 0

    assembler = CallAssembler()
    count = 4000
    texts = ['{"k":{}', *(f',"k{number}":{{}}' for number in range(count)), "}"]
    with pytest.MonkeyPatch.context() as patch:
        look_at = _Call._look_at

        def counted(self: _Call, text: str) -> None:
            nonlocal looked_at
            looked_at += len(text)
            look_at(self, text)

        patch.setattr(_Call, "_look_at", counted)
        for text in texts:
            assembler.feed([piece(text, name="f", id="a", index=0)])
        (call,) = assembler.calls()
    assert call.arguments == "".join(texts)
    assert looked_at <= len(call.arguments)


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), (None, None)])
def test_each_call_has_an_id_of_its_own(ids: tuple[str | None, str | None]):
    assembler = CallAssembler()
    assembler.feed([piece("{}", name="f", id=ids[0]), piece("{}", name="g", id=ids[1])])
    first, second = assembler.calls()
    assert first.id
    assert second.id
    assert first.id != second.id
    if ids[0]:
        assert first.id == ids[0]


def test_what_a_provider_adds_to_a_call_is_kept():
    assembler = CallAssembler()
    signature = {"google": {"thought_signature": "abc"}}
    assembler.feed([{**piece("{}", name="f", id="1", index=0), "extra_content": signature}])
    assert assembler.calls()[0].to_dict() == {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": signature,
    }


def test_pieces_that_are_no_objects_or_say_nothing_are_harmless():
    assert calls([None, 7, "x"], [{}], [{"index": 0}]) == []  # type: ignore[list-item]
    one = piece('{"a":1}', name="f", id="1", index=0)
    assert calls([{}], [None, {"index": 0}], [one], [{}]) == [("f", '{"a":1}')]  # type: ignore[list-item]


@pytest.mark.parametrize(
    "blank",
    [
        pytest.param({"name": "f", "id": "1", "index": 0}, id="name, id and index again"),
        pytest.param({"name": "f", "id": "1"}, id="name and id again"),
        pytest.param({"name": "f"}, id="the name again"),
        pytest.param({"name": "f", "id": "2", "index": 0}, id="the name again with a new id"),
        pytest.param({"id": "2", "index": 0}, id="a new id at the same index"),
        pytest.param({"id": "2"}, id="a new id without index"),
        pytest.param({"index": 1}, id="a new index"),
        pytest.param({}, id="only the blank"),
    ],
)
@pytest.mark.parametrize("text", ["\n", " ", "\r\n\t"])
def test_a_blank_after_whole_arguments_begins_no_second_call(blank: dict[str, Any], text: str):
    first = [piece("{}", name="f", id="1", index=0 if "index" in blank else None)]
    assert calls(first, [piece(text, **blank)]) == [("f", "{}" + text)]


def test_a_blank_after_whole_arguments_hides_no_second_call():
    one, two = piece('{"a":1}', name="f", index=0), piece('{"a":2}', name="f", index=0)
    found = calls([one], [piece("\n", name="f", index=0)], [two])
    assert found == [("f", '{"a":1}\n'), ("f", '{"a":2}')]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [[piece("", name="f", index=0)], [piece("", name="g", index=0)]],
            [("f", ""), ("g", "")],
            id="two tools without arguments and ids at one index",
        ),
        pytest.param(
            [
                [piece("", name="f", index=0)],
                [piece('{"a":1}', index=0)],
                [piece("", name="f", index=0)],
                [piece('{"a":', index=0)],
                [piece("2}", index=0)],
            ],
            TWICE,
            id="one name announced twice at one index, no id",
        ),
        pytest.param(
            [
                [piece("", name="f")],
                [piece('{"a":1}')],
                [piece("", name="f")],
                [piece('{"a":2}')],
            ],
            TWICE,
            id="one name announced twice, neither index nor id",
        ),
        pytest.param(
            [
                [piece(name="get_", id="1", index=0)],
                [piece(name="weather", id="1", index=0)],
                [piece("{}", id="1", index=0)],
            ],
            [("get_weather", "{}")],
            id="a name in two pieces, the id on each",
        ),
        pytest.param(
            [
                [piece('{"a"', name="f", id="1", index=0)],
                [piece(":1}", name="f", id="2", index=0)],
                [piece('{"a":2}', name="f", id="3", index=0)],
            ],
            TWICE,
            id="a new id and the name on each piece of one index",
        ),
        pytest.param(
            [
                [piece("", name="f", id="1", index=0)],
                [piece('{"a":1}', index=0)],
                [piece("", name="f", id="1", index=0)],
            ],
            [("f", '{"a":1}')],
            id="the first piece once more at the end",
        ),
    ],
)
def test_odd_shapes_become_the_calls_they_are_of(
    deltas: list[list[dict[str, Any]]], expected: list[tuple[str, str]]
):
    assert calls(*deltas) == expected
