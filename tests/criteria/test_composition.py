"""``all_of``, ``any_of`` and ``not_``: order, short-circuit, words and names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.criteria.kit import context
from untildone import (
    Agent,
    ConfigError,
    CriterionVerdict,
    EventType,
    ExitReason,
    GradingError,
    LoopConfig,
    LoopConvergedError,
    StreamEvent,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.criteria import CompletionMarker, Regex
from untildone.criteria.composition import all_of, any_of, not_
from untildone.testing import ScriptedModel

ASK = [{"role": "user", "content": "go"}]


class Spy:
    """A criterion that says what it is told to and notes that it was asked."""

    def __init__(self, name: str, says: Any, asked: list[str]) -> None:
        self.kind, self._says, self._asked = name, says, asked

    async def evaluate(self, ctx):
        self._asked.append(self.kind)
        if isinstance(self._says, BaseException):
            raise self._says
        return self._says


def spies(**says: Any) -> tuple[list[Spy], list[str]]:
    asked: list[str] = []
    return [Spy(name, said, asked) for name, said in says.items()], asked


NO = CriterionVerdict(satisfied=False, feedback="not yet")


async def verdict_of(criterion: Any, text: str = "x") -> CriterionVerdict:
    return await criterion.evaluate(context(text))


# ── all_of ───────────────────────────────────────────────────────────────────────────────────────


async def test_all_of_stops_at_the_first_that_asks_for_more_and_gives_its_words():
    parts, asked = spies(a=True, b=NO, c=True)
    assert await verdict_of(all_of(*parts)) == NO
    assert asked == ["a", "b"]


async def test_all_of_is_satisfied_when_all_are():
    parts, asked = spies(a=True, b=CriterionVerdict(True), c=(True, None))
    assert (await verdict_of(all_of(*parts))).satisfied
    assert asked == ["a", "b", "c"]


async def test_all_of_passes_messages_on_verbatim():
    messages = [{"role": "user", "content": "as it is"}]
    parts, _ = spies(a=CriterionVerdict(satisfied=False, messages=messages))
    assert list((await verdict_of(all_of(*parts))).messages or ()) == messages


# ── any_of ───────────────────────────────────────────────────────────────────────────────────────


async def test_any_of_stops_at_the_first_that_is_satisfied():
    parts, asked = spies(a=NO, b=True, c=True)
    assert (await verdict_of(any_of(*parts))).satisfied
    assert asked == ["a", "b"]


async def test_any_of_gives_the_words_of_all_where_none_is_satisfied():
    parts, _ = spies(a=NO, b=False, c=(False, "too short"))
    verdict = await verdict_of(any_of(*parts))
    assert not verdict.satisfied
    assert verdict.feedback == "Any one of the following would do.\n\nnot yet\n\ntoo short"


async def test_any_of_gives_a_single_word_as_it_is():
    parts, _ = spies(a=False, b=NO)
    assert (await verdict_of(any_of(*parts))) == NO
    silent, _ = spies(a=False, b=False)
    assert (await verdict_of(any_of(*silent))) == CriterionVerdict(satisfied=False)


async def test_any_of_keeps_messages_and_words_in_their_order():
    messages = [{"role": "user", "content": "as it is"}]
    parts, _ = spies(a=NO, b=CriterionVerdict(satisfied=False, messages=messages))
    verdict = await verdict_of(any_of(*parts))
    assert list(verdict.messages or ()) == [
        {"role": "user", "content": "Any one of the following would do."},
        {"role": "user", "content": "not yet"},
        {"role": "user", "content": "as it is"},
    ]


# ── not_ ─────────────────────────────────────────────────────────────────────────────────────────


async def test_not_turns_the_answer_round_and_says_what_must_not_hold():
    no_todo = not_(Regex("TODO"))
    assert (await verdict_of(no_todo, "all there")).satisfied
    verdict = await verdict_of(no_todo, "TODO: the rest")
    assert verdict.feedback == "What regex looks for must not hold, and it does."
    in_words = not_(Regex("TODO"), feedback="Leave no TODO.")
    assert (await verdict_of(in_words, "TODO")).feedback == "Leave no TODO."


async def test_not_not_is_itself():
    for said in (True, False):
        parts, _ = spies(a=said)
        assert (await verdict_of(not_(not_(parts[0])))).satisfied is said


# ── Undecided ────────────────────────────────────────────────────────────────────────────────────

UNCLEAR = CriterionVerdict(satisfied=False, feedback="nobody knows", undecided=True)


@pytest.mark.parametrize(
    "compose",
    [
        not_,
        lambda one: not_(not_(one)),
        all_of,
        any_of,
        lambda one: not_(any_of(CompletionMarker("never"), one)),
        lambda one: not_(all_of(one, CompletionMarker("never"))),
        lambda one: all_of(not_(any_of(one))),
    ],
    ids=["not", "not_not", "all", "any", "not_any", "not_all", "all_not"],
)
async def test_what_is_undecided_stays_so_with_its_words(compose):
    parts, _ = spies(a=UNCLEAR)
    verdict = await verdict_of(compose(parts[0]))
    assert (verdict.satisfied, verdict.undecided) == (False, True)
    assert "nobody knows" in (verdict.feedback or "")


async def test_what_is_undecided_beside_something_clear_counts_only_where_it_matters():
    parts, _ = spies(a=UNCLEAR, b=True, c=NO)
    unclear, yes, no = parts
    assert (await verdict_of(any_of(unclear, yes))).satisfied
    assert (await verdict_of(not_(any_of(unclear, yes)))).undecided is False
    assert (await verdict_of(not_(all_of(yes, no)))).satisfied
    several = await verdict_of(any_of(no, unclear, no))
    assert several.undecided
    assert (
        several.feedback
        == "Any one of the following would do.\n\nnot yet\n\nnobody knows\n\nnot yet"
    )
    loud, _ = spies(
        a=CriterionVerdict(False, undecided=True), b=CriterionVerdict(False, messages=[])
    )
    assert (await verdict_of(any_of(*loud))).undecided


async def test_a_loop_goes_on_where_a_criterion_in_not_is_undecided():
    verdicts = iter([UNCLEAR, CriterionVerdict(satisfied=False)])
    loop = LoopConfig(criteria=[not_(lambda ctx: next(verdicts))])
    model = ScriptedModel(["one", "two"])
    result = await run_agent(Agent("a", model, loop_config=loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert model.requests[1].messages[-1]["content"] == "nobody knows"


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("compose", [all_of, any_of, lambda a, b: not_(any_of(a, b))])
async def test_what_one_of_them_raises_is_never_a_refusal_and_nothing_more_is_asked(compose):
    parts, asked = spies(a=OSError("judge down"), b=True)
    with pytest.raises(OSError, match="judge down"):
        await verdict_of(compose(*parts))
    assert asked == ["a"]


@pytest.mark.parametrize("nonsense", [None, 1, "yes", {"satisfied": True}, (1, "why")])
@pytest.mark.parametrize("compose", [all_of, any_of, not_])
async def test_what_is_no_verdict_is_an_error_that_names_its_place(compose, nonsense):
    parts, _ = spies(odd=nonsense)
    with pytest.raises(GradingError, match=r"criteria\[0\] \(odd\) gave"):
        await verdict_of(compose(*parts))


async def test_an_early_end_raised_inside_ends_the_run():
    def enough(ctx):
        raise LoopConvergedError

    loop = LoopConfig(criteria=[any_of(CompletionMarker("never"), enough)])
    agent = Agent("a", ScriptedModel(["x"]), loop_config=loop)
    with pytest.raises(LoopConvergedError) as caught:
        await run_agent(agent, ASK)
    assert caught.value.result is not None
    assert caught.value.result.exit_reason is ExitReason.STOP_CONDITION


@pytest.mark.parametrize("bad", [3, "text", None, CompletionMarker])
def test_what_cannot_judge_is_refused_with_its_place(bad: Any):
    fine = CompletionMarker("x")
    with pytest.raises(ConfigError, match=r"all_of\(\.\.\.\)\[1\] is"):
        all_of(fine, bad)
    with pytest.raises(ConfigError, match=r"any_of\(\.\.\.\)\[0\] is"):
        any_of(bad)
    with pytest.raises(ConfigError, match=r"not_\(criterion\) is"):
        not_(bad)


def test_none_at_all_is_refused():
    for compose in (all_of, any_of):
        with pytest.raises(ConfigError, match="has no criteria; give at least one"):
            compose()


# ── In a loop ────────────────────────────────────────────────────────────────────────────────────


def grade(_query: str, result) -> VerifierFeedback:
    return VerifierFeedback(0.9 if "sources" in result.text else 0.2, ["no sources"])


async def test_every_form_of_criterion_can_stand_inside_a_verifier_too():
    async def is_long(ctx) -> bool:
        return len(ctx.result.text) > 12

    verifier = Verifier(VerifierConfig(evaluate_fn=grade, confirmations=1))
    loop = LoopConfig(
        criteria=[all_of(CompletionMarker("DONE"), lambda ctx: True, verifier, is_long)]
    )
    agent = Agent(
        "a", ScriptedModel(["x", "DONE", "DONE sources", "DONE with sources"]), loop_config=loop
    )
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 4)
    assert result.scores == []  # scores made inside criteria never choose the result


async def test_events_name_the_composition_and_what_it_is_made_of():
    import asyncio

    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
    composed = any_of(CompletionMarker("DONE"), all_of(Regex("^ok"), not_(Regex("TODO"))))
    loop = LoopConfig(criteria=[composed])
    agent = Agent("a", ScriptedModel(["ok TODO", "ok"]), loop_config=loop)
    result = await run_agent(agent, ASK, queue=queue)
    assert result.loop_iterations == 2
    events = [queue.get_nowait() for _ in range(queue.qsize())]
    told = [each.data for each in events if each and each.event is EventType.LOOP_ITERATION]
    name = "anyOf(completionMarker, allOf(regex, not(regex)))"
    assert told[0]["continued_by"] == name == composed.kind == repr(composed)
    assert told[0]["has_feedback"] is True


async def test_a_raising_part_fails_the_composition_by_name():
    def broken(ctx):
        raise OSError("judge down")

    loop = LoopConfig(criteria=[any_of(CompletionMarker("DONE"), broken)])
    result = await run_agent(Agent("a", ScriptedModel(["x"]), loop_config=loop), ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert result.error == "OSError: judge down"
