"""The settings of a run as plain data: all that decisions need to know of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from untildone.domain.tools import ToolTraits
from untildone.policy.stuck import StuckPolicy

DEFAULT_REFINE_PROMPT: Final = (
    "Your answer is incomplete. Please search for more information and expand your response."
)
"""S1's default, word for word."""

DEFAULT_THRESHOLD: Final = 0.8
"""S1's: the score from which an answer passes where a grader names none."""

DEFAULT_STUCK_POLICY: Final = StuckPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRules:
    """The refine loop's settings; callables are reduced to whether they are there."""

    max_iterations: int = 5
    has_verifier: bool = False
    has_convergence_fn: bool = False
    has_stop_condition: bool = False
    criteria: tuple[str, ...] = ()
    confirmations: int = 0
    adaptive: bool = False
    min_improvement: float = 0.02
    plateau_patience: int = 2
    branches: int = 1
    branch_early_stop: bool = False
    votes: bool = False
    fresh_context: bool = False
    refine_prompt: str = DEFAULT_REFINE_PROMPT
    fail_when_exhausted: bool = False
    fail_on_criterion_error: bool = False
    evaluate_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """The settings of a whole run; ``loop`` is None for one agent run."""

    max_turns: int = 10
    has_output: bool = False
    raise_on_max_turns: bool = False
    stuck: StuckPolicy = DEFAULT_STUCK_POLICY
    traits: Mapping[str, ToolTraits] = field(default_factory=dict[str, ToolTraits])
    loop: LoopRules | None = None
