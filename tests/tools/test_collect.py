"""From ``tools=[...]`` to tools by name."""

from typing import Any

import pytest

from untildone.domain.errors import ConfigError, ToolError
from untildone.domain.tools import ToolSpec, output_text
from untildone.tools import FunctionTool, as_tool, collect_tools, tool


def read(path: str) -> str:
    """Reads a file."""
    return path


@tool(name="write_file")
def write(path: str) -> str:
    return path


class Remote:
    """A tool that is no function of ours."""

    def __init__(self, name: str = "remote", result: Any = "far away") -> None:
        self.spec = ToolSpec(name=name, description="", parameters={"type": "object"})
        self.result = result

    def parse(self, arguments: str) -> dict[str, Any]:
        if not arguments:
            raise ToolError("nothing")
        return {"raw": arguments}

    async def run(self, arguments: dict[str, Any], offload: Any) -> Any:
        return self.result


async def offload(function) -> Any:
    return function()


def test_tools_are_collected_by_name_and_in_order():
    tools = collect_tools([write, read, Remote()])
    assert list(tools) == ["write_file", "read", "remote"]
    assert [made.spec.name for made in tools.values()] == list(tools)


def test_no_tools_are_an_empty_mapping():
    assert collect_tools([]) == {}


def test_a_tool_stays_itself():
    made = as_tool(read)
    assert as_tool(made) is made
    remote = as_tool(Remote())
    assert as_tool(remote) is remote


async def test_a_tool_of_another_kind_is_used_as_it_is():
    remote = Remote()
    made = as_tool(remote)
    assert made.spec is remote.spec
    assert made.parse("x") == {"raw": "x"}
    assert await made.run({}, offload) == "far away"
    with pytest.raises(ToolError, match="nothing"):
        made.parse("")


async def test_results_of_tools_of_another_kind_are_text_and_cut():
    long = as_tool(Remote(result="x" * 5_000_000))
    assert len(output_text(await long.run({}, offload))) == 50_000
    assert await as_tool(Remote(result={"a": 1})).run({}, offload) == '{"a":1}'
    remote = Remote(result="x" * 1000)
    remote.max_result_chars = 300  # pyright: ignore[reportAttributeAccessIssue]
    assert len(output_text(await as_tool(remote).run({}, offload))) <= 300


def test_two_tools_with_one_name_are_refused_and_both_named():
    @tool(name="read")
    def also_read(path: str) -> str:
        return path

    with pytest.raises(ConfigError) as caught:
        collect_tools([read, also_read])
    message = str(caught.value)
    assert "two tools are named 'read'" in message
    assert f"{__name__}.read and" in message
    assert "also_read" in message


def test_tools_of_different_kinds_with_one_name_are_refused():
    with pytest.raises(ConfigError, match=r"read and a .*Remote"):
        collect_tools([read, Remote("read")])
    with pytest.raises(ConfigError, match="two tools are named 'read'"):
        collect_tools([read, FunctionTool(read)])


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (5, "5, which is no tool; give functions"),
        ("read", "'read', which is no tool; give functions"),
        (None, "None, which is no tool"),
        ([read], "flat list"),
        ({"type": "function"}, "a schema alone cannot run"),
        (Remote, r"the class Remote; make an object of it: Remote\(...\)"),
        (
            classmethod(read),  # pyright: ignore[reportArgumentType]
            "SomeClass.method",
        ),
        (lambda query: query, r'a lambda has no name .*tool\(name="search"\)'),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_is_no_tool_says_what_to_give(item, words):
    with pytest.raises(ConfigError, match=words):
        collect_tools([read, item])


def test_a_function_that_was_called_by_mistake():
    async def search() -> None: ...

    with pytest.raises(ConfigError, match=r"coroutine of .*search\(\); give the function"):
        collect_tools([search()])


def test_a_function_whose_own_name_cannot_be_used():
    def größe() -> None: ...  # noqa: PLC2401

    with pytest.raises(ConfigError, match="größe"):
        collect_tools([größe])


def test_a_tool_of_another_kind_has_to_have_a_usable_spec():
    with pytest.raises(ConfigError, match="two words"):
        as_tool(Remote("two words"))
    remote = Remote()
    remote.spec = {"name": "x"}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ConfigError, match="must be a ToolSpec"):
        as_tool(remote)
