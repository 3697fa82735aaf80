"""Schemas as a model sees them, compared with ones written by hand."""

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import math
import pathlib
import sqlite3
import sys
import typing
import uuid
import weakref
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType, TypedDict

from untildone.domain.errors import ConfigError
from untildone.tools import as_tool, tool


def parameters(function) -> dict[str, Any]:
    return as_tool(function).spec.parameters


def properties(function) -> dict[str, Any]:
    return parameters(function)["properties"]


def only(hint) -> dict[str, Any]:
    """The schema of one required parameter of this type."""

    def function(value): ...

    function.__annotations__ = {"value": hint}
    return properties(function)["value"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Place(BaseModel):
    """A place on earth."""

    city: str
    zip_code: int | None = Field(None, description="Where known.")


class Trip(BaseModel):
    start: Place
    stops: list[Place] = []


class Node(BaseModel):
    value: int
    children: list["Node"] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


Value = typing.TypeVar("Value")
MaybeInt = TypeAliasType("MaybeInt", int | None)
ORIGIN = Point(1, 2)


class Options(TypedDict, total=False):
    verbose: bool
    title: str


PLACE = {
    "description": "A place on earth.",
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "zip_code": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "default": None,
            "description": "Where known.",
        },
    },
    "required": ["city"],
}


def test_a_function_without_parameters():
    def now() -> str: ...

    assert parameters(now) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_scalars_defaults_and_descriptions():
    def search(query: str, limit: int = 5, ratio: float = 0.5, exact: bool = False):  # noqa: D417
        """Searches.

        Args:
            query: What to look for.
            limit: Most hits.
        """

    assert parameters(search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "Most hits.", "default": 5},
            "ratio": {"type": "number", "default": 0.5},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (
            list[list[str]],
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Literal["a"], {"const": "a", "type": "string"}),
        (Any, {}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (collections.abc.Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (collections.abc.Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (typing.Iterable, {"type": "array", "items": {}}),
        (
            collections.abc.Iterable[int] | None,
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        ),
        (
            Annotated[int, Field(ge=1, le=9, description="A digit.")],
            {"type": "integer", "minimum": 1, "maximum": 9, "description": "A digit."},
        ),
    ],
)
def test_types_keep_what_they_say(hint, schema):
    assert only(hint) == schema


def test_a_parameter_without_a_type_takes_anything():
    def echo(value, other=None): ...

    assert properties(echo) == {"value": {}, "other": {"default": None}}


def test_enums_are_their_values():
    def paint(color: Color, level: Level = Level.LOW): ...

    assert parameters(paint) == {
        "type": "object",
        "properties": {
            "color": {"$ref": "#/$defs/Color"},
            "level": {"$ref": "#/$defs/Level", "default": 1},
        },
        "required": ["color"],
        "additionalProperties": False,
        "$defs": {
            "Color": {"enum": ["red", "blue"], "type": "string"},
            "Level": {"enum": [1, 2], "type": "integer"},
        },
    }


def test_nested_models_are_definitions_without_titles():
    def plan(trip: Trip, home: Place | None = None): ...

    assert parameters(plan) == {
        "type": "object",
        "properties": {
            "trip": {"$ref": "#/$defs/Trip"},
            "home": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
        },
        "required": ["trip"],
        "additionalProperties": False,
        "$defs": {
            "Place": PLACE,
            "Trip": {
                "type": "object",
                "properties": {
                    "start": {"$ref": "#/$defs/Place"},
                    "stops": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Place"},
                        "default": [],
                    },
                },
                "required": ["start"],
            },
        },
    }


def test_models_that_contain_themselves():
    def grow(tree: Node): ...

    assert parameters(grow)["$defs"]["Node"] == {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
        },
        "required": ["value"],
    }


def test_dataclasses_and_typed_dicts():
    def draw(point: Point, options: Options): ...

    assert parameters(draw)["$defs"] == {
        "Point": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "Options": {
            "type": "object",
            "properties": {"verbose": {"type": "boolean"}, "title": {"type": "string"}},
            "additionalProperties": False,
        },
    }


def test_a_parameter_named_title_stays_while_titles_go():
    def write(title: str, options: Options): ...

    assert properties(write)["title"] == {"type": "string"}


def test_a_default_of_none_admits_null():
    def find(limit: int = None): ...  # pyright: ignore[reportArgumentType]  # noqa: RUF013

    assert properties(find) == {
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    }


def test_what_admits_null_already_stays_as_it_is():
    def find(
        mode: Literal["a", None] = None,  # noqa: PYI061
        limit: Annotated[int | None, Field(ge=1)] = None,
        value: Value = None,  # pyright: ignore[reportInvalidTypeVarUse]
        alias: MaybeInt = None,
    ): ...

    assert properties(find) == {
        "mode": {"enum": ["a", None], "default": None},
        "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
        "value": {"default": None},
        "alias": {"$ref": "#/$defs/MaybeInt", "default": None},
    }


def test_defaults_in_the_form_of_json_where_they_have_one():
    missing = object()

    def run(
        *,
        day: dt.date = dt.date(2024, 2, 29),
        point: Point = ORIGIN,
        tags: frozenset[str] = frozenset({"b", "a", "c"}),
        price: decimal.Decimal = decimal.Decimal("1.50"),
        nothing: Any = missing,
        endless: float = float("inf"),
    ): ...

    shown = {name: schema.get("default", "none") for name, schema in properties(run).items()}
    assert shown == {
        "day": "2024-02-29",
        "point": {"x": 1, "y": 2},
        "tags": ["a", "b", "c"],
        "price": "1.50",
        "nothing": "none",
        "endless": "none",
    }
    assert "required" not in parameters(run)


def test_field_as_a_default_says_default_and_description():
    def run(
        first: int = Field(description="One."),
        second: int = Field(default=2, ge=0),
        third: Annotated[list[int], Field(default_factory=list)] = Field(max_length=3),  # noqa: B008
    ): ...

    assert parameters(run)["required"] == ["first"]
    assert properties(run)["first"] == {"type": "integer", "description": "One."}
    assert properties(run)["second"] == {"type": "integer", "minimum": 0, "default": 2}
    assert as_tool(run).parse('{"first": 1}') == {"first": 1, "second": 2, "third": []}


def test_a_field_description_wins_over_the_docstring():
    def run(value: Annotated[int, Field(description="Of the field.")]):
        """Runs.

        Args:
            value: Of the docstring.
        """

    assert properties(run)["value"]["description"] == "Of the field."


def test_names_that_pydantic_models_reserve_are_names_like_others():
    def odd(self: int, model_config: str, schema: int, json: str, _x: int, copy: int = 0): ...

    assert list(properties(odd)) == ["self", "model_config", "schema", "json", "_x", "copy"]
    sent = '{"self": 1, "model_config": "a", "schema": 2, "json": "b", "_x": 3}'
    assert as_tool(odd).parse(sent)["_x"] == 3


def test_star_arguments_are_one_array_and_one_object():
    def call(first: int, *rest: str, flag: bool = False, **extra: int): ...

    assert parameters(call) == {
        "type": "object",
        "properties": {
            "first": {"type": "integer"},
            "rest": {"type": "array", "items": {"type": "string"}},
            "flag": {"type": "boolean", "default": False},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["first"],
        "additionalProperties": False,
    }


def test_what_a_partial_fixes_by_name_is_not_shown():
    def post(url: str, token: str, retries: int = 3): ...

    fixed = functools.partial(post, token="secret")
    assert list(properties(fixed)) == ["url", "retries"]
    assert "secret" not in str(parameters(fixed))
    assert list(properties(functools.partial(fixed, retries=1))) == ["url"]


def test_what_a_partial_fixes_by_position_is_not_shown():
    def post(url: str, body: str): ...

    assert list(properties(functools.partial(post, "http://x"))) == ["body"]


def test_a_schema_is_made_once_per_function():
    def run(value: int): ...

    assert parameters(run) is parameters(run)
    assert as_tool(run) is not as_tool(run)


def test_methods_of_two_objects_share_a_schema():
    class Desk:
        def write(self, text: str): ...

    assert parameters(Desk().write) is parameters(Desk().write)


def test_objects_that_wrap_different_functions_have_different_schemas():
    class Wrapper:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function = function

        def __call__(self, *args, **kwargs):
            return self.function(*args, **kwargs)

    def first(alpha: int): ...
    def second(beta: str): ...

    wrapped = Wrapper(first), Wrapper(second)
    assert [list(properties(one)) for one in wrapped] == [["alpha"], ["beta"]]
    cached = functools.lru_cache(first), functools.lru_cache(second)
    assert [list(properties(one)) for one in cached] == [["alpha"], ["beta"]]


def test_a_type_without_a_form_in_json_names_function_and_parameter():
    def save(text: str, db: sqlite3.Connection): ...

    with pytest.raises(ConfigError) as caught:
        parameters(save)
    message = str(caught.value)
    assert "save" in message
    assert "'db' has the type Connection, which cannot be made from JSON" in message
    assert "functools.partial" in message


def test_a_callable_parameter_names_function_and_parameter():
    def apply(fn: collections.abc.Callable[[int], int]): ...

    with pytest.raises(ConfigError, match=r"apply: parameter 'fn'"):
        parameters(apply)


def test_a_model_that_is_not_complete_names_what_it_lacks():
    class Odd(BaseModel):
        part: "NotThere"  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    def use(odd: Odd): ...

    with pytest.raises(ConfigError, match=r"'odd' has the type .*Odd.*'NotThere' is not defined"):
        parameters(use)


@pytest.mark.parametrize("hint", [typing.ClassVar[int], typing.Final[int], 3])
def test_what_is_no_type_of_a_value_is_a_config_error(hint):
    with pytest.raises(ConfigError, match="'value'"):
        only(hint)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it from there on")
def test_the_old_typed_dict_says_where_to_get_the_new_one():
    class Old(typing.TypedDict):
        x: int

    with pytest.raises(ConfigError, match=r"'value' has the type .*Old.*typing_extensions"):
        only(Old)


def test_an_unbound_method_says_to_give_a_bound_one():
    class Shop:
        @tool
        def price(self, item: str): ...

    with pytest.raises(ConfigError, match=r"Shop\(\.\.\.\)\.price"):
        parameters(Shop.price)


def test_a_function_whose_signature_is_hidden_is_a_config_error():
    with pytest.raises(ConfigError, match="wrap it in a function"):
        parameters(tool(name="type_of")(max))


def test_a_type_that_cannot_be_evaluated_names_the_parameter():
    def run(value): ...

    run.__annotations__ = {"value": "list[int"}
    with pytest.raises(ConfigError, match="run: the type of parameter 'value'"):
        parameters(run)


def test_the_default_of_the_signature_wins_over_the_one_of_a_field():
    def run(value: Annotated[int, Field(default=4, ge=0)] = 5): ...

    assert properties(run)["value"] == {"type": "integer", "minimum": 0, "default": 5}
    assert as_tool(run).parse("{}").get("value", 5) == 5


def test_builtins_that_say_what_they_take():
    assert parameters(math.sqrt)["required"] == ["x"]
    assert parameters(math.sqrt) == parameters(math.sqrt)


def test_functions_that_are_gone_leave_nothing_behind():
    def make():
        class Local(BaseModel):
            x: int

        def run(value: Local, other: int = 3): ...

        parameters(run)
        return weakref.ref(run)

    gone = make()
    gc.collect()
    assert gone() is None
