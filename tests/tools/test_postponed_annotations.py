"""Annotations that are texts until somebody reads them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated

import pytest
from pydantic import BaseModel, Field

from untildone.domain.errors import ConfigError
from untildone.tools import as_tool, tool

if TYPE_CHECKING:
    from decimal import Decimal


class Item(BaseModel):
    name: str
    count: int | None = None


@tool
async def order(item: Item, notes: list[str] | None = None) -> Decimal: ...


class Desk:
    def write(self, text: Annotated[str, Field(description="Words.")]) -> Decimal: ...

    def __call__(self, item: Item) -> None: ...


def test_names_of_the_module_are_found():
    made = as_tool(order)
    assert made.spec.parameters["properties"]["item"] == {"$ref": "#/$defs/Item"}
    assert made.parse('{"item": {"name": "tea"}}') == {"item": Item(name="tea")}


def test_methods_callable_objects_and_partials_are_read_too():
    write = as_tool(Desk().write).spec.parameters["properties"]
    assert write == {"text": {"type": "string", "description": "Words."}}
    assert as_tool(Desk()).parse('{"item": {"name": "tea"}}') == {"item": Item(name="tea")}
    assert "notes" in as_tool(functools.partial(order)).spec.parameters["properties"]


def test_a_name_known_to_the_type_checker_only_is_a_config_error():
    def pay(amount: Decimal) -> None: ...

    with pytest.raises(ConfigError) as caught:
        _ = as_tool(pay).spec
    message = str(caught.value)
    assert "pay" in message
    assert "'Decimal' in the type of parameter 'amount'" in message
    assert "TYPE_CHECKING" in message


def test_a_name_local_to_a_function_is_a_config_error():
    class Local(BaseModel):
        x: int

    def use(value: Local) -> None: ...

    with pytest.raises(ConfigError, match=r"use: the name 'Local'.*parameter 'value'"):
        _ = as_tool(use).spec


def test_the_error_comes_with_the_spec_and_not_when_the_module_is_loaded():
    @tool
    def pay(amount: Decimal) -> None: ...

    assert as_tool(pay) is not None
