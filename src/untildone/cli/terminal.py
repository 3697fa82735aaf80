"""Progress for people, on stderr: lines that stay, and on a terminal one that moves."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from untildone.agent import criterion_name
from untildone.cli.outcome import Outcome
from untildone.cli.plan import Plan
from untildone.cli.text import counted, in_short, one_line, shown_call, shown_text
from untildone.cli.until import shown_condition
from untildone.cli.view import cut_in_words, ending_in_words, write_answer
from untildone.domain.exits import ExitReason
from untildone.domain.log import (
    AgentRunEnded,
    CriterionJudged,
    Graded,
    IterationEnded,
    IterationStarted,
    LogEvent,
    ModelCallReplied,
    ModelCallStarted,
    Nudged,
    Purpose,
)
from untildone.domain.stream import EventType, StreamEvent

_FEEDBACK_LINES: Final = 8
_REFRESHES_A_SECOND: Final = 8
_LEAST_TAIL: Final = 10


class TerminalView:
    """Shows a run line by line; without a terminal the same lines, plain."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._status = _Status()
        self._live: Live | None = None
        self._ceiling = 0
        self._last_purpose: Purpose = "worker"
        self._unread = ""
        self._last_cause = ""

    def started(self, plan: Plan) -> None:
        """Says what is run, and until when."""
        agent, loop = plan.agent, plan.agent.loop_config
        model = agent.model if isinstance(agent.model, str) else agent.model.name
        if loop is not None:
            self._ceiling = loop.max_iterations
        until = " and ".join(_conditions(plan))
        self._line(one_line(f"{model}{f' · until {until}' if until else ''}", 300), "bold")
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                self._status,
                console=self._console,
                refresh_per_second=_REFRESHES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def show(self, event: StreamEvent | LogEvent) -> None:
        """Shows an event, if it means something to a person."""
        if isinstance(event, StreamEvent):
            self._show_live(event)
        else:
            self._show_logged(event)

    def say(self, line: str) -> None:
        """Writes a line of our own."""
        self._line(line, "yellow")

    def ended(self, outcome: Outcome) -> None:
        """Says why it ended; the answer goes to stdout."""
        self.close()
        mark, style = ("✓", "bold green") if outcome.is_done else ("✗", "bold red")
        if outcome.reason is ExitReason.CANCELLED:
            mark, style = "■", "bold yellow"
        elif outcome.is_done and cut_in_words(outcome):
            mark, style = "!", "bold yellow"
        write_answer(outcome.text)
        self._line(f"{mark} {ending_in_words(outcome)}", style)

    def close(self) -> None:
        """Wipes the line that moves and gives the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show_live(self, event: StreamEvent) -> None:
        data = event.data
        match event.event:
            case EventType.TEXT_DELTA:
                self._status.add_text(data["chunk"])
            case EventType.TOOL_CALL:
                self._line(f"  → {shown_call(data['tool'], data['args'], self._width)}")
            case EventType.TOOL_RESULT:
                style = "red" if data.get("is_error") else "dim"
                self._line(f"  ← {in_short(data['result'], self._width)}", style)
            case EventType.TOOL_DENIED:
                self._line(f"  ← denied: {in_short(data['result'], self._width)}", "yellow")
            case EventType.RETRY_ATTEMPT:
                wait = f"in {data['delay']:.1f} s: " if data["delay"] else ""
                self._line(f"  ! trying again {wait}{self._cause(data['error'])}", "yellow")
            case EventType.FALLBACK_TRIGGERED:
                text = f"{data['to_model']} takes over: {one_line(data['error'], 300)}"
                self._line(f"  ! {text}", "yellow")
            case _:
                return

    def _show_logged(self, event: LogEvent) -> None:
        match event:
            case IterationStarted():
                number = event.at.iteration
                self._status.where = f"iteration {number} of {self._ceiling}"
                self._line(f"iteration {number} of {self._ceiling}", "bold")
            case ModelCallStarted():
                self._status.begin_call(event.purpose, event.at.turn)
            case ModelCallReplied():
                self._status.tokens += event.usage.input_tokens + event.usage.output_tokens
                self._replied(event)
            case Nudged():
                self._line(f"  ! nudged: {one_line(event.evidence, self._width)}", "yellow")
            case AgentRunEnded() if self._ceiling:
                self._status.begin_call("checking", 0)
                if event.reason is not ExitReason.SATISFIED:
                    self._line(f"  ! {event.reason.value}: {event.reason.in_words}", "yellow")
            case CriterionJudged():
                self._judged(event.name, event.feedback, satisfied=event.satisfied)
            case IterationEnded() if event.failed_criterion is not None:
                self._line(f"  ✗ {event.failed_criterion}: it failed", "red")  # why: the last line
            case Graded():
                feedback = "\n".join([*event.issues, event.suggestion])
                self._judged(f"score {event.score:.2f}", feedback, satisfied=event.converged)
            case _:
                return

    def _cause(self, error: str) -> str:
        """Why a call is tried again: in whole the first time, then only that it is the same."""
        is_known, self._last_cause = error == self._last_cause, error
        return "the same error" if is_known else one_line(error, 300)

    def _replied(self, event: ModelCallReplied) -> None:
        """Shows the beginning of a draft; keeps what a judge said when asked once more."""
        self._last_cause = ""
        asked_again = event.purpose == "repair" and self._last_purpose == "judge"
        self._unread = event.message.text if asked_again else ""
        self._last_purpose = event.purpose
        if event.purpose == "worker" and self._ceiling and not event.message.tool_calls:
            self._line(f"  » {in_short(event.message.text, self._width - 2)}")

    def _judged(self, name: str, feedback: str | None, *, satisfied: bool) -> None:
        unread, self._unread = self._unread, ""
        if satisfied:
            self._line(f"  ✓ {name}", "green")
            return
        self._line(f"  ✗ {name}: not yet", "yellow")
        lines = shown_text(feedback or "").strip().splitlines()
        if len(lines) > _FEEDBACK_LINES:
            lines = [lines[0], "…", *lines[2 - _FEEDBACK_LINES :]]
        if unread:
            lines.append(f"The judge said: {in_short(unread, self._width - 18)}")
        for line in lines:
            self._line(f"    {line}", "dim")

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))

    @property
    def _width(self) -> int:
        return max(40, self._console.width - 4) if self._console.is_terminal else 200


def _conditions(plan: Plan) -> list[str]:
    """What has to hold before the work is done, whoever has asked for it."""
    loop = plan.agent.loop_config
    if loop is None:
        return []
    named = {id(until.criterion): until.shown for until in plan.untils if until.shown}
    shown = [named.get(id(each)) or shown_condition(each) for each in loop.criteria]
    if loop.verifier is not None:
        threshold = getattr(loop.verifier, "threshold", None)
        shown.insert(0, "the score passes" if threshold is None else f"score {threshold:g}")
    if loop.convergence_fn is not None:
        shown.insert(0, criterion_name(loop.convergence_fn))
    return shown


class _Status:
    """The line that moves: where the run is, how long, how much, and the text as it comes."""

    def __init__(self) -> None:
        self.where = ""
        self.tokens = 0
        self._call = "starting"
        self._text = ""
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def begin_call(self, purpose: str, turn: int) -> None:
        """A model call was sent."""
        self._call = f"turn {turn}" if purpose == "worker" else purpose
        self._text = ""

    def add_text(self, chunk: str) -> None:
        """The model wrote something."""
        self._text = (self._text + chunk)[-400:]

    def __rich_console__(self, console: Console, options: Any) -> Any:
        seconds = time.monotonic() - self._began
        parts = [self.where, self._call, counted(self.tokens, "token"), f"{seconds:.0f} s"]
        head = " · ".join(part for part in parts if part)
        room = options.max_width - len(head) - 5
        tail = " ".join(shown_text(self._text).split())
        if room > _LEAST_TAIL and tail:
            head = f"{head}  {tail[-room:]}"
        self._spinner.text = Text(head[: options.max_width - 3], style="dim", no_wrap=True)
        yield self._spinner
