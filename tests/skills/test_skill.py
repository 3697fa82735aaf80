"""What a person writes: classes derived from Skill, functions under @skill."""

import asyncio
import json
import sys
import threading
from typing import Any

import pytest

from tests.behaviour.kit import answers, ask, check_requests
from tests.skills.kit import inline
from untildone import (
    Agent,
    ConfigError,
    LoopConfig,
    LoopConvergedError,
    SkillError,
    ToolError,
    image,
    run_agent,
    tool,
)
from untildone.domain.tools import output_text
from untildone.skills import FunctionSkill, Skill, SkillRegistry, skill
from untildone.testing import ScriptedModel, call, reply


class Greeter(Skill):
    name = "greet"
    description = "Greets somebody."
    parameters = {  # noqa: RUF012  as a user writes it
        "type": "object",
        "properties": {"who": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["who"],
        "additionalProperties": False,
    }

    async def execute(self, **kwargs: Any) -> str:
        return ", ".join([f"Hello {kwargs['who']}"] * kwargs.get("times", 1))


# ── Derived from Skill ───────────────────────────────────────────────────────────────────────────


async def test_a_skill_is_called_like_a_tool():
    model = ScriptedModel([reply(None, call("greet", who="Ada", times=2)), "Greeted."])
    result = await run_agent(Agent("host", model, skills=[Greeter()]), ask())
    assert answers(result.messages) == ["Hello Ada, Hello Ada"]
    assert model.requests[0].tool_names == ["greet"]
    check_requests(model)


async def test_a_skill_can_be_executed_without_an_agent():
    assert await Greeter().execute(who="Bob") == "Hello Bob"


async def test_its_tool_definition_is_an_entry_of_tool_defs_and_of_tools():
    definition = Greeter().to_tool_def()
    assert definition.spec.to_dict() == {
        "type": "function",
        "function": {
            "name": "greet",
            "description": "Greets somebody.",
            "parameters": Greeter.parameters,
        },
    }
    for entry in (definition, Greeter()):
        model = ScriptedModel([reply(None, call("greet", who="Ada")), "Done."])
        result = await run_agent(Agent("host", model), ask(), tool_defs=[entry])
        assert answers(result.messages) == ["Hello Ada"]


async def test_given_tool_defs_replace_the_skills_too():
    model = ScriptedModel(["Nothing to call."])
    await run_agent(Agent("host", model, skills=[Greeter()]), ask(), tool_defs=[])
    assert model.requests[0].tool_names == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"who": 5}', "`who`: 5 is not of type 'string'"),
        ('{"times": 2}', "'who' is a required property"),
        ('{"who": "Ada", "what": 1}', "'what' was unexpected"),
        ('{"who": "Ada", "who": "Bob"}', "the key `who` is there twice"),
        ('{"who": "Ada", "times": NaN}', "NaN"),
        ("[]", "must be a JSON object, not an array"),
        ('{"who": "A', "not valid JSON"),
        ("", "There are no arguments"),
    ],
)
def test_arguments_that_do_not_fit_run_nothing_and_say_what_would(arguments: str, told: str):
    with pytest.raises(ToolError) as caught:
        Greeter().parse(arguments)
    assert told.lower() in str(caught.value).lower()
    assert 'Expected: {"who": string, "times"?: integer}' in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [("{}", "`who` is missing"), ('{"who": "Ada", "what": 1}', "`what` is unknown")],
)
def test_without_the_schema_library_names_are_checked(
    monkeypatch: pytest.MonkeyPatch, arguments: str, told: str
):
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    with pytest.raises(ToolError, match=told):
        Greeter().parse(arguments)
    assert Greeter().parse('{"who": 5}') == {"who": 5}


def test_a_schema_that_cannot_be_applied_refuses_nothing():
    class Odd(Greeter):
        def __init__(self) -> None:
            self.parameters = {"properties": {"who": {"$ref": "http://127.0.0.1:9/x"}}}

    assert Odd().parse('{"who": 5}') == {"who": 5}


def test_a_skill_without_parameters_takes_none():
    class Ping(Skill):
        name = "ping"

        async def execute(self, **kwargs: Any) -> str:
            return "pong"

    assert Ping().parse("") == {}
    assert Ping().spec.parameters == {"type": "object", "properties": {}}


def test_a_skill_without_a_name_is_refused_and_told_where_to_set_it():
    class Nameless(Skill):
        async def execute(self, **kwargs: Any) -> str:
            return ""

    with pytest.raises(ConfigError, match=r"name = '\.\.\.'"):
        SkillRegistry.register(Nameless())


def test_a_skill_without_execute_cannot_be_made():
    class Lazy(Skill):
        name = "lazy"

    with pytest.raises(TypeError, match="execute"):
        Lazy()  # pyright: ignore[reportAbstractUsage]


async def test_a_result_that_is_too_long_is_cut_for_the_model_like_a_tools():
    class Long(Skill):
        name = "long"

        async def execute(self, **kwargs: Any) -> str:
            return "x" * 60_000

    assert len(await Long().execute()) == 60_000
    text = output_text(await Long().to_tool_def().run({}, inline))
    assert len(text) == 50_000
    assert "characters left out" in text


async def test_what_a_skill_raises_is_that_calls_error_and_the_run_goes_on():
    class Broken(Skill):
        name = "broken"

        async def execute(self, **kwargs: Any) -> str:
            raise ZeroDivisionError("by zero")

    model = ScriptedModel([reply(None, call("broken")), "I see."])
    result = await run_agent(Agent("host", model, skills=[Broken()]), ask())
    assert answers(result.messages) == ["Error: ZeroDivisionError: by zero"]
    assert result.text == "I see."


# ── @skill ───────────────────────────────────────────────────────────────────────────────────────


@skill
async def shout(text: str, times: int = 1) -> str:
    """Says it loudly.

    Args:
        text: What to say.
        times: How often.
    """
    return text.upper() * times


@skill(name="whisper", description="Says it softly.")
def quietly(text: str) -> str:
    return text.lower()


async def test_a_function_becomes_a_skill_with_its_name_docstring_and_schema():
    assert isinstance(shout, FunctionSkill)
    assert (shout.name, shout.description) == ("shout", "Says it loudly.")
    assert shout.parameters["properties"]["text"]["description"] == "What to say."
    assert shout.parameters["required"] == ["text"]
    assert await shout.execute(text="hi", times=2) == "HIHI"
    assert (quietly.name, quietly.description) == ("whisper", "Says it softly.")


async def test_a_skill_can_still_be_called_like_its_function():
    assert await shout("hi") == "HI"
    assert quietly("HI") == "hi"


async def test_a_sync_function_runs_in_a_thread_of_the_run():
    threads: list[str] = []

    @skill
    def where() -> str:
        threads.append(threading.current_thread().name)
        return "here"

    model = ScriptedModel([reply(None, call("where")), "Done."])
    await run_agent(Agent("host", model, skills=[where]), ask())
    await where.execute()
    assert threads[0].startswith("untildone-tool")
    assert threading.current_thread().name not in threads


async def test_values_arrive_as_the_hints_say_and_results_leave_as_text():
    @skill
    async def count(words: list[str]) -> dict[str, int]:
        return {"words": len(words)}

    model = ScriptedModel([reply(None, call("count", words=["a", "b"])), "Done."])
    result = await run_agent(Agent("host", model, skills=[count]), ask())
    assert answers(result.messages) == ['{"words":2}']
    assert json.loads(await count.execute(words=["a"])) == {"words": 1}


async def test_a_model_reads_a_cut_result_and_python_all_of_it():
    @skill
    @tool(max_result_chars=300)
    async def book() -> str:
        return "x" * 1000

    assert len(await book.execute()) == 1000
    assert len(output_text(await book.to_tool_def().run({}, inline))) <= 300


async def test_a_run_that_converges_early_inside_a_skill_is_the_skills_success():
    inner = Agent(
        "inner",
        ScriptedModel(["FINAL: 42"], then="repeat"),
        loop_config=LoopConfig(stop_condition=lambda r: "FINAL" in r.text),
    )

    @skill
    async def solve(task: str) -> str:
        return (await run_agent(inner, ask(task))).text

    assert await solve.execute(task="6 x 7") == "FINAL: 42"

    @skill
    async def bare() -> str:
        raise LoopConvergedError(message="enough")

    assert await bare.execute() == "enough"


@pytest.mark.parametrize("given", [5, "shout", None, Greeter, Greeter(), shout])
def test_what_is_no_function_is_refused(given: Any):
    with pytest.raises(ConfigError):
        FunctionSkill(given)


@pytest.mark.parametrize("name", ["", "two words", "x" * 65])
def test_a_name_that_no_model_could_use_is_refused(name: str):
    with pytest.raises(ConfigError, match="name"):
        skill(name=name)(inline)


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_skill_and_a_tool_of_one_name_are_refused_by_name_before_anything_runs():
    async def greet(who: str) -> str:
        return who

    model = ScriptedModel(["never"])
    with pytest.raises(ConfigError, match="'greet'"):
        await run_agent(Agent("host", model, tools=[greet], skills=[Greeter()]), ask())
    assert model.requests == []


async def test_what_is_no_skill_is_refused_before_anything_runs():
    model = ScriptedModel(["never"])
    for wrong in (Greeter, 5, {"name": "x"}):
        with pytest.raises(ConfigError):
            await run_agent(Agent("host", model, skills=[wrong]), ask())
    assert model.requests == []


# ── None calls itself ────────────────────────────────────────────────────────────────────────────


async def test_a_skill_that_calls_itself_ends_with_an_error_that_shows_the_way():
    class Again(Skill):
        name = "again"

        def __init__(self) -> None:
            self.agent = Agent(
                "inner",
                ScriptedModel(lambda seen: reply(None, call("again"))),
                skills=[self],
                max_turns=2,
            )
            self.seen: list[str] = []

        async def execute(self, **kwargs: Any) -> str:
            result = await run_agent(self.agent, ask())
            self.seen += answers(result.messages)
            return "over"

    again = Again()
    model = ScriptedModel([reply(None, call("again")), "Done."])
    result = await run_agent(Agent("host", model, skills=[again]), ask())
    assert answers(result.messages) == ["over"]
    assert len(again.seen) == 2
    assert all("'again' is already at work" in text for text in again.seen)
    assert all("again → again" in text for text in again.seen)


async def test_a_function_skill_cannot_reach_itself_by_way_of_another():
    @skill
    async def ping() -> str:
        return await pong.execute()

    @skill
    async def pong() -> str:
        return await ping.execute()

    with pytest.raises(SkillError, match="ping → pong → ping"):
        await ping.execute()


async def test_a_run_that_converges_early_is_the_success_of_a_class_too():
    class Early(Skill):
        name = "early"

        async def execute(self, **kwargs: Any) -> str:
            raise LoopConvergedError(message="enough")

    class Later(Early):
        name = "later"

        async def execute(self, **kwargs: Any) -> str:
            return f"{await super().execute()}!"

    assert await Early().execute() == "enough"
    assert await Later().execute() == "enough!"


async def test_a_lambda_is_a_skill_by_the_name_it_is_given():
    for made in (
        FunctionSkill(lambda: "x", name="s", description="d"),
        skill(name="s")(lambda: "x"),
    ):
        assert made.name == made.spec.name == "s"
        assert await made.execute() == "x"
    with pytest.raises(ConfigError, match="name"):
        FunctionSkill(lambda: "x")


async def test_another_skill_of_the_same_name_may_run_inside_it():
    @skill(name="search")
    async def inner() -> str:
        return "found"

    model = ScriptedModel([reply(None, call("search")), "Done."])
    agent = Agent("inner", model, skills=[inner])

    @skill(name="search")
    async def outer() -> str:
        return answers((await run_agent(agent, ask())).messages)[0]

    assert await outer.execute() == "found"


async def test_ever_new_skills_of_one_function_do_not_go_on_without_end():
    depth: list[int] = []

    async def down() -> str:
        depth.append(1)
        return await skill(down).execute()

    with pytest.raises(SkillError, match="inside 16 others, the outermost of which is 'down'"):
        await skill(down).execute()
    assert len(depth) == 16


async def test_a_skill_at_work_in_one_task_is_free_in_another():
    started, go_on = asyncio.Event(), asyncio.Event()

    @skill
    async def wait() -> str:
        started.set()
        await go_on.wait()
        return "done"

    first = asyncio.create_task(wait.execute())
    await started.wait()
    go_on.set()
    assert await wait.execute() == "done"
    assert await first == "done"


async def test_a_skill_that_failed_can_be_called_again():
    outcomes = [ZeroDivisionError("once"), "fine"]

    @skill
    async def shaky() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ZeroDivisionError):
        await shaky.execute()
    assert await shaky.execute() == "fine"


async def test_a_skill_may_give_an_image_and_tells_of_it_in_words_without_an_agent():
    @skill
    def draw() -> Any:
        """Draws."""
        return image(b"\x89PNG\r\n\x1a\n" + bytes(92))

    model = ScriptedModel([reply(None, call("draw")), "Drawn."])
    result = await run_agent(Agent("host", model, skills=[draw]), ask())
    assert result.text == "Drawn."
    shown = model.requests[1].messages[-1]
    assert [part["type"] for part in shown["content"]] == ["text", "image_url"]
    told = await draw.execute()
    assert told.startswith("[attachment 1: image/png, 100 bytes")
    assert shown["content"][0]["text"] == told
