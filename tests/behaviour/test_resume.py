"""A run resumed from any prefix of its log gives what the undisturbed run gave.

What must hold, exactly, for every prefix (after a trip through JSON):

* The outcome is the same: every field of the result, or the type and the result of the exception.
* No finished call is repeated: no model call with a reply, no tool with a recorded result.
* The prefix and the new events make the undisturbed log, with one exception: a call that was
  started but not finished when the prefix ends is started again, so its second start is there too.
* A tool that may not run twice is the other exception: such a call is answered with an error that
  says so instead of being run, and what the model does with that is its own affair.
* A failure of the model is the end of the run only once the log says so; before that, a resume asks
  the model again.
* An exception object does not outlive its process. Once a log holds a judge's failure under
  ``FAIL_RUN``, what a candidate failed with, or the end of a failed run, a resume raises ours with
  the same text and result.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.behaviour.kit import check_conversation
from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import in_turn, judging, said, scoring
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    CriterionFailedError,
    CriterionVerdict,
    FallbackChain,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    RateLimitError,
    ResumeError,
    RetryPolicy,
    RunError,
    ServerError,
    StuckPolicy,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_from_dict,
    event_to_dict,
    image,
    partial_result,
    resume_agent,
    run_agent,
    tool,
)
from untildone.domain.log import (
    CandidateDropped,
    IterationEnded,
    LogEvent,
    ModelCallFailed,
    ModelCallReplied,
    ModelCallStarted,
    RunEnded,
    ToolFinished,
    ToolStarted,
)
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import ModelReply
from untildone.testing import EventLog, FakeClock

ASK = [said("user", "earlier"), said("assistant", "well?"), said("user", "question")]

Script = Mapping[str, Sequence[Any]]
"""What a model replies for each purpose, in order: texts, replies, exceptions."""


class Actor:
    """A model with a script for each purpose, which can begin in the middle.

    Every reply costs another number of tokens, so that a lost or a doubled one shows in the sum.
    """

    def __init__(self, script: Script, begun: Mapping[str, int] | None = None) -> None:
        self._script = script
        self._begun = Counter(begun or {})
        self.calls: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return "actor"

    async def generate(self, request: Any, on_delta: Any = None) -> ModelReply:
        purpose = request.purpose
        index = self._begun[purpose] + self.calls[purpose]
        self.calls[purpose] += 1
        await asyncio.sleep(0)
        line = self._script[purpose][index]
        if isinstance(line, BaseException):
            raise line
        text, calls, finish_reason = line if isinstance(line, tuple) else (line, (), None)
        return ModelReply(
            message=Message("assistant", text, tuple(calls)),
            finish_reason=finish_reason or ("tool_calls" if calls else "stop"),
            usage=Usage(input_tokens=100 + index, output_tokens=10 + index, cached_tokens=index),
            model=f"actor-{purpose}",
        )


class Workshop:
    """Tools that note each run of theirs; some take longer, so that results come out of order."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

        @tool(idempotent=True)
        async def look(key: str) -> str:
            """Looks something up."""
            self.ran["look"] += 1
            for _ in range(3 if key.startswith("slow") else 1):
                await asyncio.sleep(0)
            return f"value of {key}"

        @tool(idempotent=True)
        async def fail(key: str) -> str:
            """Fails."""
            self.ran["fail"] += 1
            raise OSError(f"no {key}")

        @tool(idempotent=True)
        async def draw(key: str) -> list[Any]:
            """Draws a picture."""
            self.ran["draw"] += 1
            await asyncio.sleep(0)
            return [f"picture of {key}", image(b"GIF89a" + key.encode())]

        @tool
        async def post(text: str) -> str:
            """Has an effect that must not happen twice."""
            self.ran["post"] += 1
            await asyncio.sleep(0)
            return f"posted {text}"

        self.tools = [look, fail, draw, post]


def calls(text: str | None, *wanted: tuple[str, dict[str, Any]], finish: str | None = None) -> Any:
    """A script line that asks for tools; the n-th call of a reply has the id ``cn``."""
    return (
        text,
        [ToolCall(f"c{n}", name, json.dumps(args)) for n, (name, args) in enumerate(wanted)],
        finish,
    )


def look(key: str) -> tuple[str, dict[str, Any]]:
    return "look", {"key": key}


def post(text: str) -> tuple[str, dict[str, Any]]:
    return "post", {"text": text}


@dataclass(frozen=True)
class Case:
    """A scripted run."""

    script: Script
    settings: Callable[[], dict[str, Any]] = field(default=dict)

    def agent(self, model: Any, tools: Sequence[Any]) -> Agent:
        settings = self.settings()
        chain = settings.pop("falls_back", False)
        return Agent(
            "tester",
            model,
            tools=tools,
            fallback_chain=FallbackChain([model]) if chain else None,
            **settings,
        )


def looped(
    script: Sequence[Any], judge: Sequence[str] = (), repair: Sequence[str] = (), **loop: Any
):
    """A case with a refine loop."""

    def settings() -> dict[str, Any]:
        return {"loop_config": LoopConfig(**loop), "system_prompt": "Be brief."}

    return Case({"worker": script, "judge": judge, "repair": repair}, settings)


def plain(script: Sequence[Any], **settings: Any) -> Case:
    """A case without one."""
    return Case({"worker": script}, lambda: dict(settings))


def verdict(score: float, *issues: str) -> str:
    return json.dumps({"issues": issues, "suggestion": "", "score": score})


def drafts(count: int) -> list[str]:
    return [f"draft {n}" for n in range(1, count + 1)]


class Person(BaseModel):
    name: str
    age: int


def confident(_query: str, result: AgentResult) -> VerifierFeedback:
    result.confidence = 0.25 * result.loop_iterations
    return VerifierFeedback(0.3, ["thin"], "thicken it", converged=result.loop_iterations == 3)


NO = CriterionVerdict(satisfied=False)
FAIL = LoopOutcome.FAIL_RUN
REPEATS = [calls(f"try {n}", look("same")) for n in range(9)]
PARALLEL = calls("all at once", look("slow a"), look("b"), ("fail", {"key": "c"}), look("d"))
DOUBTFUL = calls(None, ("nobody", {}), ("look", {"wrong": 1}), look("e"))
BUSY = RateLimitError("429", status=429, usage=Usage())
CUT = ServerError("cut off", status=502)  # nobody says what it cost

CASES: dict[str, Case] = {
    "an answer": plain(["  verbatim \n"]),
    "an empty answer": plain([""]),
    "a cut answer": plain([("half", (), "length")]),
    "tools": plain([calls("one", look("a")), calls(None, look("b")), "done"]),
    "parallel tools, errors, unknown tools": plain([PARALLEL, DOUBTFUL, "done"]),
    "pictures": plain([calls(None, ("draw", {"key": "a"}), look("b")), DOUBTFUL, "done"]),
    "calls with one id": plain(
        [
            (
                None,
                [ToolCall("", "look", '{"key": "a"}'), ToolCall("", "look", '{"key": "b"}')],
                None,
            ),
            "x",
        ]
    ),
    "the cap": plain([calls("one", look("a")), calls("two", look("b")), "never"], max_turns=2),
    "the cap, raised": plain(
        [calls("one", look("a")), calls("two", look("b")), "never"],
        max_turns=2,
        on_max_turns="raise",
    ),
    "stuck after a nudge": plain(REPEATS, max_turns=20),
    "stuck at once": plain(REPEATS, max_turns=20, stuck=StuckPolicy(action="stop")),
    "a nudge that helps": plain([*REPEATS[:5], calls("new", look("other")), "done"]),
    "retries": plain(
        [BUSY, calls("one", look("a")), CUT, BUSY, "done"], retry_policy=RetryPolicy(jitter=0)
    ),
    "a fallback": plain([CUT, "from the second", BUSY], falls_back=True),
    "a structured reply, repaired": plain(
        ["Ann is 7.", '{"name": "Ann", "age": 7}'], response_model=Person
    ),
    "the model fails": plain([calls("one", look("a")), ServerError("down", status=500)]),
    "converged": looped(drafts(3), convergence_fn=in_turn(False, False, True)),
    "nothing set": looped(drafts(3), max_iterations=3),
    "one iteration": looped(drafts(1), max_iterations=1),
    "plateau": looped(
        drafts(9), verifier=scoring(0.5, 0.52, 0.52, 0.3, 0.3), adaptive=True, max_iterations=9
    ),
    "best at the ceiling": looped(drafts(3), verifier=scoring(0.2, 0.7, 0.4), max_iterations=3),
    "a tie at the ceiling": looped(drafts(3), verifier=scoring(0.7, 0.7, 0.4), max_iterations=3),
    "confidence": looped(drafts(3), verifier=Verifier(VerifierConfig(evaluate_fn=confident))),
    "a judge": looped(drafts(2), [verdict(0.2, "thin"), verdict(0.9)], verifier=Verifier()),
    "a judge with confirmations": looped(
        drafts(3),
        [verdict(s, "thin") for s in (0.9, 0.9, 0.1, 0.3, 0.9, 0.85, 0.9)],
        verifier=Verifier(VerifierConfig(confirmations=2)),
    ),
    "a judge that needs a repair": looped(
        drafts(2), ["fine!", "fine!"], [verdict(0.2), verdict(0.9)], verifier=Verifier()
    ),
    "a judge that cannot be read": looped(
        drafts(2), ["fine!"], ["still fine!"], verifier=Verifier()
    ),
    "a judge among the criteria": looped(
        drafts(3),
        [verdict(0.1, "thin"), verdict(0.9), verdict(0.9)],
        criteria=[judging(NO, True, True), Verifier(VerifierConfig(confirmations=1))],
        evaluate_final=True,
        max_iterations=3,
    ),
    "verifier, convergence_fn and criteria": looped(
        drafts(4),
        verifier=scoring(0.2, 0.9, 0.3, 0.4),
        convergence_fn=in_turn(False, False, True, True),
        criteria=[judging(True, (False, "no"), NO, True), judging(True, True, True, True)],
    ),
    "criteria with words and messages": looped(
        drafts(4),
        criteria=[
            judging(
                (False, "shorter"),
                CriterionVerdict(satisfied=False, messages=[said("user", "a"), said("user", "b")]),
                False,
                True,
            )
        ],
    ),
    "fresh context": looped(
        drafts(5),
        criteria=[judging(False, (False, "one"), False, (False, "two"), True)],
        fresh_context=True,
        max_iterations=6,
    ),
    "fresh context without a prompt": looped(
        drafts(3), criteria=[judging(False, False, True)], fresh_context=True, refine_prompt=""
    ),
    "unsatisfied": looped(
        drafts(2), criteria=[judging(False, False)], max_iterations=2, on_exhausted=FAIL
    ),
    "unsatisfied by plateau": looped(
        drafts(3), verifier=scoring(0.5, 0.5, 0.4), adaptive=True, on_exhausted=FAIL
    ),
    "satisfied at the last moment": looped(
        drafts(2), criteria=[judging(False, True)], max_iterations=2, on_exhausted=FAIL
    ),
    "the criteria are not asked at the ceiling": looped(
        drafts(2), criteria=[judging(False)], max_iterations=2
    ),
    "a stop condition": looped(
        drafts(2), stop_condition=in_turn(False, True), verifier=scoring(0.4)
    ),
    "an early exit": looped(
        drafts(2),
        verifier=scoring(0.4, 0.9),
        criteria=[judging(False, LoopConvergedError)],
        convergence_fn=lambda r: True,
    ),
    "a raising criterion": looped(drafts(2), criteria=[judging(False, OSError("down"))]),
    "a raising convergence_fn": looped(
        drafts(2), verifier=scoring(0.4, 0.3), convergence_fn=in_turn(False, OSError("down"))
    ),
    "a raising stop condition": looped(drafts(1), stop_condition=in_turn(OSError("down"))),
    "a raising verifier": looped(drafts(2), verifier=scoring(0.4, OSError("down"))),
    "a raising criterion fails the run": looped(
        drafts(2), criteria=[judging(False, OSError("down"))], on_criterion_error=FAIL
    ),
    "the model fails in a later iteration": looped(
        ["draft 1", "draft 2", ServerError("down", status=500)], verifier=scoring(0.7, 0.2)
    ),
    "inner exits in a loop": Case(
        {
            "worker": [
                calls("a", look("a")),
                calls("b", look("b")),
                PARALLEL,
                "draft 2",
                *REPEATS,
                "4",
            ]
        },
        lambda: {
            "max_turns": 2,
            "stuck": StuckPolicy(no_novelty_nudge=1, no_novelty_stop=1),
            "loop_config": LoopConfig(max_iterations=4, verifier=scoring(0.1, 0.4, 0.4, 0.2)),
        },
    ),
    "the cap of a loop, raised": Case(
        {"worker": ["draft 1", calls("a", look("a")), calls("b", look("b"))]},
        lambda: {
            "max_turns": 2,
            "on_max_turns": "raise",
            "loop_config": LoopConfig(verifier=scoring(0.1, 0.4)),
        },
    ),
    "a denied call, a seed and all else": Case(
        {"worker": [PARALLEL, "draft 1", CUT, calls(None, look("z")), BUSY, "draft 2"]},
        lambda: {
            "extra_params": {"seed": 3},
            "temperature": 0.7,
            "retry_policy": RetryPolicy(jitter=0),
            "hooks": AgentHooks(approve_tool=_not_b),
            "loop_config": LoopConfig(
                criteria=[judging((False, "more"), True)], fresh_context=True
            ),
        },
    ),
}


async def _not_b(_tool: str, args: dict[str, Any]) -> bool | str:
    return "b is secret" if args.get("key") == "b" else True


# --- One run, and a resumed one -------------------------------------------------------------------


@dataclass
class Ran:
    """What a run gave, and what it did for that."""

    result: dict[str, Any]
    error: Exception | None
    log: list[LogEvent]
    model_calls: Counter[str]
    tools_ran: Counter[str]


def as_data(result: AgentResult | None) -> dict[str, Any]:
    assert result is not None
    return {each.name: getattr(result, each.name) for each in fields(result)}


async def undisturbed(case: Case) -> Ran:
    log = EventLog()
    model, shop = Actor(case.script), Workshop()
    agent = case.agent(model, shop.tools)
    return await _ran(
        run_agent(agent, ASK, log=log, agent_id="me", clock=FakeClock()), log.events, model, shop
    )


async def resumed(case: Case, prefix: Sequence[LogEvent]) -> Ran:
    log = EventLog()
    model, shop = Actor(case.script, finished_calls(prefix)), Workshop()
    agent = case.agent(model, shop.tools)
    return await _ran(
        resume_agent(agent, prefix, log=log, clock=FakeClock()), log.events, model, shop
    )


async def _ran(work: Any, log: list[LogEvent], model: Actor, shop: Workshop) -> Ran:
    error: Exception | None = None
    try:
        result = await work
    except Exception as raised:
        error, result = raised, partial_result(raised)
    return Ran(as_data(result), error, log, model.calls, shop.ran)


def through_json(events: Sequence[LogEvent]) -> list[LogEvent]:
    return [event_from_dict(json.loads(json.dumps(event_to_dict(event)))) for event in events]


def finished_calls(log: Sequence[LogEvent]) -> Counter[str]:
    """How many model calls of each purpose are over, in a log."""
    return Counter(
        event.purpose for event in log if isinstance(event, ModelCallReplied | ModelCallFailed)
    )


def unfinished_tools(log: Sequence[LogEvent]) -> list[ToolStarted]:
    """Tool calls that were started and not answered, in a log."""
    answered = [(event.at, event.index) for event in log if isinstance(event, ToolFinished)]
    return [
        event
        for event in log
        if isinstance(event, ToolStarted) and (event.at, event.index) not in answered
    ]


def unfinished_model_calls(log: Sequence[LogEvent]) -> list[ModelCallStarted]:
    """The model call that was started and not ended, if a log ends in one."""
    last = log[-1]
    return [last] if isinstance(last, ModelCallStarted) else []


def without_second_starts(prefix: Sequence[LogEvent], after: Sequence[LogEvent]) -> list[LogEvent]:
    """The new events, without the second start of what was unfinished: one of each."""
    left = list(after)
    for event in (*unfinished_model_calls(prefix), *unfinished_tools(prefix)):
        assert event in left, f"not started again: {event}"
        left.remove(event)
    return left


def tools_to_run(whole: Sequence[LogEvent], prefix: Sequence[LogEvent]) -> Counter[str]:
    """Which tools are still to be run after a prefix, by the log of the whole run."""
    answered = [(event.at, event.index) for event in prefix if isinstance(event, ToolFinished)]
    return Counter(
        event.tool
        for event in whole
        if isinstance(event, ToolStarted) and (event.at, event.index) not in answered
    )


def same_error(
    before: Exception | None, after: Exception | None, prefix: Sequence[LogEvent]
) -> bool:
    """Whether a resumed run raised what the undisturbed one did, or what stands for it."""
    if type(before) is type(after) and str(before) == str(after):
        return True
    failed = any(isinstance(event, IterationEnded) and event.fails_run for event in prefix)
    ended = isinstance(prefix[-1], RunEnded)
    text = f"{type(before).__name__}: {before}"
    if isinstance(after, CriterionFailedError):
        return failed and str(after) == text
    return type(after) is RunError and ended and text in str(after)


async def check_prefix(case: Case, whole: Ran, length: int) -> None:
    if isinstance(whole.log[length - 1], ModelCallFailed) and length == len(whole.log) - 1:
        return  # the model is asked again: see test_a_model_that_failed_is_asked_again_…
    prefix = through_json(whole.log[:length])
    assert prefix == whole.log[:length], "a trip through JSON changed the log"
    again = await resumed(case, prefix)
    where = f"after {length} of {len(whole.log)} events, the last one {prefix[-1]}"
    assert again.result == whole.result, where
    assert same_error(whole.error, again.error, prefix), (where, again.error)
    assert again.model_calls == whole.model_calls - finished_calls(prefix), where
    assert again.tools_ran == tools_to_run(whole.log, prefix), where
    assert [*prefix, *without_second_starts(prefix, again.log)] == whole.log, where


# --- The property ---------------------------------------------------------------------------------


@requirement(
    "resume.same-outcome", "resume.nothing-twice", "resume.same-log", "resume.through-json"
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_every_prefix_of_a_log_leads_to_the_undisturbed_end(case: Case):
    whole = await undisturbed(case)
    assert isinstance(whole.log[-1], RunEnded)
    for length in range(1, len(whole.log) + 1):
        await check_prefix(case, whole, length)


WORKER_LINES = st.one_of(
    st.sampled_from(["draft", "", "other words", "draft"]),
    st.lists(
        st.sampled_from(
            [look("a"), look("b"), look("slow"), ("fail", {"key": "x"}), ("nobody", {})]
        ),
        min_size=1,
        max_size=3,
    ).map(lambda wanted: calls(None, *wanted)),
    st.sampled_from([BUSY, CUT]),
)


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    script = draw(st.lists(WORKER_LINES, min_size=40, max_size=40))
    scores = draw(st.lists(st.sampled_from([0.1, 0.5, 0.5, 0.52, 0.9]), min_size=5, max_size=5))
    answers = [(False, "words"), False, True, NO, OSError("down"), LoopConvergedError]
    words = draw(st.lists(st.sampled_from(answers), min_size=5, max_size=5))
    fixed: dict[str, Any] = {
        "max_turns": draw(st.integers(1, 4)),
        "stuck": StuckPolicy(no_novelty_nudge=2, no_novelty_stop=2),
        "retry_policy": RetryPolicy(max_retries=60, jitter=0),
        "on_max_turns": draw(st.sampled_from(["return", "return", "raise"])),
    }
    loop: dict[str, Any] = {
        "max_iterations": draw(st.integers(1, 5)),
        "adaptive": True,
        "verifier": scoring(*scores),
        "criteria": [judging(*words)] if draw(st.booleans()) else [],
        "fresh_context": draw(st.booleans()),
        "on_exhausted": draw(st.sampled_from(LoopOutcome)),
        "on_criterion_error": draw(st.sampled_from(LoopOutcome)),
        "evaluate_final": draw(st.booleans()),
    }
    loops = draw(st.sampled_from([True, True, False]))
    return Case(
        {"worker": script},
        lambda: {**fixed, "loop_config": LoopConfig(**loop) if loops else None},
    )


@requirement("resume.same-outcome", "resume.nothing-twice", "resume.same-log")
@settings(max_examples=25, deadline=None)
@given(random_cases(), st.data())
async def test_every_prefix_of_a_random_runs_log_leads_to_the_undisturbed_end(
    case: Case, data: st.DataObject
):
    whole = await undisturbed(case)
    every = range(1, len(whole.log) + 1)
    for length in (
        every if len(every) <= 20 else data.draw(st.sets(st.sampled_from(every), max_size=20))
    ):
        await check_prefix(case, whole, length)


@requirement("resume.model-failure")
async def test_a_model_that_failed_is_asked_again_unless_the_run_had_ended_with_that():
    whole = await undisturbed(CASES["the model fails"])
    assert isinstance(whole.log[-2], ModelCallFailed)
    case = plain([calls("one", look("a")), ServerError("down", status=500), "there again"])
    again = await resumed(case, whole.log[:-1])
    assert (again.result["text"], again.error) == ("there again", None)
    # The two replies cost 100 and 102 tokens in; nobody said what the failed call cost.
    assert (again.result["input_tokens"], again.result["unknown_usage_calls"]) == (202, 1)
    ended = await resumed(case, whole.log)
    assert isinstance(ended.error, RunError)
    assert ended.model_calls == Counter()


@requirement("resume.twice")
async def test_a_resumed_run_can_be_cut_and_resumed_again_at_any_place():
    case = CASES["inner exits in a loop"]
    whole = await undisturbed(case)
    first = through_json(whole.log[:9])
    for more in range(0, len(whole.log) - 9, 5):
        once = await resumed(case, first)
        prefix = [*first, *through_json(once.log[:more])]
        again = await resumed(case, prefix)
        assert again.result == whole.result


# --- What may not run twice -----------------------------------------------------------------------

POSTING = plain(
    [calls("posting", look("a"), post("one"), post("two")), calls(None, post("three")), "done"]
)


@requirement("resume.interrupted-tool", "resume.nothing-twice")
async def test_a_call_that_may_not_run_twice_is_answered_as_interrupted_and_never_run_again():
    whole = await undisturbed(POSTING)
    assert whole.tools_ran == Counter(look=1, post=3)
    interrupted = 0
    for length in range(1, len(whole.log) + 1):
        prefix = through_json(whole.log[:length])
        doubtful = [event for event in unfinished_tools(prefix) if event.tool == "post"]
        if not doubtful:
            await check_prefix(POSTING, whole, length)
            continue
        interrupted += 1
        again = await resumed(POSTING, prefix)
        to_run = tools_to_run(whole.log, prefix)
        to_run["post"] -= len(doubtful)
        assert again.tools_ran == +to_run
        answered = {
            (event.at.turn, event.index): event
            for event in again.log
            if isinstance(event, ToolFinished)
        }
        for event in doubtful:
            answer = answered[event.at.turn, event.index]
            assert answer.is_error
            assert "interrupted" in answer.text
            assert "not known" in answer.text
        assert (again.result["text"], again.error) == ("done", None)
        check_conversation(again.result["messages"])
        errors = [each["is_error"] for each in again.result["tool_calls"]]
        assert errors.count(True) == len(doubtful)
    assert interrupted >= 4


@requirement("resume.interrupted-tool", "resume.nothing-twice")
async def test_an_idempotent_call_is_run_again_beside_one_that_may_not_be():
    whole = await undisturbed(POSTING)
    first_finish = next(n for n, e in enumerate(whole.log) if isinstance(e, ToolFinished))
    prefix = through_json(whole.log[:first_finish])
    assert Counter(event.tool for event in unfinished_tools(prefix)) == Counter(look=1, post=2)
    again = await resumed(POSTING, prefix)
    assert again.tools_ran == Counter(look=1, post=1)
    first, second, third, fourth = again.result["tool_calls"]
    assert first["result"] == "value of a"
    assert (second["is_error"], third["is_error"]) == (True, True)
    assert fourth["result"] == "posted three"


# --- Approvals ------------------------------------------------------------------------------------


async def _ask_about_posts(tool_name: str, _args: dict[str, Any]) -> bool | None:
    return None if tool_name == "post" else True


APPROVED = Case(
    {
        "worker": [
            "draft 1",
            calls("may I?", look("a"), post("one"), post("two")),
            "draft 2",
            "draft 3",
        ]
    },
    lambda: {
        "hooks": AgentHooks(approve_tool=_ask_about_posts),
        "loop_config": LoopConfig(verifier=scoring(0.3, 0.2, 0.9)),
    },
)


@requirement("resume.approvals", "refine.approval-stops")
async def test_a_run_that_waits_for_a_person_goes_on_from_any_prefix_of_what_followed():
    paused = await undisturbed(APPROVED)
    assert paused.result["exit_reason"] == "awaiting_approval"
    assert paused.result["text"] == "may I?"
    log, model, shop = EventLog(), Actor(APPROVED.script, finished_calls(paused.log)), Workshop()
    decided = await _ran(
        resume_agent(
            APPROVED.agent(model, shop.tools),
            through_json(paused.log),
            approvals={"c1": True, "c2": "not this one"},
            log=log,
        ),
        log.events,
        model,
        shop,
    )
    assert decided.tools_ran == Counter(post=1)
    assert decided.result["exit_reason"] == "converged"
    whole = Ran(
        decided.result,
        None,
        [*paused.log, *decided.log],
        paused.model_calls + decided.model_calls,
        paused.tools_ran + decided.tools_ran,
    )
    answers = {e.index: (e.text, e.is_error) for e in whole.log if isinstance(e, ToolFinished)}
    assert answers == {
        0: ("value of a", False),
        1: ("posted one", False),
        2: ("not this one", True),
    }
    for length in range(1, len(whole.log) + 1):
        prefix = through_json(whole.log[:length])
        if length <= len(paused.log):
            again = await resumed(APPROVED, prefix)
            assert again.result == paused.result, prefix[-1]
        elif length >= len(paused.log) + 2 and not unfinished_tools(prefix):
            # Both decisions are there, and no call that may not run twice is in doubt.
            await check_prefix(APPROVED, whole, length)


@requirement("resume.approvals")
async def test_a_decision_about_a_call_that_does_not_wait_is_refused_by_name():
    paused = await undisturbed(APPROVED)
    agent = APPROVED.agent(Actor(APPROVED.script), Workshop().tools)
    with pytest.raises(ResumeError, match=r"'c9'.*'c1'.*'c2'"):
        await resume_agent(agent, paused.log, approvals={"c9": True})


# --- What cannot be resumed -----------------------------------------------------------------------


@requirement("resume.refused")
@pytest.mark.parametrize(
    "cut", [lambda log: [], lambda log: log[1:]], ids=["empty", "without its beginning"]
)
async def test_a_log_without_its_beginning_is_refused(cut: Callable[[Any], Any]):
    case = CASES["tools"]
    whole = await undisturbed(case)
    with pytest.raises(ResumeError, match="RunStarted"):
        await resume_agent(case.agent(Actor(case.script), Workshop().tools), cut(whole.log))


@requirement("resume.refused")
@pytest.mark.parametrize(
    "changed",
    [
        {"system_prompt": "Be long."},
        {"max_turns": 3},
        {"temperature": 0.5},
        {"extra_params": {"seed": 1}},
        {"loop_config": LoopConfig(max_iterations=4)},
        {"loop_config": LoopConfig(max_iterations=3, refine_prompt="Other.")},
        {"loop_config": None},
        {"stuck": StuckPolicy(action="off")},
        {"tools": []},
    ],
    ids=lambda changed: str(changed)[:50],
)
async def test_an_agent_that_is_configured_otherwise_is_refused_and_nothing_runs(
    changed: dict[str, Any],
):
    log, shop = EventLog(), Workshop()
    known: dict[str, Any] = {
        "loop_config": LoopConfig(max_iterations=3),
        "system_prompt": "Be brief.",
        "tools": shop.tools,
    }
    await run_agent(Agent("tester", Actor({"worker": drafts(3)}), **known), ASK, log=log)
    model = Actor({"worker": drafts(3)})
    other = Agent("tester", model, **{**known, **changed})
    with pytest.raises(ResumeError, match="configuration"):
        await resume_agent(other, log.events[:5])
    assert model.calls == Counter()


# --- Counts and events over a resume --------------------------------------------------------------


@requirement("resume.counts-go-on")
async def test_a_resumed_run_does_not_start_its_counts_or_its_ceiling_again():
    case = CASES["best at the ceiling"]
    whole = await undisturbed(case)
    closed = [n for n, event in enumerate(whole.log, 1) if isinstance(event, IterationEnded)]
    again = await resumed(case, whole.log[: closed[1]])
    assert again.model_calls == Counter(worker=1)
    assert again.result["loop_iterations"] == 3
    # Worker calls 0, 1 and 2 cost 100, 101 and 102 tokens in.
    assert again.result["input_tokens"] == 303


@requirement("resume.events")
async def test_the_queue_of_a_resumed_run_shows_what_is_new_under_the_runs_own_name_and_ends():
    case = CASES["best at the ceiling"]
    whole = await undisturbed(case)
    closed = next(n for n, event in enumerate(whole.log, 1) if isinstance(event, IterationEnded))
    queue: asyncio.Queue[Any] = asyncio.Queue()
    prefix = whole.log[:closed]
    model = Actor(case.script, finished_calls(prefix))
    await resume_agent(case.agent(model, Workshop().tools), prefix, queue=queue)
    shown = [queue.get_nowait() for _ in range(queue.qsize())]
    assert shown.pop() is None
    assert [e.data["iteration"] for e in shown if e.event == "loop_iteration"] == [2, 3]
    assert shown[-1].event == "done"
    assert {event.agent_id for event in shown} == {"me"}


@requirement("resume.events")
async def test_a_run_that_has_ended_gives_its_end_again_and_runs_nothing():
    for name, error in [("converged", None), ("a stop condition", LoopConvergedError)]:
        case = CASES[name]
        whole = await undisturbed(case)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        model = Actor(case.script)
        work = resume_agent(case.agent(model, Workshop().tools), whole.log, queue=queue)
        if error is None:
            await work
        else:
            with pytest.raises(error):
                await work
        shown = [queue.get_nowait() for _ in range(queue.qsize())]
        assert [None if event is None else event.event for event in shown] == ["done", None]
        assert model.calls == Counter()


# --- Candidates at once ---------------------------------------------------------------------------


def place_of(purpose: str, at: Any) -> tuple[str, int, int, int]:
    """What tells the calls of candidates apart; merging calls are all alike."""
    return (
        (purpose, at.iteration, at.branch, at.turn) if purpose == "worker" else (purpose, 0, 0, 0)
    )


class Choir:
    """A model whose reply depends on the place of the call alone: candidates ask in any order."""

    name = "choir"

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int, int, int]] = Counter()

    async def generate(self, request: Any, on_delta: Any = None) -> ModelReply:
        place = place_of(request.purpose, request.at)
        self.asked[place] += 1
        for _ in range(1 + place[2] % 2 * 3):
            await asyncio.sleep(0)
        text, wanted = f"draft {place[1]} of {place[2]}", ()
        if request.purpose == "synthesizer":
            text = "all of them\nCONFIDENCE: 0.5"
        elif request.purpose == "judge":
            iteration, branch = re.findall(r"draft (\d) of (\d)", request.messages[-1].text)[-1]
            text = verdict((0.1, 0.5, 0.3)[int(branch)] + 0.1 * int(iteration), f"thin {branch}")
        elif place[2] == 1 and place[3] == 1:
            text, wanted = (
                "looking",
                (ToolCall("c1", *_look_at(place)), ToolCall("c2", *_look_at(place))),
            )
        return ModelReply(
            message=Message("assistant", text, wanted),
            finish_reason="tool_calls" if wanted else "stop",
            usage=Usage(input_tokens=100 + 10 * place[1] + place[2], output_tokens=place[3] + 1),
        )


def _look_at(place: tuple[str, int, int, int]) -> tuple[str, str]:
    return "look", json.dumps({"key": f"{place[1]}.{place[2]}"})


def by_draft(_query: str, result: AgentResult) -> VerifierFeedback:
    """The second candidate is best, the second iteration better, none good enough."""
    iteration, branch = int(result.text.split()[1]), int(result.text.split()[3])
    return VerifierFeedback((0.1, 0.5, 0.3)[branch] + 0.1 * iteration, [f"thin {branch}"])


BRANCHED: dict[str, dict[str, Any]] = {
    "graded": {"verifier": Verifier(VerifierConfig(evaluate_fn=by_draft, confirmations=1))},
    "graded by a model": {"verifier": Verifier(VerifierConfig(threshold=0.65, confirmations=1))},
    "merged": {"criteria": [judging(False, True)]},
    "voted": {
        "branch_vote": lambda result: result.text.split()[-1] in ("0", "2"),
        "criteria": [judging((False, "again"), True)],
    },
}


@requirement("resume.same-outcome", "resume.nothing-twice", "resume.branches")
@pytest.mark.parametrize("loop", BRANCHED.values(), ids=BRANCHED)
async def test_every_prefix_of_a_log_with_candidates_leads_to_the_undisturbed_end(
    loop: dict[str, Any],
):
    def agent(model: Choir, shop: Workshop) -> Agent:
        config = LoopConfig(max_iterations=2, branches=3, **loop)
        return Agent("tester", model, tools=shop.tools, loop_config=config)

    log, model = EventLog(), Choir()
    whole = as_data(await run_agent(agent(model, Workshop()), ASK, log=log))
    for length in range(1, len(log) + 1):
        prefix = through_json(log[:length])
        again, shop = Choir(), Workshop()
        result = await resume_agent(agent(again, shop), prefix)
        where = f"after {length} of {len(log)} events, the last one {prefix[-1]}"
        assert as_data(result) == whole, where
        replied = Counter(
            place_of(event.purpose, event.at)
            for event in prefix
            if isinstance(event, ModelCallReplied)
        )
        assert again.asked == model.asked - replied, where
        assert shop.ran == tools_to_run(log.events, prefix), where


# --- Candidates that end in other ways ------------------------------------------------------------


class Chorus:
    """A model with a line for each candidate, in every iteration; merges have lines of theirs.

    Of candidates that race, each begins when the one before it must have ended.
    """

    name = "chorus"

    def __init__(self, lines: Sequence[Any], merges: Sequence[str], begun: Counter[str]) -> None:
        self.lines = lines
        self.merges = merges
        self.merged = begun["synthesizer"] + begun["repair"]
        self.asked: Counter[tuple[str, int, int, int]] = Counter()

    async def generate(self, request: Any, on_delta: Any = None) -> ModelReply:
        usage = Usage(input_tokens=100, output_tokens=10)
        if request.purpose in ("synthesizer", "repair"):
            text = self.merges[self.merged]
            self.merged += 1
            return ModelReply(message=Message("assistant", text), usage=usage, model="chorus")
        at = request.at
        for _ in range(1 + 100 * at.branch):
            await asyncio.sleep(0)
        line = self.lines[at.branch]
        if isinstance(line, BaseException):
            raise line
        self.asked[place_of("worker", at)] += 1
        text, wanted, _ = line if isinstance(line, tuple) else (line, (), None)
        return ModelReply(message=Message("assistant", text, tuple(wanted)), usage=usage)


@dataclass(frozen=True)
class Chorale:
    """A run of a chorus."""

    lines: Sequence[Any]
    loop: Mapping[str, Any] = field(default_factory=dict[str, Any])
    merges: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def agent(self, prefix: Sequence[LogEvent] = ()) -> Agent:
        model = Chorus(self.lines, self.merges, finished_calls(prefix))
        loop = LoopConfig(**{"max_iterations": 2, "branches": len(self.lines), **self.loop})
        tools = Workshop().tools
        return Agent("tester", model, tools=tools, loop_config=loop, **self.settings)


def by_length(_query: str, result: AgentResult) -> VerifierFeedback:
    return VerifierFeedback(min(1.0, len(result.text) / 40), ["thin"])


def dark(_query: str, _result: AgentResult) -> VerifierFeedback:
    raise OSError("dark")


class Label:
    """Equal to what begins with the same letter; it cannot be hashed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and other.text[0] == self.text[0]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.text[0]}>"


LONG = "a long draft, still looking something up"
CAPPED = calls(LONG, look("a"))
RAISING = {"max_turns": 1, "on_max_turns": "raise"}
DOWN = ServerError("down", status=500, usage=Usage())
GRADED = {"verifier": Verifier(VerifierConfig(evaluate_fn=by_length, threshold=0.95))}
NINE = Verifier(VerifierConfig(evaluate_fn=by_length, threshold=0.9))
RACED = {"verifier": NINE, "branch_early_stop": True}
DARK = {"verifier": Verifier(VerifierConfig(evaluate_fn=dark))}
KEYS = {"a": {"n": 1, "of": [2]}, "b": None, "c": {"of": [2.0], "n": 1}, "d": ["x"]}
PERSON = {"response_model": Person}
ANN, BEN = '{"name": "Ann", "age": 7}', '{"name": "Ben", "age": 8}'

CHORALES: dict[str, Chorale] = {
    "a cap that is an error, graded": Chorale([CAPPED, "short", "longer"], GRADED, (), RAISING),
    "a cap that is an error, raced": Chorale([CAPPED, "short", LONG], RACED, (), RAISING),
    "a cap that is an error, voted": Chorale(
        [CAPPED, "b", "a"], {"branch_vote": lambda r: r.text}, (), RAISING
    ),
    "a cap that is an error, merged": Chorale([CAPPED, "b", "a"], {}, ["1", "2"], RAISING),
    "a cap that is an error, one left": Chorale([CAPPED, CAPPED, "a"], {}, (), RAISING),
    "a cap that is an error, for all": Chorale([CAPPED, CAPPED], GRADED, (), RAISING),
    "the first passes": Chorale([LONG, "x" * 40, "x" * 40], RACED),
    "the second passes": Chorale(["short", LONG[:38], "x" * 40], RACED),
    "none passes": Chorale(["short", "longer", "long"], RACED),
    "all fail": Chorale([DOWN, ServerError("down too", usage=Usage())], GRADED),
    "all fail in a race": Chorale([DOWN, DOWN], RACED),
    "all gradings fail": Chorale(["a", "b"], DARK),
    "all gradings fail in a race": Chorale(["a", "b"], {**DARK, "branch_early_stop": True}),
    "all gradings fail the run": Chorale(["a", "b"], {**DARK, "on_criterion_error": FAIL}),
    "one fails, one grading fails": Chorale([DOWN, "b"], DARK),
    "keys by value, and none": Chorale(
        ["d", "b", "a", "c"], {"branch_vote": lambda r: KEYS[r.text]}
    ),
    "keys that know what they equal": Chorale(
        ["x", "yz", "yw"], {"branch_vote": lambda r: Label(r.text)}
    ),
    "all abstain": Chorale(["", "b", "c"], {"branch_vote": lambda _: None}),
    "an empty merge": Chorale(["", "b", "c"], {}, ["CONFIDENCE: 0.9", ""]),
    "merges that fit": Chorale([ANN, BEN], {}, ["Ann", f"{BEN}\nCONFIDENCE: 0.5", ANN], PERSON),
    "merges that do not fit": Chorale([ANN, BEN], {}, ["Ann", "Ben", "Ann", "Ben"], PERSON),
}


@requirement("resume.same-outcome", "resume.nothing-twice", "resume.branches")
@pytest.mark.parametrize("chorale", CHORALES.values(), ids=CHORALES)
async def test_every_prefix_of_a_log_leads_to_the_end_of_its_candidates(chorale: Chorale):
    log = EventLog()
    whole, error = await _outcome(run_agent(chorale.agent(), ASK, log=log))
    for length in range(1, len(log) + 1):
        prefix = through_json(log[:length])
        agent = chorale.agent(prefix)
        again, after = await _outcome(resume_agent(agent, prefix))
        where = f"after {length} of {len(log)} events, the last one {prefix[-1]}"
        assert again == whole, where
        if type(after) is not type(error) or str(after) != str(error):
            assert any(isinstance(e, CandidateDropped) for e in prefix), where
            text = f"{type(error).__name__}: {error}"
            assert isinstance(after, RunError), where
            assert text in str(after), where
        assert isinstance(agent.model, Chorus)
        replied = Counter(
            place_of("worker", event.at)
            for event in prefix
            if isinstance(event, ModelCallReplied) and event.purpose == "worker"
        )
        assert not replied & agent.model.asked, where


async def _outcome(work: Any) -> tuple[dict[str, Any], Exception | None]:
    try:
        return as_data(await work), None
    except Exception as error:
        return as_data(partial_result(error)), error
