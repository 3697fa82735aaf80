"""What the agent is told between two iterations, and what stays as it was sent."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    iterations_of,
    judging,
    looping,
    model_of,
    said,
    scoring,
    sent,
)
from untildone import (
    Agent,
    CriterionContext,
    CriterionVerdict,
    ExitReason,
    LoopConfig,
    VerifierFeedback,
    run_agent,
    tool,
)
from untildone.testing import call, reply

DEFAULT = "Your answer is incomplete. Please search for more information and expand your response."
NO = CriterionVerdict(satisfied=False)


@tool
async def look(key: str) -> str:
    """Looks something up."""
    return f"value of {key}"


async def requests_of(loop: LoopConfig, script: Any = None, **settings: Any) -> list[Any]:
    """The messages of each model request of a run of four iterations at most."""
    agent = looping(loop, **({} if script is None else {"script": script}), **settings)
    await run_agent(agent, ASK)
    return [request.messages for request in model_of(agent).requests]


# --- Which feedback -------------------------------------------------------------------------------


@requirement("refine.prompt-default")
async def test_without_feedback_the_default_prompt_is_sent_word_for_word():
    first, second = await requests_of(LoopConfig(convergence_fn=in_turn(False, True)))
    assert first == ASK
    assert second == [*ASK, said("assistant", "answer 1"), said("user", DEFAULT)]


@requirement("refine.prompt-default")
async def test_an_own_refine_prompt_replaces_the_default():
    loop = LoopConfig(criteria=[judging(False, True)], refine_prompt="Once more.")
    _, second = await requests_of(loop)
    assert second[-1] == said("user", "Once more.")


@requirement("refine.winning-feedback")
async def test_the_verifiers_issues_and_suggestion_are_sent_in_one_user_message():
    grade = VerifierFeedback(0.3, ["no source is named", "the date is wrong"], "cite the archive")
    _, second = await requests_of(LoopConfig(verifier=scoring(grade, 0.9)))
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    told = second[-1]["content"]
    places = [told.index(text) for text in (*grade.issues, grade.suggestion)]
    assert places == sorted(places)
    assert DEFAULT not in told


@requirement("refine.winning-feedback")
@pytest.mark.parametrize(
    ("grade", "told"),
    [
        (VerifierFeedback(0.3, ["wrong date"]), "wrong date"),
        (VerifierFeedback(0.3, [], "name a source"), "name a source"),
    ],
    ids=["issues", "suggestion"],
)
async def test_a_grade_with_issues_or_a_suggestion_only_is_feedback_too(
    grade: VerifierFeedback, told: str
):
    _, second = await requests_of(LoopConfig(verifier=scoring(grade, 0.9)))
    assert told in second[-1]["content"]


@requirement("refine.winning-feedback", "refine.prompt-default")
async def test_a_grade_without_words_sends_the_refine_prompt():
    _, second = await requests_of(LoopConfig(verifier=scoring(0.3, 0.9)))
    assert second[-1] == said("user", DEFAULT)


@requirement("refine.winning-feedback")
async def test_the_verifiers_feedback_is_sent_where_convergence_fn_refuses_too():
    loop = LoopConfig(
        verifier=scoring(VerifierFeedback(0.3, ["wrong date"]), 0.9),
        convergence_fn=lambda r: False,
    )
    _, second = await requests_of(loop)
    assert "wrong date" in second[-1]["content"]


@requirement("refine.winning-feedback")
@pytest.mark.parametrize(
    ("answer", "told"), [((False, "add a title"), "add a title"), (False, DEFAULT)]
)
async def test_where_a_criterion_asks_its_feedback_is_sent_and_never_the_verifiers(
    answer: Any, told: str
):
    # The verifier refuses, convergence_fn passes the pair, the criterion asks.
    loop = LoopConfig(
        verifier=scoring(VerifierFeedback(0.3, ["wrong date"]), 0.9),
        convergence_fn=lambda r: True,
        criteria=[judging(answer, True)],
    )
    _, second = await requests_of(loop)
    assert second[-1] == said("user", told)


@requirement("refine.winning-feedback")
async def test_the_feedback_of_a_grade_that_passed_is_not_sent():
    passed = VerifierFeedback(0.9, ["a nitpick"], "polish it")
    loop = LoopConfig(verifier=scoring(passed, 0.9), criteria=[judging(False, True)])
    _, second = await requests_of(loop)
    assert second[-1] == said("user", DEFAULT)


@requirement("refine.messages-verbatim")
async def test_the_messages_of_a_verdict_are_sent_verbatim_instead_of_any_feedback():
    own = [
        {"role": "user", "content": [{"type": "text", "text": "look at this"}], "name": "ann"},
        {"role": "assistant", "content": "I will."},
        {"role": "user", "content": "Go on."},
    ]
    before = copy.deepcopy(own)
    verdict = CriterionVerdict(satisfied=False, feedback="not sent", messages=own)
    _, second = await requests_of(LoopConfig(criteria=[judging(verdict, True)]))
    assert second == [*ASK, said("assistant", "answer 1"), *before]
    assert own == before


@requirement("refine.messages-verbatim")
async def test_a_verdict_with_an_empty_list_of_messages_sends_none():
    verdict = CriterionVerdict(satisfied=False, feedback="not sent", messages=[])
    _, second = await requests_of(LoopConfig(criteria=[judging(verdict, True)]))
    assert second == [*ASK, said("assistant", "answer 1")]


@requirement("refine.empty-prompt")
async def test_an_empty_refine_prompt_appends_nothing_to_the_kept_conversation():
    loop = LoopConfig(criteria=[judging(False, True)], refine_prompt="")
    assert (await requests_of(loop))[1] == [*ASK, said("assistant", "answer 1")]


@requirement("refine.empty-answer")
@pytest.mark.parametrize("empty", [reply(""), reply(None)], ids=["text", "nothing"])
async def test_an_empty_answer_is_an_iteration_but_no_empty_message_is_sent_back(empty: Any):
    loop = LoopConfig(convergence_fn=lambda r: bool(r.text))
    agent = looping(loop, [empty, "words"])
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert sent(agent, 1) == [*ASK, said("user", DEFAULT)]


@requirement("refine.event-has-no-feedback")
async def test_the_iteration_tells_whether_there_was_feedback_but_not_what_it_said():
    secret = "the client's name is wrong"
    loop = LoopConfig(
        verifier=scoring(VerifierFeedback(0.1, [secret], secret), *[0.9] * 4),
        criteria=[
            judging(True, (False, secret), False, CriterionVerdict(satisfied=False, messages=[]))
        ],
        max_iterations=5,
    )
    told = await iterations_of(looping(loop))
    assert [each["has_feedback"] for each in told] == [True, True, False, True, False]
    assert secret not in repr(told)


# --- What was sent stays --------------------------------------------------------------------------


def busy_script() -> list[Any]:
    return [
        reply("looking", [call("look", "c1", key="a"), call("look", "c2", key="b")]),
        "draft 1",
        "draft 2",
        reply(None, call("look", "c3", key="c")),
        "draft 3",
        "draft 4",
    ]


@requirement("refine.prefix-stable")
@pytest.mark.parametrize("system_prompt", ["", "Be brief."])
async def test_every_request_begins_with_all_that_was_sent_before(system_prompt: str):
    feedback = (False, "shorter")
    messages = CriterionVerdict(satisfied=False, messages=[said("user", "mine")])
    loop = LoopConfig(criteria=[judging(feedback, NO, messages, True)])
    agent = looping(loop, busy_script(), tools=[look], system_prompt=system_prompt)
    result = await run_agent(agent, ASK)
    requests = [request.messages for request in model_of(agent).requests]
    assert len(requests) == 6
    for earlier, later in pairwise([*requests, result.messages]):
        assert later[: len(earlier)] == earlier
        assert len(later) > len(earlier)
    system = [said("system", system_prompt)] if system_prompt else []
    assert requests[0] == [*system, *ASK]


@requirement("refine.prefix-stable")
async def test_the_bytes_of_the_prefix_are_the_same_in_every_request():
    agent = looping(LoopConfig(criteria=[judging(NO, NO, NO, True)]), busy_script(), tools=[look])
    await run_agent(agent, ASK)
    wired = [
        b"".join(message.wire_json() for message in seen.request.messages[: seen.length])
        for seen in model_of(agent).requests
    ]
    for earlier, later in pairwise(wired):
        assert later.startswith(earlier)


@requirement("refine.tools-in-refine")
async def test_tool_calls_and_their_answers_of_earlier_iterations_stay_in_the_conversation():
    agent = looping(LoopConfig(criteria=[judging(NO, NO, NO, True)]), busy_script(), tools=[look])
    await run_agent(agent, ASK)
    roles = [message["role"] for message in sent(agent, 2)]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]


# --- Fresh context --------------------------------------------------------------------------------

FRESH_ASK = [said("user", "earlier"), said("assistant", "well"), said("user", "question")]


async def fresh_requests(*verdicts: Any, refine_prompt: str = DEFAULT) -> list[Any]:
    """What each iteration of a fresh-context loop is sent beyond the system prompt and the ask."""
    loop = LoopConfig(
        criteria=[judging(*verdicts, True)],
        fresh_context=True,
        max_iterations=9,
        refine_prompt=refine_prompt,
    )
    agent = looping(loop, system_prompt="Be brief.")
    await run_agent(agent, FRESH_ASK)
    added: list[Any] = []
    for request in model_of(agent).requests:
        head = [said("system", "Be brief."), *FRESH_ASK]
        assert request.messages[: len(head)] == head
        added.append(request.messages[len(head) :])
    return added


@requirement("refine.fresh-context")
async def test_a_fresh_context_has_the_original_messages_and_one_log_of_all_feedback():
    first, second, third, fourth = await fresh_requests(
        (False, "too long"), (False, "no source"), (False, "no date")
    )
    assert first == []
    for added, feedback in [
        (second, ["too long"]),
        (third, ["too long", "no source"]),
        (fourth, ["too long", "no source", "no date"]),
    ]:
        assert [message["role"] for message in added] == ["user"]
        told = added[0]["content"]
        places = [told.index(text) for text in feedback]
        assert places == sorted(places)
    assert "answer" not in repr(fourth)


@requirement("refine.fresh-context")
async def test_the_verifiers_feedback_goes_into_the_log_of_a_fresh_context_too():
    loop = LoopConfig(
        verifier=scoring(VerifierFeedback(0.1, ["too long"]), VerifierFeedback(0.2, [], "cut"), 1),
        fresh_context=True,
    )
    *_, third = await requests_of(loop)
    assert third[:1] == ASK
    (log,) = third[1:]
    assert log["content"].index("too long") < log["content"].index("cut")


@requirement("refine.fresh-context")
async def test_iterations_without_feedback_leave_no_trace_in_a_fresh_context():
    _, second, third, fourth = await fresh_requests((False, "too long"), False, (False, ""))
    assert second == third == fourth
    assert DEFAULT not in repr(fourth)


@requirement("refine.fresh-context-prompt")
async def test_a_fresh_context_without_any_feedback_gets_the_refine_prompt():
    _, second, third = await fresh_requests(False, False)
    assert second == third == [said("user", DEFAULT)]


@requirement("refine.fresh-context-prompt")
async def test_a_fresh_context_with_an_empty_refine_prompt_and_no_feedback_appends_nothing():
    assert await fresh_requests(False, False, refine_prompt="") == [[], [], []]


@requirement("refine.fresh-context-prompt")
async def test_feedback_is_sent_in_a_fresh_context_also_with_an_empty_refine_prompt():
    _, second = await fresh_requests((False, "too long"), refine_prompt="")
    assert "too long" in second[0]["content"]


@requirement("refine.fresh-context", "refine.messages-verbatim")
async def test_a_verdicts_own_messages_follow_the_log_of_a_fresh_context_once():
    own = CriterionVerdict(satisfied=False, messages=[said("user", "mine")])
    _, second, third, fourth = await fresh_requests((False, "too long"), own, (False, "no source"))
    assert "too long" in second[0]["content"]
    assert third == [*second, said("user", "mine")]
    assert "mine" not in repr(fourth)
    assert len(fourth) == 1


@requirement("refine.fresh-context")
async def test_the_result_of_a_fresh_iteration_has_its_own_messages_only():
    loop = LoopConfig(
        verifier=scoring(VerifierFeedback(0.5, ["too long"]), 0.1),
        fresh_context=True,
        max_iterations=2,
    )
    result = await run_agent(looping(loop), ASK)
    assert result.best_iteration == 1
    assert result.messages == [*ASK, said("assistant", "answer 1")]


# --- Sampling seeds -------------------------------------------------------------------------------


@requirement("refine.seed-never-reused")
@pytest.mark.parametrize("fresh", [False, True])
async def test_no_seed_is_used_in_two_iterations_and_the_other_parameters_stay(fresh: bool):
    params = {"seed": 7, "top_p": 0.5}
    agent = looping(
        LoopConfig(max_iterations=4, fresh_context=fresh),
        extra_params=params,
    )
    await run_agent(agent, ASK)
    asked = [seen.request.extra_params for seen in model_of(agent).requests]
    assert asked[0] == {"seed": 7, "top_p": 0.5}
    assert len({each["seed"] for each in asked}) == 4
    assert {each["top_p"] for each in asked} == {0.5}
    assert params == {"seed": 7, "top_p": 0.5}


@requirement("refine.seed-never-reused")
async def test_where_no_seed_is_set_none_is_made_up():
    agent = looping(LoopConfig(max_iterations=2), extra_params={"top_p": 0.5})
    await run_agent(agent, ASK)
    assert all("seed" not in seen.request.extra_params for seen in model_of(agent).requests)


# --- What a criterion may know --------------------------------------------------------------------


@requirement("criteria.context")
async def test_a_criterion_sees_the_iteration_the_result_and_both_conversations():
    seen: list[CriterionContext] = []

    def criterion(ctx: CriterionContext) -> bool:
        seen.append(ctx)
        return ctx.iteration == 2

    agent = looping(LoopConfig(criteria=[criterion], refine_prompt="Again."))
    ask = [said("user", "old"), said("assistant", "hm"), said("user", "new")]
    await run_agent(agent, ask)
    first, second = seen
    assert (first.iteration, second.iteration) == (1, 2)
    assert (first.result.text, second.result.text) == ("answer 1", "answer 2")
    assert first.original_messages == second.original_messages == ask
    assert first.messages == [*ask, said("assistant", "answer 1")]
    assert second.messages == [
        *first.messages,
        said("user", "Again."),
        said("assistant", "answer 2"),
    ]
    assert {ctx.agent_name for ctx in seen} == {"tester"}
    assert {ctx.query for ctx in seen} == {"new"}


@requirement("criteria.context")
async def test_a_criterion_sees_all_feedback_given_so_far_oldest_first():
    logs: list[list[str]] = []

    def criterion(ctx: CriterionContext) -> Any:
        logs.append(list(ctx.feedback_log))
        return ((False, "one"), False, (False, "two"), True)[ctx.iteration - 1]

    await run_agent(looping(LoopConfig(criteria=[criterion])), ASK)
    assert logs == [[], ["one"], ["one"], ["one", "two"]]


@requirement("criteria.context", "holds.callers-messages")
async def test_what_a_criterion_does_to_its_messages_changes_nothing():
    def spoil(ctx: CriterionContext) -> bool:
        ctx.messages.clear()
        ctx.result.messages.append({"role": "user", "content": "spoilt"})
        ctx.original_messages[0]["content"] = "spoilt"
        return ctx.iteration == 2

    agent = looping(LoopConfig(criteria=[spoil]))
    result = await run_agent(agent, ASK)
    assert sent(agent, 1) == [*ASK, said("assistant", "answer 1"), said("user", DEFAULT)]
    assert "spoilt" not in repr(result.messages)
    assert [*ASK] == [said("user", "question")]


@requirement("refine.tools-once")
async def test_tools_are_discovered_once_a_run_and_given_ones_replace_the_agents():
    class Counting(list[Any]):
        reads = 0

        def __iter__(self):
            Counting.reads += 1
            return super().__iter__()

    agent = looping(LoopConfig(max_iterations=3), tools=[look])
    await run_agent(agent, ASK, tool_defs=Counting([look]))
    assert Counting.reads == 1
    assert [seen.tool_names for seen in model_of(agent).requests] == [["look"]] * 3
    bare = looping(LoopConfig(max_iterations=2), tools=[look])
    await run_agent(bare, ASK, tool_defs=[])
    assert [seen.tool_names for seen in model_of(bare).requests] == [[], []]
    own = looping(LoopConfig(max_iterations=2), tools=[look])
    await run_agent(own, ASK, tool_defs=None)
    assert [seen.tool_names for seen in model_of(own).requests] == [["look"]] * 2
    assert isinstance(own, Agent)
