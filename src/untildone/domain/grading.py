"""What those who judge the work say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from untildone.domain.attempts import Attempt
from untildone.domain.messages import Message
from untildone.domain.results import AgentResult


class LoopOutcome(StrEnum):
    """What becomes of a run that nothing accepted, or whose criterion raised (S3).

    The values are S3's JSON spelling.
    """

    RETURN_LAST_RESPONSE = "returnLastResponse"
    FAIL_RUN = "failRun"


@dataclass(slots=True)
class VerifierFeedback:
    """A grade with reasons (S1).

    Attributes:
        score: A real number in [0, 1].
        issues: What is wrong, one sentence each.
        suggestion: What to do next.
        converged: True or False decides; None means ``score >= threshold``.
    """

    score: float
    issues: list[str] = field(default_factory=list[str])
    suggestion: str = ""
    converged: bool | None = None


@dataclass(frozen=True, slots=True)
class CriterionVerdict:
    """What a stop criterion says of one iteration (S3).

    Attributes:
        satisfied: False asks for another iteration.
        feedback: What the agent is told when another iteration is asked for.
        messages: Messages in OpenAI form, sent verbatim instead of the feedback.
        undecided: Whether nobody knows, as when a judge's reply was unclear. With ``satisfied``
            False it asks for another iteration like a refusal, but ``not_`` does not turn it round.
    """

    satisfied: bool
    feedback: str | None = None
    messages: Sequence[dict[str, Any]] | None = None
    undecided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionContext:
    """What a criterion may know of the iteration it judges.

    Attributes:
        iteration: From 1.
        result: The iteration's result.
        original: The caller's messages; read them as ``original_messages``.
        feedback_log: All feedback given so far in the run, oldest first.
        agent_name: The agent's name.
        query: The text of the caller's last user message.
        model: The run's model for judges; calls through it are metered.
        attempts: The tool calls of each earlier iteration that made some, oldest first, also where
            the conversation does not have them any more: with a fresh context, after a merge.
    """

    iteration: int
    result: AgentResult
    original: tuple[Message, ...] = ()
    feedback_log: tuple[str, ...] = ()
    agent_name: str = ""
    query: str = ""
    model: Any = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation up to now, in OpenAI form."""
        return self.result.messages

    @property
    def original_messages(self) -> list[dict[str, Any]]:
        """The caller's messages, in OpenAI form; changing them changes nothing."""
        return [message.to_dict() for message in self.original]
