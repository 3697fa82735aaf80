"""``backgroundTaskCompletion``: done when what the agent started in the background has ended."""

from __future__ import annotations

from typing import Final

from untildone.criteria.own_messages import own_messages
from untildone.domain.bounds import check_number
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.policy.feedback import MAX_FEEDBACK_CHARS
from untildone.tools.background import BackgroundTasks, ended, in_words, told_of

_HEAD: Final = "How the tasks stand that you started in the background:"


class BackgroundTaskCompletion:
    """Done when every background task of the run has ended and the agent knows how (S3).

    It waits for tasks that still run, which costs no model call; then another iteration is asked
    for with what they gave, if the agent has not been told. Failed and lost tasks have ended.
    Where there is no room for all reports, the agent can read the others with ``background_wait``;
    only one that it was given as a whole counts as told.

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
        earlier = [message for attempt in ctx.attempts for message in attempt.messages]
        tasks = self.background.tasks_of(ctx.result.run_id, [*earlier, *messages])
        await ended(tasks, self.wait_s)
        running = [task for task in tasks if task.state == "running"]
        told = told_of(tasks, messages, ctx.feedback_log)
        news = [task for task in tasks if task.state != "running" and task.id not in told]
        if not running and not news:
            return CriterionVerdict(satisfied=True)
        below = ["Use what they gave, and give your complete answer."]
        if running:
            below.insert(0, "Wait for those that still run with background_wait.")
        room = MAX_FEEDBACK_CHARS - sum(len(line) + 1 for line in (_HEAD, *below))
        feedback = "\n".join([_HEAD, in_words([*news, *running], room), *below])
        return CriterionVerdict(satisfied=False, feedback=feedback)
