"""The demo on a terminal, with lines that move; anywhere else the same lasting lines, plain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from untildone.cli.extraction import Tally
from untildone.cli.text import counted, in_short, one_line, shown_call, shown_text
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
    " stuck detector sees it and tells the agent, once; if it went on, the run would be stopped."
)
_AFTER: Final = (
    'Now yours: untildone run "TASK" --model local/smollm2 --until "marker:TEXT"'
    " (untildone doctor says which models are at hand)"
)
_REFRESHES_A_SECOND: Final = 8
_LONGEST: Final = 300


class DemoView:
    """Shows the demo. Use it around the demo: leaving it ends the lines that move.

    Args:
        console: Default: stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._moving = _Moving()
        self._live: Live | None = None
        self._sentences = 0
        self._tries = 0
        self._written = 0
        self._waiting: dict[int, SentenceView] = {}
        self._wrong_at_first: list[int] = []
        self._wrong_at_last: list[int] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                self._moving,
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
        self.line(line, "yellow")

    def stopped(self) -> None:
        """The person has stopped it."""
        self.line(f"■ {ExitReason.CANCELLED.value}: {ExitReason.CANCELLED.in_words}", "yellow")

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Writes a lasting line; a terminal gets it wrapped and indented."""
        if self._console.is_terminal:
            line = Padding(Text(text, style=style), (0, 0, 0, indent), expand=False)
            self._console.print(line)
        else:
            self._console.print(Text(" " * indent + text if text else ""), soft_wrap=True)

    # ── The refine loop ──────────────────────────────────────────────────────────────────────────

    def begins_refining(self, sentences: int, tries: int) -> None:
        """The first part is about to begin."""
        self._sentences, self._tries = sentences, tries
        self.line("1  The refine loop, on a real model", "bold")
        what = counted(sentences, "sentence")
        self.line(_REFINING.format(sentences=what, tries=tries), indent=3)
        self._moving.what = "loading the model"

    def model_started(self, seconds: float) -> None:
        """The model can be asked."""
        self.line(f"The model is loaded: {seconds:.1f} s.", "dim", indent=3)
        self.line()
        self._moving.what = f"0 of {self._sentences} sentences done"

    def sentence(self, number: int, text: str) -> SentenceView:
        """A run for a sentence begins."""
        shown = SentenceView(self, number, text)
        self._moving.running[number] = shown
        return shown

    def sentence_ended(self, shown: SentenceView) -> None:
        """A run is over; its lines are written once those of all sentences before it are."""
        if shown.marks and not shown.marks[0]:
            self._wrong_at_first.append(shown.number)
        if shown.marks and not shown.marks[-1]:
            self._wrong_at_last.append(shown.number)
        self._waiting[shown.number] = shown
        while self._written + 1 in self._waiting:
            self._written += 1
            self._waiting.pop(self._written).write()
        moving = self._moving
        del moving.running[shown.number]
        moving.done += 1
        moving.tokens += shown.tokens
        moving.what = f"{moving.done} of {self._sentences} sentences done"

    @property
    def of_sentences(self) -> str:
        """How the number of a sentence goes on."""
        return f"of {self._sentences}"

    def summed_up(self, tally: Tally, seconds: float) -> None:
        """What came of all of it, held against what is really in the sentences."""
        self._moving.running.clear()
        for number in sorted(self._waiting):  # after one that was stopped or has failed
            self._waiting.pop(number).write()
        first, last = tally.right_at_first, tally.right_after_loop
        rows = [
            (
                "right at the first try",
                f"{first} of {tally.sentences}",
                "bold",
                _wrong(self._wrong_at_first),
            ),
            (
                "right after the loop",
                f"{last} of {tally.sentences}",
                "bold green",
                _wrong(self._wrong_at_last),
            ),
            ("passed the check, but wrong", str(tally.passed_but_wrong), "red", ""),
            (f"given up after {self._tries} tries", str(tally.never_passed), "yellow", ""),
            ("model calls", str(tally.replies), "", ""),
            ("tokens", f"{self._moving.tokens:,}", "", ""),
            ("seconds", f"{seconds:.1f}", "", ""),
        ]
        self.line()
        for name, value, style, more in rows:
            line = f"{name:<30}{value:>9}{more}"
            self.line(line, "" if value == "0" else style, indent=3)

    # ── The turn loop ────────────────────────────────────────────────────────────────────────────

    def begins_turns(self, task: str) -> None:
        """The second part is about to begin."""
        self._moving.what = ""
        self.line()
        self.line("2  The turn loop, with a tool", "bold")
        self.line(_TURNING, indent=3)
        self.line()
        self.line(task, "bold", indent=3)

    def turn_log(self) -> _Turns:
        """Takes the log of the run and shows it."""
        return _Turns(self)

    def turns_ended(self, result: AgentResult) -> None:
        """The second run is over."""
        self.line(f"✓ {result.text}", "green", indent=5)
        facts = [_exit_in_words(result), counted(result.turns, "turn")]
        self.line(" · ".join(facts), "dim", indent=5)
        self.line()
        self.line(_AFTER)


class SentenceView:
    """One sentence: a moving line while it runs, then all of its lasting lines together."""

    def __init__(self, view: DemoView, number: int, text: str) -> None:
        self._view = view
        self._began = time.monotonic()
        self._lines: list[tuple[str, str]] = []
        self.marks: list[bool] = []
        """Whether each try is really right."""
        self.number = number
        self.text = text
        self.tokens = 0
        self.state = ""

    def trying(self, iteration: int) -> None:
        """An iteration begins."""
        self.state = f"try {iteration}"

    def spent(self, usage: Usage) -> None:
        """A model call has cost something."""
        self.tokens += usage.input_tokens + usage.output_tokens

    def tried(
        self, iteration: int, answer: str, problems: Sequence[str], *, is_right: bool
    ) -> None:
        """An iteration was judged.

        Args:
            iteration: Which.
            answer: What was answered.
            problems: What the check said, if it refused.
            is_right: Whether the answer is the true one, which the check does not know.
        """
        self.marks.append(is_right)
        mark = "right" if is_right else "wrong"
        shown = f"try {iteration}  {in_short(answer, _LONGEST)}"
        if problems:
            said = one_line("; ".join(problems), _LONGEST)
            self._lines.append((f"✗ {shown}  (refused: {said}; {mark})", "yellow"))
        else:
            self._lines.append((f"✓ {shown}  (accepted; {mark})", "green" if is_right else "red"))

    def ended(self, result: AgentResult, mistake: str) -> None:
        """The run is over; ``mistake`` is what is really wrong with the answer, if anything."""
        facts = [
            _exit_in_words(result),
            counted(result.loop_iterations, "iteration"),
            counted(result.total_tokens, "token"),
            f"{time.monotonic() - self._began:.1f} s",
        ]
        self._lines.append((" · ".join(facts), "dim"))
        if mistake and result.exit_reason is ExitReason.CONVERGED:
            text = f"! it passed the check and is wrong: {shown_text(mistake)}"
            self._lines.append((text, "red"))
        self._view.sentence_ended(self)

    def write(self) -> None:
        """Writes its lasting lines."""
        view = self._view
        view.line(f"{self.number} {view.of_sentences}  {self.text}", "bold", indent=3)
        for text, style in self._lines:
            view.line(text, style, indent=5)


def _wrong(numbers: Sequence[int]) -> str:
    """Which sentences are wrong."""
    return f"   wrong: {', '.join(map(str, sorted(numbers)))}" if numbers else ""


@dataclass(slots=True)
class _Turns:
    """Shows each call with its answer, and the nudge."""

    view: DemoView
    _calls: dict[str, str] = field(default_factory=dict[str, str])

    def write(self, event: LogEvent) -> None:
        view = self.view
        match event:
            case ModelCallReplied():
                for call in event.message.tool_calls:
                    arguments = shown_arguments(call.arguments)
                    self._calls[call.id] = shown_call(call.name, arguments, _LONGEST)
            case ToolFinished():
                view.line(f"→ {self._calls.get(event.call_id, event.tool)}", indent=5)
                view.line(f"← {in_short(event.text, _LONGEST)}", "dim", indent=5)
            case Nudged():
                view.line(f"! nudged: {in_short(event.evidence, _LONGEST)}", "yellow", indent=5)
                view.line(f"told: {in_short(event.text, _LONGEST)}", "yellow", indent=7)
            case _:
                return


class _Moving:
    """The lines that move: the sentences under way, and how far it is."""

    def __init__(self) -> None:
        self.what = ""
        self.done = 0
        self.tokens = 0
        self.running: dict[int, SentenceView] = {}
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 4
        for shown in list(self.running.values()):
            line = one_line(f"{shown.number:>5}  {shown.state}  {shown.text}", room)
            yield Text(f"   {line}", style="dim", no_wrap=True)
        if not self.what:
            return
        tokens = self.tokens + sum(shown.tokens for shown in list(self.running.values()))
        facts = [self.what, counted(tokens, "token"), f"{time.monotonic() - self._began:.0f} s"]
        self._spinner.text = Text(one_line(" · ".join(facts), room), style="dim", no_wrap=True)
        yield self._spinner


def _exit_in_words(result: AgentResult) -> str:
    reason = result.exit_reason or ExitReason.ERROR
    return f"{reason.value}: {reason.in_words}"
