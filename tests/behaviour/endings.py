"""Every way in which a run can end: one agent for each, and what its caller and its queue get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    MaxTurnsError,
    ServerError,
    StuckPolicy,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
)
from untildone.testing import ScriptedModel, call, reply


@dataclass(frozen=True)
class Ending:
    """One way to end.

    Attributes:
        reason: The exit reason.
        agent: Makes an agent whose run ends so.
        raises: What the caller gets instead of a result.
        text: The text of the result, or of the best so far.
    """

    reason: ExitReason
    agent: Callable[[], Agent]
    raises: type[BaseException] | None = None
    text: str = "Hi."


async def look(where: str) -> str:
    return f"There is nothing in the {where}."


async def person_needed(tool: str, args: dict[str, Any]) -> None:
    """Leaves the decision to a person."""


def broken(_: Any) -> bool:
    raise ZeroDivisionError("the judge")


def never(_: Any) -> bool:
    return False


def always(_: Any) -> bool:
    return True


async def always_half(query: str, result: AgentResult) -> VerifierFeedback:
    return VerifierFeedback(0.5)


async def cancel_self(_: Any) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


def _looped(**settings: Any) -> Callable[[], Agent]:
    def make() -> Agent:
        return Agent("ada", ScriptedModel(lambda seen: "Hi."), loop_config=LoopConfig(**settings))

    return make


def _looking(**settings: Any) -> Callable[[], Agent]:
    def make() -> Agent:
        model = ScriptedModel(lambda seen: reply("Hi.", call("look", where="attic")))
        return Agent("ada", model, tools=[look], **settings)

    return make


def _failing_second(line: Any) -> Callable[[], Agent]:
    """One finished turn, then this line."""

    def make() -> Agent:
        model = ScriptedModel([reply("Hi.", call("look", where="attic")), line])
        return Agent("ada", model, tools=[look])

    return make


GRADED = Verifier(VerifierConfig(evaluate_fn=always_half))
FAIL = LoopOutcome.FAIL_RUN

ENDINGS: dict[str, Ending] = {
    "satisfied": Ending(ExitReason.SATISFIED, lambda: Agent("ada", ScriptedModel(["Hi."]))),
    "max_turns": Ending(ExitReason.MAX_TURNS, _looking(max_turns=2)),
    "stuck": Ending(ExitReason.STUCK, _looking(stuck=StuckPolicy(action="stop"))),
    "awaiting_approval": Ending(
        ExitReason.AWAITING_APPROVAL, _looking(hooks=AgentHooks(approve_tool=person_needed))
    ),
    "converged": Ending(ExitReason.CONVERGED, _looped(convergence_fn=always)),
    "plateau": Ending(
        ExitReason.PLATEAU, _looped(verifier=GRADED, adaptive=True, max_iterations=9)
    ),
    "max_iterations": Ending(ExitReason.MAX_ITERATIONS, _looped(max_iterations=2)),
    "criterion_error": Ending(ExitReason.CRITERION_ERROR, _looped(criteria=[broken])),
    "max_turns raising": Ending(
        ExitReason.MAX_TURNS, _looking(max_turns=2, on_max_turns="raise"), MaxTurnsError
    ),
    "stop_condition": Ending(
        ExitReason.STOP_CONDITION, _looped(stop_condition=always), LoopConvergedError
    ),
    "unsatisfied": Ending(
        ExitReason.UNSATISFIED,
        _looped(convergence_fn=never, max_iterations=2, on_exhausted=FAIL),
        LoopUnsatisfiedError,
    ),
    "criterion_error raising": Ending(
        ExitReason.CRITERION_ERROR,
        _looped(criteria=[broken], on_criterion_error=FAIL),
        ZeroDivisionError,
    ),
    "error of ours": Ending(ExitReason.ERROR, _failing_second(ServerError("503")), ServerError),
    "foreign error": Ending(
        ExitReason.ERROR, _failing_second(ZeroDivisionError("the model")), ZeroDivisionError
    ),
    "cancelled": Ending(ExitReason.CANCELLED, _failing_second(cancel_self), asyncio.CancelledError),
}
RETURNED = {name: ending for name, ending in ENDINGS.items() if ending.raises is None}
RAISED = {name: ending for name, ending in ENDINGS.items() if ending.raises is not None}


def each(endings: dict[str, Ending]) -> pytest.MarkDecorator:
    """Parametrizes a test over endings."""
    return pytest.mark.parametrize("ending", [pytest.param(e, id=n) for n, e in endings.items()])
