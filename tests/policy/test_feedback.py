"""What is said between two iterations, as text."""

from __future__ import annotations

import pytest

from untildone.domain.log import At, CriterionJudged, Graded
from untildone.domain.messages import user_message
from untildone.policy.feedback import (
    NO_FEEDBACK,
    Feedback,
    grade_in_words,
    has_feedback,
    refine_messages,
    winning_feedback,
)
from untildone.policy.rules import LoopRules, RunRules
from untildone.policy.state import RunState

HERE = At("run", 1)
KEEPING = LoopRules(refine_prompt="Again.")
FRESH = LoopRules(refine_prompt="Again.", fresh_context=True)


def grade(*issues: str, suggestion: str = "", converged: bool = False) -> Graded:
    return Graded(HERE, 0.5, issues, suggestion, converged=converged)


def state(graded: Graded | None = None, *verdicts: CriterionJudged) -> RunState:
    return RunState(RunRules(loop=KEEPING), grade=graded, verdicts=list(verdicts))


def refused(feedback: str | None = None, messages=None) -> CriterionJudged:
    return CriterionJudged(HERE, 0, "c", False, feedback, messages)


def test_nobody_spoke_nobody_is_quoted():
    assert winning_feedback(state()) == NO_FEEDBACK
    assert has_feedback(state()) is False


def test_a_criterion_that_refused_speaks_for_itself_even_if_it_says_nothing():
    assert winning_feedback(state(grade("no source"), refused("too long"))).text == "too long"
    assert has_feedback(state(grade("no source"), refused())) is False
    assert has_feedback(state(grade("no source"), refused(""))) is False


def test_a_satisfied_criterion_says_nothing():
    satisfied = CriterionJudged(HERE, 0, "c", True, "fine")
    assert winning_feedback(state(None, satisfied)) == NO_FEEDBACK


def test_a_refusing_grade_speaks_and_a_passing_one_does_not():
    assert "no source" in (winning_feedback(state(grade("no source"))).text or "")
    assert winning_feedback(state(grade("no source", converged=True))) == NO_FEEDBACK


def test_a_grade_without_words_gives_none():
    assert grade_in_words(grade()) == ""
    assert has_feedback(state(grade())) is False


@pytest.mark.parametrize("graded", [None, grade(), grade("a"), grade(suggestion="b")])
@pytest.mark.parametrize(
    "verdicts", [[], [refused()], [refused("no")], [refused("")], [refused(messages=())]]
)
def test_whether_there_is_feedback_is_known_without_its_words(
    graded: Graded | None, verdicts: list[CriterionJudged]
):
    said = winning_feedback(state(graded, *verdicts))
    assert has_feedback(state(graded, *verdicts)) is (
        said.text is not None or said.messages is not None
    )


def test_a_grade_in_words_names_each_issue_on_a_line_of_its_own():
    lines = grade_in_words(grade("no source", "no date", suggestion="cite")).splitlines()
    assert sum(line.endswith("no source") for line in lines) == 1
    assert sum(line.endswith("no date") for line in lines) == 1
    assert sum(line.endswith("cite") for line in lines) == 1


def test_feedback_replaces_the_refine_prompt():
    assert refine_messages(KEEPING, Feedback("too long"), ["old"]) == (user_message("too long"),)
    assert refine_messages(KEEPING, NO_FEEDBACK, ["old"]) == (user_message("Again."),)


def test_an_empty_prompt_without_feedback_is_no_message():
    assert refine_messages(LoopRules(refine_prompt=""), NO_FEEDBACK, []) == ()
    empty = LoopRules(refine_prompt="", fresh_context=True)
    assert refine_messages(empty, NO_FEEDBACK, []) == ()


def test_a_fresh_context_gets_all_feedback_in_one_message():
    (message,) = refine_messages(FRESH, Feedback("third"), ["first", "second"])
    text = message.text
    assert message.role == "user"
    assert text.index("first") < text.index("second") < text.index("third")
    assert "Again." not in text


def test_a_fresh_context_repeats_the_earlier_feedback_where_the_last_one_said_nothing():
    assert refine_messages(FRESH, NO_FEEDBACK, ["first"]) == refine_messages(
        FRESH, Feedback("first"), []
    )


def test_a_criterions_own_messages_go_verbatim():
    own = ({"role": "user", "content": "mine", "name": "ann"},)
    (message,) = refine_messages(KEEPING, Feedback("not sent", own), ["old"])
    assert message.to_dict() == own[0]
    log, own_message = refine_messages(FRESH, Feedback("not sent", own), ["old"])
    assert "old" in log.text
    assert "not sent" not in log.text
    assert own_message.to_dict() == own[0]
