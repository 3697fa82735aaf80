"""Tools for models that know none: what such a model is sent, and how its replies are read."""

import itertools
import json
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from untildone import Agent, ConfigError, ExitReason, run_agent, stream_agent
from untildone.domain.messages import Message, ToolCall, messages_from_dicts, tool_message
from untildone.domain.requests import ModelRequest, TextDelta, ThinkingDelta
from untildone.domain.tools import ToolSpecs
from untildone.models.prompted_tools import PromptedToolsModel
from untildone.testing import ScriptedModel, reply
from untildone.tools import as_tool

ASK = [{"role": "user", "content": "Weather in Oslo?"}]


def get_weather(city: str, days: int = 1) -> str:
    """Tells the weather.

    Args:
        city: Where.
        days: How many days.
    """
    return f"{city}: rain for {days}"


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def called(tool: str, **arguments: Any) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def said(text: str) -> str:
    return json.dumps({"answer": text})


def specs(*functions: Any) -> ToolSpecs:
    return ToolSpecs([as_tool(function).spec for function in functions])


async def request_for(*functions: Any, messages=None, **settings: Any) -> ModelRequest:
    """What the inner model is asked."""
    inner = ScriptedModel([said("x")])
    request = ModelRequest(
        messages=messages_from_dicts(ASK) if messages is None else messages,
        tools=specs(*functions),
    )
    await PromptedToolsModel(inner, **settings).generate(request)
    return inner.requests[0].request


async def read(text: str, **settings: Any) -> Message:
    inner = ScriptedModel([reply(text, **settings)])
    request = ModelRequest(messages=messages_from_dicts(ASK), tools=specs(get_weather))
    return (await PromptedToolsModel(inner).generate(request)).message


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_calls_the_tool_and_ends_with_the_answer():
    inner = ScriptedModel([called("get_weather", city="Oslo"), said("It rains.")])
    agent = Agent("ada", PromptedToolsModel(inner), tools=[get_weather])
    result = await run_agent(agent, ASK)
    assert (result.text, result.exit_reason) == ("It rains.", ExitReason.SATISFIED)
    (made,) = result.tool_calls
    assert (made["tool"], made["args"], made["result"]) == (
        "get_weather",
        {"city": "Oslo"},
        "Oslo: rain for 1",
    )
    assert [message["role"] for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.input_tokens == 20


async def test_the_inner_model_gets_calls_and_results_as_plain_messages():
    inner = ScriptedModel([called("get_weather", city="Oslo"), said("It rains.")])
    agent = Agent("ada", PromptedToolsModel(inner, examples=False), tools=[get_weather])
    await run_agent(agent, ASK)
    second = inner.requests[1]
    assert second.tool_names == []
    assert second.messages[1:] == [
        *ASK,
        {
            "role": "assistant",
            "content": '{"tool": "get_weather", "arguments": {"city": "Oslo"}}',
        },
        {"role": "user", "content": "Result of get_weather: Oslo: rain for 1"},
    ]


async def test_a_wrong_call_comes_back_as_an_error_it_can_act_on():
    inner = ScriptedModel([called("get_weather", town="Oslo"), called("nothing"), said("sorry")])
    agent = Agent("ada", PromptedToolsModel(inner), tools=[get_weather])
    result = await run_agent(agent, ASK)
    assert [made["is_error"] for made in result.tool_calls] == [True, True]
    assert "there is no tool 'nothing'" in inner.requests[2].messages[-1]["content"]


async def test_live_readers_get_the_answer_and_no_json():
    inner = ScriptedModel([called("get_weather", city="Oslo"), said("It rains.")])
    agent = Agent("ada", PromptedToolsModel(inner), tools=[get_weather])
    async with stream_agent(agent, ASK) as stream:
        chunks = [event.data["chunk"] async for event in stream if event.event == "text_delta"]
    assert chunks == ["It rains."]


async def test_thinking_is_passed_on():
    class Thinking(ScriptedModel):
        async def generate(self, request, on_delta=None):
            if on_delta is not None:
                await on_delta(ThinkingDelta("hm"))
            return await super().generate(request, on_delta)

    seen: list[object] = []

    async def take(delta: object) -> None:
        seen.append(delta)

    request = ModelRequest(messages=messages_from_dicts(ASK), tools=specs(add))
    await PromptedToolsModel(Thinking([said("x")])).generate(request, take)
    assert seen == [ThinkingDelta("hm"), TextDelta("x")]


async def test_without_tools_nothing_is_changed():
    inner = ScriptedModel(["plain text"])
    request = ModelRequest(messages=messages_from_dicts(ASK))
    answer = await PromptedToolsModel(inner).generate(request)
    assert answer.message.text == "plain text"
    assert inner.requests[0].request is request


async def test_after_most_calls_only_an_answer_will_do():
    calls = (ToolCall("1", "add", '{"a": 1, "b": 2}'),)
    after_one = [
        *messages_from_dicts(ASK),
        Message("assistant", None, calls),
        tool_message("1", "3"),
    ]
    free = await request_for(add, messages=after_one)
    bound = await request_for(add, messages=after_one, most_calls=1)
    asked_again = [*after_one, Message("user", "And 2 + 2?")]
    again = await request_for(add, messages=asked_again, most_calls=1)
    assert "anyOf" in (free.json_schema or {})
    assert list((bound.json_schema or {})["properties"]) == ["answer"]
    assert "anyOf" in (again.json_schema or {})


# ── What is sent ─────────────────────────────────────────────────────────────────────────────────


async def test_the_schema_takes_a_call_or_an_answer_and_nothing_else():
    schema = (await request_for(get_weather, add)).json_schema or {}
    for good in (called("add", a=1, b=2), called("get_weather", city="Oslo"), said("x")):
        jsonschema.validate(json.loads(good), schema)
    for bad in (called("add", a=1), called("none"), '{"answer": 3}', "{}", '"text"'):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(bad), schema)


class Place(BaseModel):
    """A place."""

    city: str
    inside: "Place | None" = None


def visit(place: Place) -> str:
    """Visits a place."""
    return place.city


def leave(place: Place) -> str:
    """Leaves a place."""
    return place.city


async def test_definitions_of_several_tools_do_not_meet():
    schema = (await request_for(visit, leave)).json_schema or {}
    assert len(schema["$defs"]) == 2
    inner = {"city": "Lyon", "inside": {"city": "France", "inside": None}}
    jsonschema.validate({"tool": "visit", "arguments": {"place": inner}}, schema)
    wrong = {"city": "Lyon", "inside": {"city": 3}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tool": "leave", "arguments": {"place": wrong}}, schema)


async def test_a_structured_answer_has_its_own_schema_and_comes_back_as_json():
    inner = ScriptedModel(['{"answer": {"age": 3}}'])
    wanted = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    request = ModelRequest(messages=messages_from_dicts(ASK), tools=specs(add), json_schema=wanted)
    answer = await PromptedToolsModel(inner).generate(request)
    assert json.loads(answer.message.text) == {"age": 3}
    schema = inner.requests[0].request.json_schema or {}
    jsonschema.validate({"answer": {"age": 3}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"answer": "three"}, schema)


async def test_the_tools_follow_the_agents_own_instructions():
    messages = messages_from_dicts([{"role": "system", "content": "Be brief."}, *ASK])
    (system, *rest) = (await request_for(get_weather, messages=messages)).messages
    assert system.text.startswith("Be brief.\n\nYou can use these tools:\n- get_weather(")
    assert "get_weather(city: string, days?: integer): Tells the weather." in system.text
    assert all(message.role != "system" for message in rest)


async def test_each_tool_has_an_example_that_fits_its_own_schema():
    class Filter(BaseModel):
        """A filter."""

        words: list[str]
        exact: bool
        kind: "str | None"

    def search(filter: Filter, place: Place, limit: int, ratio: float) -> str:  # noqa: A002
        """Searches."""
        return ""

    request = await request_for(search, add)
    shown = [json.loads(m.text) for m in request.messages if m.role == "assistant"]
    assert [example.get("tool", "answer") for example in shown] == [
        "search",
        "answer",
        "add",
        "answer",
    ]
    for example in shown:
        jsonschema.validate(example, request.json_schema or {})
    roles = [message.role for message in request.messages]
    assert all(one != other for one, other in itertools.pairwise(roles))


async def test_many_tools_have_few_examples():
    def made(number: int) -> Any:
        def function(x: int) -> int:
            """Does something."""
            return x

        function.__name__ = f"tool_{number}"
        return function

    request = await request_for(*(made(number) for number in range(20)))
    assert sum(message.role == "assistant" for message in request.messages) == 12
    assert "tool_19(x: integer)" in request.messages[0].text


async def test_a_history_with_several_calls_in_one_reply_is_told_in_pairs():
    calls = (ToolCall("1", "add", '{"a": 1, "b": 2}'), ToolCall("2", "add", '{"a": 3, "b": 4}'))
    history = [
        *messages_from_dicts(ASK),
        Message("assistant", "I add.", calls),
        tool_message("1", "3"),
        tool_message("2", "7"),
        Message("user", "Go on."),
        Message("assistant", "Fine."),
        Message("user", [{"type": "text", "text": "And this?"}]),
        Message("user", "Please."),
    ]
    told = (await request_for(add, messages=history, examples=False)).messages[1:]
    assert [(message.role, message.text) for message in told] == [
        ("user", "Weather in Oslo?"),
        ("assistant", 'I add.\n{"tool": "add", "arguments": {"a": 1, "b": 2}}'),
        ("user", "Result of add: 3"),
        ("assistant", '{"tool": "add", "arguments": {"a": 3, "b": 4}}'),
        ("user", "Result of add: 7\n\nGo on."),
        ("assistant", '{"answer": "Fine."}'),
        ("user", "And this?Please."),
    ]


# ── How replies are read ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (called("add", a=1, b=2), "add", '{"a": 1, "b": 2}'),
        ('```json\n{"tool": "add", "arguments": {}}\n```', "add", "{}"),
        ('Sure: {"tool": "add", "arguments": {"a": "ä"}}', "add", '{"a": "ä"}'),
        ('{"tool": "add"}', "add", ""),
        ('{"tool": "add", "arguments": null}', "add", "null"),
        ('{"tool": "add", "arguments": ""}', "add", '""'),
        ('{"tool": "add", "arguments": false}', "add", "false"),
        (
            '{"tool": "add", "arguments": {"a": {"b": 1, "b": 2}, "c": 3, "c": 4}}',
            "add",
            '{"a": {"b": 1, "b": 2}, "c": 3, "c": 4}',
        ),
        ('{"tool": "add", "arguments": {"a": "\\ud83d!"}}', "add", '{"a": "\ufffd!"}'),
        ('{"tool": "add", "arguments": [1]}', "add", "[1]"),
    ],
)
async def test_calls_are_read(text: str, name: str, arguments: str):
    message = await read(text)
    (call,) = message.tool_calls
    assert (call.name, call.arguments, message.content) == (name, arguments, None)
    assert call.id.startswith("call_")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (said("It rains."), "It rains."),
        ("It rains.", "It rains."),
        ('{"weather": "rain"}', '{"weather": "rain"}'),
        ('{"answer": 3}', "3"),
        ('{"answer": "\\ud83d!"}', "\ufffd!"),
        ('{"answer": {"a": "\\ud83d!"}}', '{"a": "\ufffd!"}'),
        ('{"tool": "add", "tool": "wipe"}', '{"tool": "add", "tool": "wipe"}'),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
async def test_answers_are_read_and_what_is_neither_is_an_answer(text: str, answer: str):
    message = await read(text)
    assert (message.text, message.tool_calls) == (answer, ())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "It rai', "It rai"),
        ('{"answer": "a \\"quo', 'a "quo'),
        ('{"answer": "back\\', "back"),
        ('{"answer": "caf\\u00e', "caf"),
        ('{"answer": "\\ud83d\\ude', ""),
        ('{"answer": "\\ud83d\\ude00', "😀"),
        ('{"ans', '{"ans'),
    ],
)
async def test_of_a_cut_answer_what_there_is_is_kept(text: str, answer: str):
    message = await read(text, finish_reason="length")
    assert message.text == answer


@pytest.mark.parametrize(
    "arguments", ["null", "[]", '""', "false", "0", '{"path": "/a", "path": "/"}', None]
)
async def test_arguments_that_are_no_object_never_run_a_tool_with_defaults(arguments: str | None):
    ran: list[str] = []

    def wipe(path: str = "/") -> None:
        """Wipes."""
        ran.append(path)

    text = '{"tool": "wipe"%s}' % ("" if arguments is None else f', "arguments": {arguments}')
    inner = ScriptedModel([text, said("sorry")])
    result = await run_agent(Agent("a", PromptedToolsModel(inner), tools=[wipe]), ASK)
    assert ran == []
    assert result.tool_calls[0]["is_error"]


async def test_a_cut_call_runs_nothing():
    ran: list[int] = []

    def note(number: int) -> None:
        """Notes a number."""
        ran.append(number)

    cut = reply('{"tool": "note", "arguments": {"number": 1', finish_reason="length")
    inner = ScriptedModel([cut, reply('{"tool": "note', finish_reason="length"), said("sorry")])
    result = await run_agent(Agent("a", PromptedToolsModel(inner), tools=[note]), ASK)
    assert ran == []
    assert result.tool_calls[0]["is_error"]
    assert "cut off by the token limit" in result.tool_calls[0]["result"]


def test_what_is_no_model_is_refused():
    with pytest.raises(ConfigError, match=r"PromptedToolsModel\.model is 'local/smollm2'"):
        PromptedToolsModel("local/smollm2")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="most_calls is 0"):
        PromptedToolsModel(ScriptedModel(["x"]), most_calls=0)


def test_it_goes_by_the_name_of_its_model():
    model = PromptedToolsModel(ScriptedModel(["x"], name="small"))
    assert model.name == "small"
    assert repr(model).startswith("PromptedToolsModel(")
