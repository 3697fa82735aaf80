"""What the agent is told between two iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from untildone.domain.log import Graded
from untildone.domain.messages import Message, message_from_dict, user_message
from untildone.policy.cutting import cut_text
from untildone.policy.rules import LoopRules
from untildone.policy.state import RunState

MAX_FEEDBACK_CHARS: Final = 20_000
"""Most characters of one feedback that are sent."""
MAX_ISSUE_CHARS: Final = 4_000
"""Most characters of one issue or suggestion that are sent."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the one that asked for another iteration has to say, if anything."""

    text: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None


NO_FEEDBACK = Feedback()


def has_feedback(state: RunState) -> bool:
    """Whether ``winning_feedback`` is anything, without putting it into words."""
    if state.verdicts and not state.verdicts[-1].satisfied:
        judged = state.verdicts[-1]
        return bool(judged.feedback) or judged.messages is not None
    grade = state.grade
    return grade is not None and not grade.converged and bool(grade.issues or grade.suggestion)


def winning_feedback(state: RunState) -> Feedback:
    """The feedback of the one that asked for another iteration.

    That is the criterion that was not satisfied; else the verifier, where it graded.
    """
    if state.verdicts and not state.verdicts[-1].satisfied:
        judged = state.verdicts[-1]
        text = judged.feedback and cut_text(judged.feedback, MAX_FEEDBACK_CHARS)
        return Feedback(text or None, judged.messages)
    if state.grade is not None and not state.grade.converged:
        return Feedback(grade_in_words(state.grade) or None)
    return NO_FEEDBACK


def grade_in_words(grade: Graded) -> str:
    """A grade's issues and suggestion as an instruction, or ``""`` if it has neither."""
    if not grade.issues and not grade.suggestion:
        return ""
    lines = ["A reviewer did not accept your answer yet."]
    if grade.issues:
        lines += ["Issues:", *(f"- {cut_text(issue, MAX_ISSUE_CHARS)}" for issue in grade.issues)]
    if grade.suggestion:
        lines.append(f"Suggestion: {cut_text(grade.suggestion, MAX_ISSUE_CHARS)}")
    lines.append("Give your complete, improved answer.")
    return cut_text("\n".join(lines), MAX_FEEDBACK_CHARS)


def refine_messages(
    loop: LoopRules, feedback: Feedback, earlier_feedback: Sequence[str]
) -> tuple[Message, ...]:
    """The messages the next iteration begins with, after the carried or the original ones.

    A criterion's own messages go verbatim. A fresh context gets one log of all feedback instead of
    the last one; with no feedback at all, ``refine_prompt``; with an empty one, nothing.
    """
    if feedback.messages is not None:
        own = tuple(message_from_dict(form, where="verdict.messages") for form in feedback.messages)
        return (*_feedback_log(earlier_feedback), *own) if loop.fresh_context else own
    if loop.fresh_context:
        known = [*earlier_feedback, feedback.text] if feedback.text else list(earlier_feedback)
        if known:
            return _feedback_log(known)
        text = loop.refine_prompt
    else:
        text = feedback.text or loop.refine_prompt
    return (user_message(text),) if text else ()


def _feedback_log(feedback: Sequence[str | None]) -> tuple[Message, ...]:
    entries = [entry for entry in feedback if entry]
    if not entries:
        return ()
    lines = [f"Attempt {number}: {entry}" for number, entry in enumerate(entries, 1)]
    return (user_message("Feedback on earlier attempts:\n" + "\n".join(lines)),)
