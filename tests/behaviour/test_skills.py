"""Skills, distillation and MCP servers, as the contract has them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.behaviour.kit import answers, ask, check_requests, drained, ended, watch
from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import in_turn, judging, loop_of, scoring
from tests.mcp.kit import in_process
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    ConfigError,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConfigWarning,
    LoopConvergedError,
    LoopOutcome,
    MCPError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_from_dict,
    event_to_dict,
    resume_agent,
    run_agent,
)
from untildone.domain.log import ModelCallReplied, RunEnded, SkillDistilled, ToolFinished
from untildone.skills import DistilledSkill, SkillRegistry, skill
from untildone.testing import EventLog, ScriptedModel, call, reply
from untildone.tools.mcp import StdioMCP

QUERY = "Find top 10 customers by revenue"


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with SkillRegistry.scoped():
        yield


def names() -> list[str]:
    return [each.name for each in SkillRegistry.list_all()]


def distilling(script: Any = ("answer 1", "answer 2", "answer 3"), **loop: Any) -> Agent:
    """An agent whose loop distils; judged by a verifier that passes, if by nothing else."""
    if not {"verifier", "convergence_fn"} & set(loop):
        loop["verifier"] = scoring(0.9)
    model = ScriptedModel(script)
    return Agent("sql_analyst", model, loop_config=loop_of(auto_extract_skill=True, **loop))


@skill
async def helper(task: str) -> str:
    """Helps."""
    return f"helped with {task}"


# ── Skills ───────────────────────────────────────────────────────────────────────────────────────


@requirement("skills.like-tools")
async def test_skills_are_offered_beside_the_tools_and_called_like_them():
    async def look(where: str) -> str:
        return f"nothing in the {where}"

    model = ScriptedModel(
        [reply(None, [call("helper", task="a"), call("look", where="box")]), "Done."]
    )
    agent = Agent("host", model, tools=[look], skills=[helper])
    seen = await watch(agent)
    assert seen.result is not None
    assert model.requests[0].tool_names == ["look", "helper"]
    assert answers(seen.result.messages) == ["helped with a", "nothing in the box"]
    assert seen.data(EventType.TOOL_CALL)[0]["tool"] == "helper"
    check_requests(model)


@requirement("skills.clash")
async def test_a_skill_and_a_tool_of_one_name_are_refused_before_anything_runs():
    async def named(task: str) -> str:
        return task

    named.__name__ = "helper"
    model = ScriptedModel(["never"])
    seen = await watch(Agent("host", model, tools=[named], skills=[helper]))
    assert isinstance(seen.error, ConfigError)
    assert "'helper'" in str(seen.error)
    assert (model.requests, seen.kinds) == ([], [EventType.ERROR])


@requirement("skills.registry")
def test_the_registry_is_one_for_the_process():
    SkillRegistry.register(helper)
    assert SkillRegistry.get("helper") is helper
    assert SkillRegistry.list_all() == [helper]
    SkillRegistry.clear()
    assert SkillRegistry.get("helper") is None


@requirement("skills.s1-page", "distil.event")
async def test_the_snippet_of_s1_distils_a_skill(capsys: pytest.CaptureFixture[str]):
    def run_sql(query: str) -> str:
        return "ACME, 5"

    judge = '{"score": 0.9, "issues": [], "suggestion": ""}'
    agent = Agent(
        name="sql_analyst",
        model=ScriptedModel([reply(None, call("run_sql", query="SELECT")), "ACME", judge]),
        tools=[run_sql],
        loop_config=LoopConfig(
            max_iterations=4,
            verifier=Verifier(),
            auto_extract_skill=True,
            skill_confidence_threshold=0.85,
        ),
    )
    queue: asyncio.Queue[Any] = asyncio.Queue()
    result = await run_agent(agent, [{"role": "user", "content": QUERY}], queue=queue)
    print([s.name for s in SkillRegistry.list_all()])
    name = f"sql_analyst_{hashlib.sha256(QUERY.encode()).hexdigest()[:8]}"
    assert capsys.readouterr().out == f"['{name}']\n"
    assert result.text == "ACME"
    (event,) = [each for each in ended(drained(queue)) if each.event is EventType.SKILL_EXTRACTED]
    assert event.data == {"skill_name": name, "score": 0.9}


# ── Distillation ─────────────────────────────────────────────────────────────────────────────────

NOT_CONVERGED = {
    "ceiling": {"verifier": scoring(0.79, 0.79), "max_iterations": 2},
    "plateau": {
        "verifier": scoring(*[0.79] * 5, threshold=0.8),
        "adaptive": True,
    },
    "stop_condition": {"verifier": scoring(1.0), "stop_condition": lambda result: True},
    "unsatisfied": {
        "verifier": scoring(0.79),
        "max_iterations": 1,
        "on_exhausted": LoopOutcome.FAIL_RUN,
    },
    "criterion_error": {"verifier": scoring(ZeroDivisionError("judge"))},
    "converged_error": {
        "convergence_fn": lambda result: (_ for _ in ()).throw(LoopConvergedError())
    },
}


@requirement("distil.converged-only")
@pytest.mark.parametrize("loop", list(NOT_CONVERGED.values()), ids=list(NOT_CONVERGED))
async def test_no_other_exit_is_distilled_however_low_the_threshold(loop: dict[str, Any]):
    agent = distilling(lambda seen: "answer", skill_confidence_threshold=0, **loop)
    seen = await watch(agent)
    assert names() == []
    assert seen.data(EventType.SKILL_EXTRACTED) == []


@requirement("distil.converged-only")
async def test_a_run_that_is_cancelled_or_fails_is_not_distilled():
    async def cancel_me(seen: Any) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    for script in ([cancel_me], [ZeroDivisionError("model")]):
        seen = await watch(distilling(script, skill_confidence_threshold=0))
        assert seen.error is not None
    assert names() == []


def confident(confidence: float) -> Any:
    def judge(result: AgentResult) -> bool:
        result.confidence = confidence
        return True

    return judge


@requirement("distil.quality")
@pytest.mark.parametrize(
    ("loop", "score"),
    [
        ({"verifier": scoring(0.85)}, 0.85),
        ({"verifier": scoring(0.84, threshold=0.5)}, None),
        ({"verifier": scoring(0.1, 0.95)}, 0.95),
        ({"convergence_fn": confident(0.9)}, 0.9),
        ({"convergence_fn": confident(0.8)}, None),
        ({"convergence_fn": lambda result: True}, None),
        ({"verifier": scoring(0.2), "convergence_fn": confident(1.0)}, None),
        ({"verifier": scoring(0.86), "criteria": [judging(True)]}, 0.86),
    ],
)
async def test_quality_is_the_score_else_the_confidence_and_must_reach_the_threshold(
    loop: dict[str, Any], score: float | None
):
    seen = await watch(distilling(**loop))
    assert seen.result is not None
    assert seen.result.exit_reason is ExitReason.CONVERGED
    extracted = seen.data(EventType.SKILL_EXTRACTED)
    assert [each["score"] for each in extracted] == ([] if score is None else [score])
    assert len(names()) == len(extracted)


@requirement("distil.name")
@pytest.mark.parametrize(
    ("tag", "start"), [("sql", "sql_"), ("a b/c", "a_b_c-"), ("x" * 200, "xxx"), ("分析", "skill-")]
)
async def test_the_name_is_the_tag_and_eight_hex_of_the_query(tag: str, start: str):
    await run_agent(distilling(task_tag=tag), ask(QUERY))
    (name,) = names()
    assert name.startswith(start)
    assert name.endswith("_" + hashlib.sha256(QUERY.encode()).hexdigest()[:8])
    assert len(name) <= 64


@requirement("distil.name")
async def test_the_query_is_the_callers_last_user_message_not_a_refine_prompt():
    await run_agent(
        distilling(verifier=scoring(0.1, 0.9)),
        [*ask("earlier"), {"role": "assistant", "content": "well?"}, *ask(QUERY)],
    )
    assert names() == [f"sql_analyst_{hashlib.sha256(QUERY.encode()).hexdigest()[:8]}"]


@requirement("distil.replaces")
async def test_the_same_task_distilled_again_replaces_the_skill():
    await run_agent(distilling(), ask(QUERY))
    (first,) = SkillRegistry.list_all()
    await run_agent(distilling(), ask(QUERY))
    (second,) = SkillRegistry.list_all()
    assert second is not first
    assert second.name == first.name


@requirement("distil.event", "events.order")
async def test_the_event_comes_after_the_loops_own_and_before_done():
    seen = await watch(distilling(verifier=scoring(0.1, 0.9)), ask(QUERY))
    assert seen.kinds[-3:] == [
        EventType.LOOP_ITERATION,
        EventType.SKILL_EXTRACTED,
        EventType.DONE,
    ]
    assert seen.kinds.count(EventType.SKILL_EXTRACTED) == 1


@requirement("distil.description")
async def test_the_description_carries_no_secrets_of_the_run():
    secret = "Mail bob@example.com, +1 (555) 123-4567, key sk-AbCdEfGh12345678, id 8675309"
    await run_agent(distilling(), ask(secret))
    (made,) = SkillRegistry.list_all()
    assert made.description == (
        "Does tasks of the kind 'sql_analyst', such as:"
        " Mail [email], [number], key [secret], id [number]"
    )
    assert "answer 1" not in made.description


@requirement("distil.description")
async def test_the_description_can_be_overridden():
    await run_agent(distilling(skill_description="Analyses sales."), ask(QUERY))
    assert [each.description for each in SkillRegistry.list_all()] == ["Analyses sales."]


@requirement("distil.no-silent-no-op")
def test_extracting_without_anything_that_grades_warns_and_says_what_is_missing():
    with pytest.warns(LoopConfigWarning, match=r"auto_extract_skill.*verifier=Verifier"):
        LoopConfig(auto_extract_skill=True)
    with pytest.warns(LoopConfigWarning, match="auto_extract_skill"):
        LoopConfig(auto_extract_skill=True, criteria=[judging(True)])
    LoopConfig(auto_extract_skill=True, verifier=scoring(1.0))
    LoopConfig(auto_extract_skill=True, convergence_fn=in_turn(True))


@requirement("distil.no-silent-no-op")
async def test_a_config_that_warned_stays_harmless():
    with pytest.warns(LoopConfigWarning):
        loop = LoopConfig(auto_extract_skill=True, max_iterations=2)
    result = await run_agent(Agent("a", ScriptedModel(["1", "2"]), loop_config=loop), ask())
    assert (result.text, result.exit_reason) == ("2", ExitReason.MAX_ITERATIONS)


@requirement("distil.no-silent-no-op")
async def test_a_run_that_converged_without_any_quality_says_why_it_made_no_skill(
    caplog: pytest.LogCaptureFixture,
):
    seen = await watch(distilling(convergence_fn=in_turn(True)))
    assert seen.result is not None
    assert seen.result.exit_reason is ExitReason.CONVERGED
    assert EventType.SKILL_EXTRACTED not in seen.kinds
    assert names() == []
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "no skill was made" in record.message
    assert "set a verifier, or set result.confidence" in record.message


@requirement("distil.no-silent-no-op")
async def test_a_quality_below_the_threshold_is_told_as_information(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("INFO", "untildone")
    await watch(distilling(verifier=scoring(0.82)))
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "its quality 0.82 is below skill_confidence_threshold 0.85" in record.message


@requirement("distil.never-costs")
async def test_a_distillation_that_fails_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def full(made: Any) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(SkillRegistry, "register", full)
    seen = await watch(distilling())
    assert seen.error is None
    assert seen.kinds[-1] is EventType.DONE
    assert EventType.SKILL_EXTRACTED not in seen.kinds
    assert "full" in caplog.text


@requirement("distil.once")
async def test_every_prefix_resumes_to_the_same_result_and_logged_distillation_is_not_repeated():
    script = ["answer 1", "answer 2"]
    log = EventLog()

    def agent(begun: int = 0) -> Agent:
        return distilling(script[begun:], verifier=scoring(0.1, 0.9))

    whole = await run_agent(agent(), ask(QUERY), log=log)
    (name,) = names()
    kinds = [type(event) for event in log]
    assert kinds[-2:] == [RunEnded, SkillDistilled]
    for length in range(1, len(log) + 1):
        prefix = [event_from_dict(event_to_dict(event)) for event in log[:length]]
        begun = sum(isinstance(event, ModelCallReplied) for event in prefix)
        after = EventLog()
        with SkillRegistry.scoped():
            resumed = await resume_agent(agent(begun), prefix, log=after)
            made = names()
        assert same(resumed) == same(whole)
        logged = any(isinstance(event, SkillDistilled) for event in prefix)
        assert made == ([] if logged else [name])
        assert sum(isinstance(event, SkillDistilled) for event in after) == (0 if logged else 1)


@requirement("distil.once", "replay.cost")
async def test_every_prefix_of_a_run_that_calls_a_skill_resumes_at_the_same_cost():
    script = [reply(None, call("sql_skill", "c1", task="next")), "Done."]

    def made() -> DistilledSkill:
        return DistilledSkill("sql_skill", "d", Agent("sql", ScriptedModel(["replayed"])))

    log = EventLog()
    whole = await run_agent(Agent("host", ScriptedModel(script), skills=[made()]), ask(), log=log)
    assert (whole.input_tokens, answers(whole.messages)) == (30, ["replayed"])
    for length in range(1, len(log) + 1):
        prefix = log[:length]
        kinds = [type(event).__name__ for event in prefix]
        agent = Agent(
            "host", ScriptedModel(script[kinds.count("ModelCallReplied") :]), skills=[made()]
        )
        resumed = await resume_agent(agent, prefix)
        assert resumed.text == whole.text
        cut = kinds.count("ToolStarted") > kinds.count("ToolFinished")
        if cut:  # nobody knows whether it took effect, so it is not called again
            assert "interrupted" in answers(resumed.messages)[0]
        else:
            assert same(resumed) == same(whole)


def same(result: AgentResult) -> dict[str, Any]:
    """What two results must have in common; ids differ from run to run."""
    fields = result.__getstate__() if hasattr(result, "__getstate__") else vars(result)
    calls = [{**each, "id": ""} for each in result.tool_calls]
    messages = [
        {key: value for key, value in each.items() if key in ("role", "content")}
        for each in result.messages
    ]
    return {**fields, "run_id": "", "tool_calls": calls, "messages": messages}


# ── Replay ───────────────────────────────────────────────────────────────────────────────────────


async def distilled(agent: Agent, query: str = QUERY) -> DistilledSkill:
    await run_agent(agent, ask(query))
    made = SkillRegistry.list_all()[-1]
    assert isinstance(made, DistilledSkill)
    return made


@requirement("replay.fresh-agent")
async def test_a_skill_runs_a_fresh_agent_with_the_settings_of_the_old_one():
    async def look(where: str) -> str:
        return where

    log: list[str] = []
    base = distilling(["answer", "again"])
    settings: dict[str, Any] = {
        "system_prompt": "Be exact.",
        "tools": (look,),
        "mcps": (in_process(log),),
        "skills": (helper,),
        "temperature": 0.1,
        "max_tokens": 50,
        "extra_params": {"top_p": 0.9},
        "hooks": AgentHooks(),
    }
    agent = Agent(base.name, base.model, loop_config=base.loop_config, **settings)
    made = await distilled(agent)
    assert made.agent is not agent
    assert made.agent.loop_config is None
    assert {name: getattr(made.agent, name) for name in settings} == settings
    assert await made.execute(task="Once more.") == "again"
    model = base.model
    assert isinstance(model, ScriptedModel)
    assert model.requests[-1].tool_names == ["look", "helper", "double", "fail"]
    assert model.requests[-1].request.temperature == 0.1
    assert log == ["opened", "listed", "closed"] * 2


@requirement("replay.any-task")
async def test_a_skill_does_the_task_it_is_given():
    made = await distilled(distilling(lambda seen: f"done: {seen.messages[-1]['content']}"))
    assert await made.execute(task="another") == "done: another"
    assert await made.execute(task="and another") == "done: and another"


@requirement("replay.never-itself")
async def test_a_skill_is_not_among_the_skills_of_its_own_agent():
    first = await distilled(distilling())
    base = distilling()
    again = Agent(base.name, base.model, skills=[first, helper], loop_config=base.loop_config)
    second = await distilled(again)
    assert second.name == first.name
    assert list(second.agent.skills) == [helper]


@requirement("replay.never-itself")
@pytest.mark.parametrize("length", [1, 2, 3, 5])
async def test_a_ring_of_skills_ends_with_an_error_result(length: int):
    """Each skill's agent calls the next skill, the last one the first."""
    told: list[str] = []
    ring: list[DistilledSkill] = []
    for index in range(length):
        after = f"s{(index + 1) % length}"

        def script(seen: Any, after: str = after) -> Any:
            last = seen.messages[-1]
            if last["role"] == "user":
                return reply(None, call(after, task="go on"))
            told.append(last["content"])
            return "over"

        ring.append(DistilledSkill(f"s{index}", "A link.", Agent("a", ScriptedModel(script))))
    for index, made in enumerate(ring):
        made.agent.__dict__["skills"] = (ring[(index + 1) % length],)
    assert await ring[0].execute(task="begin") == "over"
    refused = [text for text in told if text.startswith("Error: ")]
    assert len(refused) == 1
    assert "cannot call itself" in refused[0]
    assert len(told) == length


@requirement("replay.cost", "usage.sums")
async def test_what_a_skill_spends_counts_for_the_run_that_called_it():
    made = await distilled(distilling(["answer", "replayed"]))
    model = ScriptedModel([reply(None, [call(made.name, task="a")]), "Done."])
    result = await run_agent(Agent("host", model, skills=[made]), ask())
    assert (result.input_tokens, result.output_tokens, result.turns) == (30, 15, 2)


@requirement("replay.converged-inside")
async def test_a_loop_converged_error_leaving_a_skill_is_that_calls_success():
    inner = Agent(
        "inner",
        ScriptedModel(["FINAL ANSWER: 42"]),
        loop_config=LoopConfig(stop_condition=lambda result: "FINAL" in result.text),
    )

    @skill
    async def solve(task: str) -> str:
        return (await run_agent(inner, ask(task))).text

    model = ScriptedModel([reply(None, call("solve", task="6 x 7")), "It is 42."])
    result = await run_agent(Agent("host", model, skills=[solve]), ask())
    assert answers(result.messages) == ["FINAL ANSWER: 42"]
    assert [each["is_error"] for each in result.tool_calls] == [False]
    assert result.exit_reason is ExitReason.SATISFIED


@requirement("replay.hooks")
async def test_what_the_agent_was_denied_its_skill_is_denied_too():
    ran: list[str] = []

    async def wipe(path: str) -> str:
        ran.append(path)
        return "gone"

    async def deny(name: str, args: dict[str, Any]) -> str:
        return "never that"

    base = distilling(["answer", reply(None, call("wipe", path="/")), "as you say"])
    agent = Agent(
        base.name,
        base.model,
        tools=[wipe],
        hooks=AgentHooks(approve_tool=deny),
        loop_config=base.loop_config,
    )
    assert await (await distilled(agent)).execute(task="clean up") == "as you say"
    assert ran == []


# ── MCP servers ──────────────────────────────────────────────────────────────────────────────────


@requirement("mcp.like-tools")
async def test_the_tools_of_a_server_are_offered_and_called_like_functions():
    model = ScriptedModel([reply(None, call("double", number=21)), "42."])
    seen = await watch(Agent("ada", model, mcps=[in_process()]))
    assert model.requests[0].tool_names == ["double", "fail"]
    assert seen.data(EventType.TOOL_RESULT)[0]["result"] == "42"
    check_requests(model)


@requirement("mcp.once", "tools.discovered-once")
async def test_a_server_is_asked_for_its_tools_once_a_run():
    log: list[str] = []
    loop = LoopConfig(max_iterations=3, branches=3, verifier=scoring(0.1, 0.1, 0.1))
    model = ScriptedModel(lambda seen: f"answer {seen.index}")
    await run_agent(Agent("ada", model, mcps=[in_process(log)], loop_config=loop), ask())
    assert log == ["opened", "listed", "closed"]


@requirement("mcp.closed")
@pytest.mark.parametrize("line", ["Hi.", ZeroDivisionError("model")], ids=["done", "failed"])
async def test_a_server_is_closed_when_the_run_ends(line: Any):
    log: list[str] = []
    await watch(Agent("ada", ScriptedModel([line]), mcps=[in_process(log)]))
    assert log[-1] == "closed"


@requirement("mcp.closed", "cancel.leaves-nothing")
async def test_a_server_is_closed_when_the_run_is_cancelled():
    log: list[str] = []
    reached = asyncio.Event()

    async def forever(seen: Any) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("ada", ScriptedModel(forever), mcps=[in_process(log)])
    task = asyncio.create_task(run_agent(agent, ask()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log[-1] == "closed"
    assert asyncio.all_tasks() == {asyncio.current_task()}


@requirement("mcp.one-error")
async def test_a_call_that_a_server_fails_is_one_error_result():
    model = ScriptedModel([reply(None, [call("fail"), call("double", number=1)]), "Done."])
    result = await run_agent(Agent("ada", model, mcps=[in_process()]), ask())
    assert answers(result.messages) == ["Error: Error executing tool fail", "2"]
    assert [each["is_error"] for each in result.tool_calls] == [True, False]
    assert result.text == "Done."


@requirement("mcp.unreachable")
async def test_a_server_that_cannot_be_used_is_named_and_the_queue_ends():
    model = ScriptedModel(["never"])
    seen = await watch(Agent("ada", model, mcps=[StdioMCP("no-such-program", ["--fast"])]))
    assert isinstance(seen.error, MCPError)
    assert "'no-such-program --fast' cannot be used" in str(seen.error)
    assert (seen.kinds, model.requests) == ([EventType.ERROR], [])


@requirement("mcp.clash")
async def test_two_servers_with_a_tool_of_one_name_are_refused_and_a_prefix_helps():
    model = ScriptedModel(["Hi."])
    with pytest.raises(ConfigError, match=r"'double'.*prefix="):
        await run_agent(Agent("ada", model, mcps=[in_process(), in_process()]), ask())
    servers = [in_process(), in_process(prefix="other_")]
    await run_agent(Agent("ada", model, mcps=servers), ask())
    assert model.requests[0].tool_names == ["double", "fail", "other_double", "other_fail"]


# ── All of them ──────────────────────────────────────────────────────────────────────────────────

SCORES = st.lists(st.sampled_from([0.0, 0.3, 0.79, 0.8, 0.9, 1.0]), min_size=5, max_size=5)


async def outcome(agent: Agent) -> tuple[Any, list[Any], list[str]]:
    """How a run ended, its events, and its log."""
    log = EventLog()
    seen = await watch(agent, ask(QUERY), log=log)
    error = None if seen.error is None else f"{type(seen.error).__name__}: {seen.error}"
    result = None if seen.result is None else same(seen.result)
    events = [
        (each.event, {key: value for key, value in each.data.items() if key != "call_id"})
        for each in seen.events
        if each.event is not EventType.SKILL_EXTRACTED
    ]
    kinds = [type(each).__name__ for each in log if not isinstance(each, SkillDistilled)]
    return (result, error), events, kinds


@requirement("extras.change-nothing", "distil.changes-nothing")
@settings(max_examples=40, deadline=None)
@given(
    scores=SCORES,
    loop=st.fixed_dictionaries(
        {
            "max_iterations": st.integers(1, 5),
            "adaptive": st.booleans(),
            "branches": st.integers(1, 2),
            "fresh_context": st.booleans(),
            "evaluate_final": st.booleans(),
            "on_exhausted": st.sampled_from(list(LoopOutcome)),
        }
    ),
    threshold=st.sampled_from([0.0, 0.5, 0.85, 1.0]),
    on=st.lists(st.sampled_from(["skills", "mcps", "distil"]), min_size=1, unique=True),
)
def test_having_skills_servers_and_distillation_changes_nothing_else(
    scores: Sequence[float], loop: dict[str, Any], threshold: float, on: list[str]
):
    def script(seen: Any) -> Any:
        last = seen.messages[-1]
        if seen.index % 3 == 0 and last["role"] == "user":
            return reply(None, call("look", where="box"))
        return f"answer to {len(seen.messages)} messages"

    async def look(where: str) -> str:
        return f"nothing in the {where}"

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback(scores[result.loop_iterations - 1], issues=["more"])

    def agent(extras: Sequence[str]) -> Agent:
        verifier = Verifier(VerifierConfig(evaluate_fn=grade))
        more: dict[str, Any] = {}
        if "distil" in extras:
            more = {"auto_extract_skill": True, "skill_confidence_threshold": threshold}
        return Agent(
            "ada",
            ScriptedModel(script),
            tools=[look],
            skills=[helper] if "skills" in extras else [],
            mcps=[in_process()] if "mcps" in extras else [],
            loop_config=LoopConfig(verifier=verifier, **loop, **more),
        )

    async def both() -> None:
        assert await outcome(agent(on)) == await outcome(agent([]))

    with SkillRegistry.scoped():
        asyncio.run(both())


@requirement("extras.change-nothing")
async def test_a_tool_that_was_finished_is_not_run_again_by_a_resume_with_a_server():
    script = [reply(None, call("double", "c1", number=2)), "Four."]
    log = EventLog()
    whole = await run_agent(
        Agent("ada", ScriptedModel(list(script)), mcps=[in_process()]), ask(), log=log
    )
    for length in range(1, len(log) + 1):
        prefix = log[:length]
        begun = sum(isinstance(event, ModelCallReplied) for event in prefix)
        after = EventLog()
        agent = Agent("ada", ScriptedModel(script[begun:]), mcps=[in_process()])
        resumed = await resume_agent(agent, prefix, log=after)
        assert resumed.text == whole.text
        finished = sum(isinstance(event, ToolFinished) for event in [*prefix, *after])
        assert finished == 1
