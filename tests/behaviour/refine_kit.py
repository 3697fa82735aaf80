"""What the tests of the refine loop and of its state share: judges that keep no count of their own.

A judge here speaks by the number of the iteration it is shown, never by how often it was asked, so
that a resumed or a concurrent run hears the same of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from untildone import (
    Agent,
    AgentResult,
    CriterionContext,
    EventType,
    LoopConfig,
    StreamEvent,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    partial_result,
    run_agent,
)
from untildone.testing import ScriptedModel, SeenRequest

T = TypeVar("T")

ASK: Final[list[dict[str, Any]]] = [{"role": "user", "content": "question"}]


def numbered(seen: SeenRequest) -> str:
    """A whole script: the n-th call is answered with ``answer n``."""
    return f"answer {seen.index + 1}"


def looping(loop: LoopConfig | None, script: Any = numbered, **settings: Any) -> Agent:
    """An agent on a scripted model, with a refine loop."""
    return Agent("tester", ScriptedModel(script), loop_config=loop, **settings)


def loop_of(**settings: Any) -> LoopConfig:
    """A loop config from settings whose names are made up at run time."""
    return LoopConfig(**settings)


def in_turn(*values: T | BaseException | type[BaseException]) -> Callable[[AgentResult], T]:
    """A predicate that gives, or raises, its n-th value in iteration n."""

    def of_iteration(result: AgentResult) -> T:
        return _given(values[result.loop_iterations - 1])

    return of_iteration


def judging(*values: T | BaseException | type[BaseException]) -> Callable[[CriterionContext], T]:
    """A criterion that gives, or raises, its n-th value in iteration n."""

    def of_iteration(ctx: CriterionContext) -> T:
        return _given(values[ctx.iteration - 1])

    return of_iteration


def scoring(
    *grades: float | VerifierFeedback | BaseException,
    threshold: float = 0.8,
    confirmations: int = 0,
) -> Verifier:
    """A verifier that gives, or raises, its n-th grade in iteration n."""

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        given = _given(grades[result.loop_iterations - 1])
        return given if isinstance(given, VerifierFeedback) else VerifierFeedback(given)

    return Verifier(
        VerifierConfig(evaluate_fn=grade, threshold=threshold, confirmations=confirmations)
    )


def _given(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    if isinstance(value, type) and issubclass(value, BaseException):
        raise value
    return value


def result_of(error: BaseException) -> AgentResult:
    """The result that an exception which left a run carries."""
    result = partial_result(error)
    assert result is not None
    return result


async def run_and_watch(
    agent: Agent, messages: list[dict[str, Any]] | None = None
) -> tuple[AgentResult | Exception, list[StreamEvent]]:
    """What a run gave or raised, and all that its queue held; the end mark is checked."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    outcome: AgentResult | Exception
    try:
        outcome = await run_agent(agent, ASK if messages is None else messages, queue=queue)
    except Exception as error:
        outcome = error
    shown = [queue.get_nowait() for _ in range(queue.qsize())]
    assert shown.pop() is None
    assert None not in shown
    return outcome, shown


async def iterations_of(agent: Agent) -> list[dict[str, Any]]:
    """The payloads of a run's LOOP_ITERATION events."""
    _, shown = await run_and_watch(agent)
    return [event.data for event in shown if event.event is EventType.LOOP_ITERATION]


def sent(agent: Agent, index: int) -> list[dict[str, Any]]:
    """The messages of the agent's n-th model request, from 0."""
    return model_of(agent).requests[index].messages


def model_of(agent: Agent) -> ScriptedModel:
    """The scripted model of an agent."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def said(role: str, content: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content}
