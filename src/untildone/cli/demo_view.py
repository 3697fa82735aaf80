"""The demo on a terminal, with a line that moves; anywhere else the same lines, plain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from untildone.cli.text import counted, in_short, shown_call, shown_text
from untildone.domain.exits import ExitReason
from untildone.domain.log import LogEvent, ModelCallReplied, Nudged, ToolFinished
from untildone.domain.results import AgentResult
from untildone.domain.usage import Usage
from untildone.policy.outcome import shown_arguments

_REFINING: Final = (
    "A language model of 135 million parameters, on this machine and offline, is to extract name,"
    " city and age from {sentences}. It errs often. Each sentence is one run of the refine loop:"
    " a check looks whether every value stands in the sentence, and where one does not, the model"
    " tries again from the beginning, {tries} times at most."
)
_TURNING: Final = (
    "An agent with a tool, on a scripted model that repeats a call which brings nothing new. The"
    " stuck detector sees it and tells the agent, once. Would it go on, the run would be stopped."
)
_AFTER: Final = (
    'Now yours: untildone run "TASK" --model local/smollm2 --until "marker:TEXT"'
    " (untildone doctor says which models are at hand)"
)
_REFRESHES_A_SECOND: Final = 8


@dataclass(slots=True)
class Tally:
    """What came of the sentences, held against what is really in them."""

    sentences: int = 0
    right_at_first: int = 0
    right: int = 0
    passed_but_wrong: int = 0
    given_up: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, *, right_at_first: bool, right: bool, accepted: bool, tokens: int) -> None:
        """Counts one sentence."""
        self.sentences += 1
        self.right_at_first += right_at_first
        self.right += right and accepted
        self.passed_but_wrong += accepted and not right
        self.given_up += not accepted
        self.tokens += tokens


class DemoView:
    """Shows the demo. Use it around the demo: leaving it ends the line that moves.

    Args:
        console: Default: stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._status = _Status()
        self._live: Live | None = None
        self._sentences = 0
        self._tries = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                self._status,
                console=self._console,
                refresh_per_second=_REFRESHES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        """Writes a line that belongs to no part."""
        self._line(line, "yellow")

    def stopped(self) -> None:
        """The person has stopped it."""
        self._line(f"■ {ExitReason.CANCELLED.value}: {ExitReason.CANCELLED.in_words}", "yellow")

    # ── The refine loop ──────────────────────────────────────────────────────────────────────────

    def begins_refining(self, sentences: int, tries: int) -> None:
        """The first part is about to begin."""
        self._sentences, self._tries = sentences, tries
        self._line("1  The refine loop, on a real model", "bold")
        what = counted(sentences, "sentence")
        self._line(_REFINING.format(sentences=what, tries=tries), indent=3)
        self._status.text = "starting the model"

    def model_started(self, seconds: float) -> None:
        """The model can be asked."""
        self._line(f"The model is loaded: {seconds:.1f} s.", "dim", indent=3)

    def sentence(self, number: int, text: str) -> None:
        """The next sentence."""
        if number == 1:
            self._line()
        self._line(f"{number} of {self._sentences}  {text}", "bold", indent=3)
        self._status.begin(f"sentence {number} of {self._sentences}")

    def trying(self, iteration: int) -> None:
        """An iteration begins."""
        self._status.text = f"try {iteration} of {self._tries}"

    def spent(self, usage: Usage) -> None:
        """A model call has cost something."""
        self._status.tokens += usage.input_tokens + usage.output_tokens

    def tried(self, iteration: int, answer: str, fault: str | None) -> None:
        """An iteration was judged; ``fault`` is what the check said, if it refused."""
        shown = f"try {iteration}  {in_short(answer, 200)}"
        if fault is None:
            self._line(f"✓ {shown}  (accepted)", "green", indent=5)
        else:
            self._line(f"✗ {shown}  (refused: {shown_text(fault)})", "yellow", indent=5)

    def sentence_ended(self, result: AgentResult, seconds: float, mistake: str | None) -> None:
        """A run is over; ``mistake`` is what is really wrong with the answer, if anything."""
        facts = [
            _in_words(result),
            counted(result.loop_iterations, "iteration"),
            counted(result.total_tokens, "token"),
            f"{seconds:.1f} s",
        ]
        self._line(" · ".join(facts), "dim", indent=5)
        if mistake is not None and result.exit_reason is ExitReason.CONVERGED:
            self._line(
                f"! it passed the check and is wrong: {shown_text(mistake)}", "red", indent=5
            )

    def summed_up(self, tally: Tally) -> None:
        """What came of all of it."""
        self._status.begin("")
        rows = [
            ("right at the first try", f"{tally.right_at_first} of {tally.sentences}", "bold"),
            ("right after the loop", f"{tally.right} of {tally.sentences}", "bold green"),
            ("passed the check, but wrong", str(tally.passed_but_wrong), "red"),
            (f"given up after {self._tries} tries", str(tally.given_up), "yellow"),
            ("seconds", f"{tally.seconds:.1f}", ""),
            ("tokens", f"{tally.tokens:,}", ""),
        ]
        self._line()
        for name, value, style in rows:
            self._line(f"{name:<30}{value:>9}", "" if value == "0" else style, indent=3)

    # ── The turn loop ────────────────────────────────────────────────────────────────────────────

    def begins_turns(self, task: str) -> None:
        """The second part is about to begin."""
        self._line()
        self._line("2  The turn loop, with a tool", "bold")
        self._line(_TURNING, indent=3)
        self._line()
        self._line(task, "bold", indent=3)

    def turn_log(self) -> _Turns:
        """Takes the log of the run and shows it."""
        return _Turns(self)

    def turns_ended(self, result: AgentResult) -> None:
        """The second run is over."""
        self._line(f"✓ {result.text}", "green", indent=5)
        facts = [_in_words(result), counted(result.turns, "turn")]
        self._line(" · ".join(facts), "dim", indent=5)
        self._line()
        self._line(_AFTER)

    def called(self, call: str, answer: str) -> None:
        """A tool was called and has answered."""
        self._line(f"→ {call}", indent=5)
        self._line(f"← {answer}", "dim", indent=5)

    def nudged(self, event: Nudged) -> None:
        """The stuck detector has spoken."""
        self._line(f"! nudged: {in_short(event.evidence, 300)}", "yellow", indent=5)
        self._line(f"told: {in_short(event.text, 300)}", "yellow", indent=7)

    def _line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        if self._console.is_terminal:
            line = Padding(Text(text, style=style), (0, 0, 0, indent), expand=False)
            self._console.print(line)
        else:
            self._console.print(Text(" " * indent + text if text else ""), soft_wrap=True)


@dataclass(slots=True)
class _Turns:
    """Shows each call with its answer, and the nudge."""

    view: DemoView
    _calls: dict[str, str] | None = None

    def write(self, event: LogEvent) -> None:
        match event:
            case ModelCallReplied():
                self._calls = {
                    call.id: shown_call(call.name, shown_arguments(call.arguments), 200)
                    for call in event.message.tool_calls
                }
            case ToolFinished():
                call = (self._calls or {}).get(event.call_id, event.tool)
                self.view.called(call, in_short(event.text, 200))
            case Nudged():
                self.view.nudged(event)
            case _:
                return


class _Status:
    """The line that moves: which sentence and try, how many tokens, how long."""

    def __init__(self) -> None:
        self.tokens = 0
        self.text = ""
        self._what = ""
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def begin(self, what: str) -> None:
        """The next sentence."""
        self._what = what
        self.text = ""
        self._began = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = [self._what, self.text, counted(self.tokens, "token")]
        parts.append(f"{time.monotonic() - self._began:.1f} s")
        line = " · ".join(part for part in parts if part)
        self._spinner.text = Text(line[: options.max_width - 3], style="dim", no_wrap=True)
        yield self._spinner


def _in_words(result: AgentResult) -> str:
    reason = result.exit_reason or ExitReason.ERROR
    return f"{reason.value}: {reason.in_words}"
