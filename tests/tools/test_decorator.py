"""``@tool`` leaves functions as they are, and takes what it is told or says why not."""

import asyncio
import functools
import inspect
import math
import pickle
import subprocess
import sys

import pytest

from untildone.domain.errors import ConfigError
from untildone.domain.tools import ToolTraits
from untildone.tools import FunctionTool, as_tool, tool


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return number * 2


@tool(name="search-web", description="Finds pages.", timeout_s=5, polling=True)
async def search(query: str) -> str:
    """Not this text."""
    return f"pages about {query}"


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(name="price_of")
    def price(self, item: str) -> str:
        """Looks a price up."""
        return f"{item} at {self.name}"

    @classmethod
    @tool
    def open_hours(cls, day: str) -> str:
        return f"{cls.__name__} on {day}"

    @tool
    @classmethod
    def owner(cls, year: int) -> str:
        return f"{cls.__name__} in {year}"

    @tool
    @staticmethod
    def tax(amount: int) -> int:
        return amount // 5


def test_a_decorated_function_is_called_as_before():
    assert double(4) == 8
    assert double.__name__ == "double"
    assert double.__doc__ == "Doubles a number."
    assert inspect.isfunction(double)


async def test_a_decorated_async_function_is_still_a_coroutine_function():
    assert inspect.iscoroutinefunction(search)
    assert asyncio.iscoroutinefunction(search)
    assert await search("loops") == "pages about loops"


def test_a_decorated_function_can_be_pickled():
    assert pickle.loads(pickle.dumps(double)) is double


def test_decorated_methods_work_on_their_objects_and_as_tools():
    shop = Shop("Ann's")
    assert shop.price("tea") == "tea at Ann's"
    made = as_tool(shop.price)
    assert made.spec.name == "price_of"
    assert made.spec.parameters["properties"] == {"item": {"type": "string"}}


def test_decorated_class_and_static_methods_work_in_either_order():
    assert Shop.open_hours("Monday") == "Shop on Monday"
    assert Shop.owner(1999) == "Shop in 1999"
    assert Shop.tax(100) == 20
    assert as_tool(Shop.owner).spec.name == "owner"
    assert as_tool(Shop("x").open_hours).spec.name == "open_hours"
    assert list(as_tool(Shop.tax).spec.parameters["properties"]) == ["amount"]


def test_what_the_decorator_was_told_is_in_the_spec():
    made = as_tool(search)
    assert made.spec.name == "search-web"
    assert made.spec.description == "Finds pages."
    assert made.spec.traits == ToolTraits(polling=True)


def test_all_traits_arrive():
    @tool(idempotent=True, nondeterministic=True, volatile=["updated", "etag"])
    def fetch(url: str) -> str:
        return url

    expected = ToolTraits(idempotent=True, nondeterministic=True, volatile=("updated", "etag"))
    assert as_tool(fetch).spec.traits == expected


def test_an_empty_description_is_kept_and_does_not_fall_back_to_the_docstring():
    def quiet() -> None:
        """Loud."""

    assert as_tool(tool(description="")(quiet)).spec.description == ""


def test_one_function_can_serve_as_several_tools():
    def read(path: str) -> str:
        return path

    first, second = tool(name="read_a")(read), tool(name="read_b")(read)
    assert [as_tool(one).spec.name for one in (first, second)] == ["read_a", "read_b"]
    assert second("x") == "x"


async def test_a_second_tool_of_an_async_function_is_async():
    second = tool(name="again")(search)
    assert inspect.iscoroutinefunction(second)
    assert await second("x") == "pages about x"
    assert as_tool(search).spec.name == "search-web"


def test_builtins_lambdas_and_partials_can_be_decorated():
    assert as_tool(tool(name="twice")(lambda number: number * 2)).spec.name == "twice"
    assert as_tool(tool(name="root")(math.sqrt)).spec.name == "root"
    tripled = tool(name="pow3")(functools.partial(pow, exp=3))
    assert tripled(2) == 8
    assert as_tool(tripled).spec.name == "pow3"


def test_decorators_around_a_tool_keep_its_options():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    made = as_tool(logged(Shop("x").price))
    assert made.spec.name == "price_of"
    assert list(made.spec.parameters["properties"]) == ["item"]


def test_a_partial_of_a_tool_keeps_its_options():
    assert as_tool(functools.partial(search)).spec.name == "search-web"


@pytest.mark.parametrize("name", ["", "two words", "naïve", "a" * 65, "dot.ted", 7, "x\n"])
def test_a_name_that_providers_refuse_is_a_config_error(name):
    with pytest.raises(ConfigError, match="tool name") as caught:
        tool(name=name)
    assert repr(name)[:40] in str(caught.value)
    assert "letters" in str(caught.value)


def test_the_longest_name_is_taken():
    assert as_tool(tool(name="a" * 64)(lambda: None)).spec.name == "a" * 64


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, "5"])
def test_a_timeout_that_cannot_work_is_a_config_error(seconds):
    with pytest.raises(ConfigError, match="timeout_s"):
        tool(timeout_s=seconds)


@pytest.mark.parametrize("most", [0, 199, 1000.0, True, None, "500"])
def test_a_result_bound_that_cannot_work_is_a_config_error(most):
    with pytest.raises(ConfigError, match="max_result_chars"):
        tool(max_result_chars=most)


@pytest.mark.parametrize("fields", ["updated", [1], None, {"a": 1}])
def test_volatile_fields_are_a_list_of_names(fields):
    with pytest.raises(ConfigError, match=r"volatile.*\['updated'\]"):
        tool(volatile=fields)


@pytest.mark.parametrize("trait", ["polling", "idempotent", "nondeterministic"])
def test_traits_are_true_or_false(trait):
    with pytest.raises(ConfigError, match=trait):
        tool(**{trait: "yes"})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("target", ["search", 5, Shop])
def test_decorating_what_is_no_function_says_how_to_do_it(target):
    with pytest.raises(ConfigError, match="right above a def"):
        tool(target)


def test_a_description_is_a_text():
    with pytest.raises(ConfigError, match="description"):
        tool(description=5)  # pyright: ignore[reportArgumentType]


def test_a_function_tool_can_be_called_like_its_function():
    made = FunctionTool(double)
    assert made(4) == 8
    assert "double" in repr(made)


def test_importing_the_tools_and_marking_functions_loads_no_pydantic():
    program = """
import sys
from untildone.tools import tool, as_tool, collect_tools
@tool(name="a", timeout_s=3)
def f(x: int) -> int: return x
collect_tools([f, lambda_ if False else print])
assert not [name for name in sys.modules if name.startswith("pydantic")]
as_tool(f).spec
assert "pydantic" in sys.modules
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
