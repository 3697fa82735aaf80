"""The beginning of a run: what its agent and its caller gave, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from untildone.agent import Agent, LoopConfig, criterion_name
from untildone.domain.grading import LoopOutcome
from untildone.domain.messages import Message
from untildone.domain.tools import ToolSpecs
from untildone.policy.rules import LoopRules, RunRules
from untildone.policy.stuck import StuckPolicy


def rules_for(agent: Agent, loop: LoopConfig | None, specs: ToolSpecs) -> RunRules:
    """All that decisions need to know of an agent."""
    return RunRules(
        max_turns=agent.max_turns,
        has_output=agent.response_model is not None,
        raise_on_max_turns=agent.on_max_turns == "raise",
        stuck=agent.stuck,
        traits={spec.name: spec.traits for spec in specs.specs},
        loop=None if loop is None else _loop_rules(loop),
    )


def _loop_rules(loop: LoopConfig) -> LoopRules:
    verifier = loop.verifier
    return LoopRules(
        max_iterations=loop.max_iterations,
        has_verifier=verifier is not None,
        has_convergence_fn=loop.convergence_fn is not None,
        has_stop_condition=loop.stop_condition is not None,
        criteria=tuple(criterion_name(criterion) for criterion in loop.criteria),
        confirmations=getattr(verifier, "confirmations", 0),
        adaptive=loop.adaptive,
        min_improvement=loop.min_improvement,
        plateau_patience=loop.plateau_patience,
        branches=loop.branches,
        branch_early_stop=loop.branch_early_stop and verifier is not None,
        votes=loop.branch_vote is not None and loop.branches > 1,
        fresh_context=loop.fresh_context,
        refine_prompt=loop.refine_prompt,
        fail_when_exhausted=loop.on_exhausted is LoopOutcome.FAIL_RUN,
        fail_on_criterion_error=loop.on_criterion_error is LoopOutcome.FAIL_RUN,
        evaluate_final=loop.evaluate_final,
    )


def query_of(messages: Sequence[Message]) -> str:
    """The query of a run: the text of the caller's last user message, ``""`` if there is none."""
    for message in reversed(messages):
        if message.role == "user":
            return message.text
    return ""


def fingerprint_of(agent: Agent, model_name: str, rules: RunRules, specs: ToolSpecs) -> str:
    """Tells one configuration from another, so that a log is not resumed with another agent.

    Callables count by being there and by name; what they do cannot be seen.
    """
    known = {
        "agent": agent.name,
        "model": model_name,
        "system_prompt": agent.system_prompt,
        "temperature": agent.temperature,
        "max_tokens": agent.max_tokens,
        "extra_params": _data(agent.extra_params),
        "tools": [spec.to_dict() for spec in specs.specs],
        "rules": {
            name: _data(getattr(rules, name))
            for name in ("max_turns", "raise_on_max_turns", "has_output", "stuck", "loop")
        },
    }
    encoded = json.dumps(known, sort_keys=True, default=str).encode()
    from hashlib import sha256  # only needed where a log is kept

    return sha256(encoded).hexdigest()[:32]


def _data(value: object) -> Any:
    if isinstance(value, LoopRules | StuckPolicy):
        return {name: getattr(value, name) for name in type(value).__slots__}
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
