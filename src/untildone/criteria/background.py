"""``backgroundTaskCompletion``: done when what the agent started in the background has ended."""

from __future__ import annotations

from typing import Final

from untildone.criteria.own_messages import own_messages
from untildone.domain.bounds import check_number
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.tools.background import BackgroundTasks, ended, in_words, told_of


class BackgroundTaskCompletion:
    """Done when every background task of the run has ended and the agent knows how (S3).

    It waits for tasks that still run, which costs no model call; then another iteration is asked
    for with what they gave, if the agent has not been told. Failed and lost tasks have ended.

    Args:
        background: The tasks that the agent can start.
        wait_s: Most seconds to wait in one evaluation, 0 or more; tasks that run longer cost
            another iteration.

    Raises:
        ConfigError: ``background`` is no ``BackgroundTasks``, or ``wait_s`` is out of bounds.
    """

    kind: Final = "backgroundTaskCompletion"

    __slots__ = ("background", "wait_s")

    def __init__(self, background: BackgroundTasks, *, wait_s: float = 600.0) -> None:
        if not isinstance(background, BackgroundTasks):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"BackgroundTaskCompletion takes BackgroundTasks, not {background!r:.80}"
            )
        check_number("BackgroundTaskCompletion.wait_s", wait_s)
        self.background = background
        self.wait_s = wait_s

    def __repr__(self) -> str:
        return f"BackgroundTaskCompletion({self.background!r})"

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Waits for the tasks, then looks whether the agent knows how they ended."""
        messages = own_messages(ctx)
        tasks = self.background.tasks_of(ctx.result.run_id, messages)
        await ended(tasks, self.wait_s)
        running = [task for task in tasks if task.state == "running"]
        told = told_of(messages, ctx.feedback_log)
        news = [task for task in tasks if task.state != "running" and task.id not in told]
        if not running and not news:
            return CriterionVerdict(satisfied=True)
        lines = ["How the tasks stand that you started in the background:", in_words(news)]
        if running:
            lines[1:] = [in_words([*news, *running])]
            lines.append("Wait for those that still run with background_wait.")
        lines.append("Use what they gave, and give your complete answer.")
        return CriterionVerdict(satisfied=False, feedback="\n".join(lines))
