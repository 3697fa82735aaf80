"""Between two iterations: the decision about one, and what the next is told."""

from __future__ import annotations

from untildone.domain.log import Refined
from untildone.engine.context import Run
from untildone.engine.remembering import record_episode
from untildone.policy.feedback import refine_messages, winning_feedback
from untildone.policy.iteration import decide


async def close_iteration(run: Run) -> None:
    """Records the decision about the current iteration."""
    ended = decide(run.state, run.loop_rules, run.at())
    await record_episode(run, ended)
    await run.record(ended)


async def refine_for_next(run: Run) -> None:
    """Records what the next iteration is told."""
    state = run.state
    feedback = winning_feedback(state)
    messages = refine_messages(run.loop_rules, feedback, state.feedback_log)
    await run.record(Refined(run.at(), feedback.text, messages))
