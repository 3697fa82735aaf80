"""Is the agent going in circles? Two answers: S2's, for reading, and the one that agents use.

``is_stuck`` is the function of S2, which looks at calls only. ``StuckDetector`` also looks at what
the calls returned: a poll whose answer changes and batch work are no circles; A B A B and every
longer cycle are. It is fed one message after the other, never looks back over the run, and is
neither told nor asked what is done about its signals: nudging and stopping are the engine's.

Pure: the same messages give the same signals in every process. Here are the rules and the
verdict; what is remembered of calls is in ``stuck_calls``, what counts as equal in
``stuck_compare``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from untildone.domain.bounds import check_count
from untildone.domain.errors import ConfigError
from untildone.domain.tools import PLAIN_TRAITS, ToolTraits
from untildone.policy.stuck_calls import (
    AskedCall,
    KnownCall,
    KnownTool,
    WaitingCall,
    calls_of,
    error_mark,
    field_of,
    kept_of,
    recorded_call,
    shortened,
    text_of,
)
from untildone.policy.stuck_compare import (
    near_duplicates,
    reads_as_error,
    reads_as_transient,
    says_something,
    without_fields,
)

NUDGE_TEXT: Final = (
    "You seem to be repeating yourself."
    " Try a different approach or finalize your answer with what you have."
)
"""S2's nudge, word for word."""

StuckAction = Literal["nudge", "stop", "off"]
StuckLevel = Literal["nudge", "stop"]
StuckRule = Literal[
    "no_novelty",
    "same_error",
    "error_streak",
    "near_duplicates",
    "transient_errors",
    "same_text",
    "identical_call",
]


def is_stuck(messages: Sequence[Any], window: int = 5, threshold: int = 3) -> bool:
    """Returns True if the same tool call appears repeatedly (S2's function).

    The teaching version: it knows no results, so it takes a poll for a circle. Agents use
    ``StuckDetector``.

    Args:
        messages: The conversation; dicts in OpenAI form, or objects with ``role`` and
            ``tool_calls``. Calls may be dicts or objects too.
        window: How many turns to look at, as ``window * 2`` messages from the end.
        threshold: How often one call, the same name and arguments, must stand in them.
    """
    recent_calls: Counter[tuple[str, str]] = Counter()
    for message in messages[-window * 2 :]:
        if field_of(message, "role") == "assistant":
            for call in calls_of(message):
                function = field_of(call, "function") or call
                name, arguments = field_of(function, "name"), field_of(function, "arguments")
                if name is not None:
                    recent_calls[str(name), str(arguments)] += 1
    return bool(recent_calls) and max(recent_calls.values()) >= threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckPolicy:
    """When an agent counts as stuck, and what is then done.

    Most rules have two levels. A limit is the number of calls at which its level is reached; to
    leave a rule out, give it a large one that no run reaches. Limits must be whole numbers of 1
    or more, and a stop limit may not be below the nudge limit beside it.

    Attributes:
        action: ``"nudge"``: the first signal sends ``nudge_text`` once, a later one of stop level
            ends the agent run. ``"stop"``: the first of stop level ends it. ``"off"``: no signals.
        nudge_text: The user message sent as a nudge; S2's by default.
        no_novelty_nudge: Calls after the last one that brought anything new.
        no_novelty_stop: The same, stop level.
        same_error_nudge: The same call failing with the same error, in a row.
        same_error_stop: The same, stop level.
        error_streak_nudge: One tool failing with the same error text, in a row, whatever the
            arguments.
        error_streak_stop: The same, stop level.
        near_duplicates_nudge: One tool called with nearly the same arguments and giving the equal
            result, in a row.
        near_duplicates_stop: The same, stop level.
        transient_limit: Rate limits (429), server errors (5xx) and time-outs in a row. They count
            for no other rule about results. This limit and those below are stop level at once.
        same_text_limit: The same assistant text with nothing between.
        identical_call_limit: One call since the last user message, even if its result changes.

    Raises:
        ConfigError: A value cannot work; the text names the field, the value and what to give.
    """

    action: StuckAction = "nudge"
    nudge_text: str = NUDGE_TEXT
    no_novelty_nudge: int = 3
    no_novelty_stop: int = 4
    same_error_nudge: int = 3
    same_error_stop: int = 4
    error_streak_nudge: int = 5
    error_streak_stop: int = 6
    near_duplicates_nudge: int = 6
    near_duplicates_stop: int = 8
    transient_limit: int = 6
    same_text_limit: int = 3
    identical_call_limit: int = 25

    def __post_init__(self) -> None:
        if self.action not in ("nudge", "stop", "off"):
            raise ConfigError(
                f"StuckPolicy.action is {self.action!r}; use 'nudge', 'stop' or 'off'"
            )
        _check_text(self.nudge_text)
        limits = [field.name for field in fields(self)][2:]
        for name in limits:
            check_count(f"StuckPolicy.{name}", getattr(self, name))
        for name in limits:
            if name.endswith("_stop"):
                self._check_pair(name.removesuffix("_stop"))

    def _check_pair(self, rule: str) -> None:
        nudge, stop = getattr(self, f"{rule}_nudge"), getattr(self, f"{rule}_stop")
        if stop < nudge:
            raise ConfigError(
                f"StuckPolicy.{rule}_stop is {stop}, below {rule}_nudge, which is {nudge};"
                f" raise {rule}_stop to at least {nudge} or lower {rule}_nudge"
            )


def _check_text(value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(
            f"StuckPolicy.nudge_text is {value!r}; give the text of a user message,"
            " or leave it out for the default"
        )


@dataclass(frozen=True, slots=True)
class StuckSignal:
    """The agent goes in circles.

    Attributes:
        level: ``"stop"`` where the rule's stop limit is reached, else ``"nudge"``.
        rule: Which rule, for counting: a ``StuckRule``.
        evidence: Which rule, for reading: the tool, the count and a piece of the arguments.
    """

    level: StuckLevel
    rule: StuckRule
    evidence: str


class StuckDetector:
    """Watches one agent run and says when it goes in circles.

    Feed it either with ``observe``, message by message, or with ``note_user``, ``note_assistant``
    and ``note_result``, which build no dicts. A signal says what is so now: it is given again as
    long as it holds, and never resets anything. A user message does: all counters, but not the
    memory of what was seen. Use a new detector for each agent run.

    Args:
        policy: The limits.
        traits: By tool name, what the tool declares; a tool that is not there declares nothing.
    """

    __slots__ = (
        "_answered_ids",
        "_asked",
        "_calls_without_novelty",
        "_epoch",
        "_error_call",
        "_error_text",
        "_error_tool",
        "_identical",
        "_last_text",
        "_near",
        "_near_count",
        "_near_reply",
        "_near_result",
        "_novel",
        "_off",
        "_policy",
        "_repeats",
        "_replies_without_novelty",
        "_reply",
        "_same_error",
        "_same_text",
        "_streak",
        "_streak_reply",
        "_tools",
        "_traits",
        "_transient",
        "_transient_reply",
        "signal",
    )

    signal: StuckSignal | None
    """The verdict on the last answered batch; None before it is answered and after a user spoke."""

    def __init__(
        self, policy: StuckPolicy | None = None, traits: Mapping[str, ToolTraits] | None = None
    ) -> None:
        self._policy = policy or StuckPolicy()
        self._off = self._policy.action == "off"
        self._traits: dict[str, ToolTraits] = dict(traits or {})
        self._tools: dict[str, KnownTool] = {}
        self._epoch = 0
        self._reply = 0
        self._asked: list[WaitingCall] = []
        self._answered_ids: set[str] = set()
        self._forget_counts()

    def _forget_counts(self) -> None:
        self.signal = None
        self._epoch += 1  # ends the counts that are kept with each call, without visiting them
        self._novel = False
        self._repeats = 0
        self._identical: WaitingCall | None = None
        self._calls_without_novelty = 0
        self._replies_without_novelty = 0
        self._forget_errors()
        self._forget_near()
        self._transient = 0
        self._transient_reply = 0
        self._last_text = ""
        self._same_text = 0

    def _forget_errors(self) -> None:
        self._error_call: KnownCall | None = None
        self._error_tool: KnownTool | None = None
        self._error_text = ""
        self._same_error = 0
        self._streak = 0
        self._streak_reply = 0

    def _forget_near(self) -> None:
        self._near: WaitingCall | None = None
        self._near_result = ""
        self._near_count = 0
        self._near_reply = 0

    # ── Messages in ──────────────────────────────────────────────────────────────────────────────

    def observe(self, message: Mapping[str, Any]) -> StuckSignal | None:
        """Takes the next message in OpenAI form; returns a signal where it completes a circle.

        Tool messages are matched with their calls by id, and where that fails by position. Whether
        one reports an error is read from its ``is_error`` (also ``isError`` or ``status``), and
        where there is none from the beginning of its text. Recorded data may be odd: what cannot
        be read is passed over.

        Args:
            message: The message; content may be text, a list of parts or None.
        """
        role = field_of(message, "role")
        if role == "user":
            self.note_user()
        elif role == "assistant":
            calls = [recorded_call(call) for call in calls_of(message)]
            self._answered_ids.clear()
            return self.note_assistant(text_of(message), calls)
        elif role == "tool":
            return self._note_recorded_result(message)
        else:
            self._same_text = 0
        return None

    def note_user(self) -> None:
        """A user spoke, or a nudge did in a user's name: counting starts again."""
        self._asked = []
        self._forget_counts()

    def note_assistant(self, text: str | None, calls: Sequence[AskedCall]) -> StuckSignal | None:
        """The model replied; each call is to be answered with ``note_result``.

        Calls of an earlier reply that were never answered count for nothing.

        Args:
            text: The reply's text, if any.
            calls: Its calls, in order.

        Returns:
            A signal only for a reply without calls, if its text is a repetition.
        """
        if self._off:
            return None
        self.signal = None
        self._reply += 1
        self._novel = False
        self._repeats = 0
        self._identical = None
        if not calls:
            self._asked = []
            return self._note_text(text or "")
        self._same_text = 0
        self._asked = [self._ask(call) for call in calls]
        return None

    def note_result(self, text: str, *, is_error: bool = False) -> StuckSignal | None:
        """The next call of the reply, in call order, was answered.

        Args:
            text: The result as the model gets it.
            is_error: Whether it reports a failure.

        Returns:
            The verdict on the whole batch with its last answer, None before; also in ``signal``.
        """
        if not self._asked:  # turned off, or an answer to nothing
            return None
        return self._answer(0, text, is_error=is_error)

    def _note_recorded_result(self, message: Mapping[str, Any]) -> StuckSignal | None:
        if not self._asked:
            return None
        call_id = str(field_of(message, "tool_call_id") or "")
        waiting = [asked.id for asked in self._asked]
        if call_id in waiting:
            index = waiting.index(call_id)
        elif call_id in self._answered_ids:
            return None  # a second answer to one call
        else:
            index = 0
        self._answered_ids.add(call_id)
        text = text_of(message)
        mark = error_mark(message)
        return self._answer(index, text, is_error=reads_as_error(text) if mark is None else mark)

    # ── One result ───────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: AskedCall) -> WaitingCall:
        name, arguments = call.name, call.arguments or "{}"
        tool = self._tools.get(name)
        if tool is None:
            tool = self._tools[name] = KnownTool(name, self._traits.get(name, PLAIN_TRAITS))
        known = tool.calls.get(arguments)
        if known is None:
            known = tool.find(arguments)
        return WaitingCall(call.id, tool, known, arguments)

    def _answer(self, index: int, text: str, *, is_error: bool) -> StuckSignal | None:
        asked = self._asked.pop(index)
        self._count(asked)
        if is_error and reads_as_transient(text):
            self._note_transient()
        else:
            self._transient = 0
            self._compare(asked, text, is_error=is_error)
        asked.call.reply = self._reply
        if self._asked:
            return None
        self.signal = self._verdict(asked)
        return self.signal

    def _count(self, asked: WaitingCall) -> None:
        """Counts the call itself, whatever it returned; identical ones of one reply are one."""
        call = asked.call
        if call.reply == self._reply or asked.tool.traits.polling:
            return
        if call.epoch != self._epoch:
            call.epoch = self._epoch
            call.count = 0
        call.count += 1
        if call.count >= self._policy.identical_call_limit:
            self._identical = asked

    def _note_transient(self) -> None:
        """A passing fault is neither news nor a repeat: it leaves all other counts as they are."""
        if self._transient_reply != self._reply:
            self._transient_reply = self._reply
            self._transient += 1

    def _compare(self, asked: WaitingCall, text: str, *, is_error: bool) -> None:
        """Is the result news? Is it the last one over again?"""
        tool, call = asked.tool, asked.call
        traits = tool.traits
        kept = kept_of(without_fields(text, traits.volatile) if traits.volatile else text)
        if traits.polling and not is_error:
            # Waiting is what this tool is for, so it is no repeat; nor is what stands between two
            # polls, a sleep for instance. Hence news, not merely passed over.
            same, novel = False, True
        elif traits.nondeterministic:
            same = call.last is not None
            novel = not same
            call.last = ""
        elif call.last is None:
            same, novel = False, True
            call.last = kept
        else:
            same, novel = call.compare(kept)
        if novel:
            self._novel = True
        elif call.reply != self._reply:
            self._repeats += 1
        if is_error:
            self._forget_near()
            self._note_error(asked, kept, same=same)
        else:
            if self._error_tool is not None:
                self._forget_errors()
            self._note_near(asked, kept)

    def _note_error(self, asked: WaitingCall, kept: str, *, same: bool) -> None:
        """Counts errors in a row, once a reply: the model had not seen the others of its reply."""
        tool, call = asked.tool, asked.call
        if not same or call is not self._error_call:
            self._same_error = 1
        elif call.reply != self._reply:
            self._same_error += 1
        if tool is not self._error_tool or kept != self._error_text:
            self._streak = 1
        elif self._streak_reply != self._reply:
            self._streak += 1
        self._error_call = call
        self._error_tool = tool
        self._error_text = kept
        self._streak_reply = self._reply

    def _note_near(self, asked: WaitingCall, kept: str) -> None:
        """Counts near-duplicates in a row, once a reply."""
        before = self._near
        self._near = asked
        if (
            before is None
            or asked.tool is not before.tool
            or kept != self._near_result
            or not says_something(kept)
            or asked.tool.traits.polling
            or asked.tool.traits.nondeterministic
            or not near_duplicates(asked.arguments, before.arguments)
        ):
            self._near_result = kept
            self._near_count = 1
        elif self._near_reply != self._reply:
            self._near_count += 1
        self._near_reply = self._reply

    def _note_text(self, text: str) -> StuckSignal | None:
        text = kept_of(text.strip())
        if text != self._last_text:
            self._last_text = text
            self._same_text = 0
        if not text:
            return None
        self._same_text += 1
        if self._same_text >= self._policy.same_text_limit:
            evidence = f"the same text {self._same_text} times: {shortened(text)}"
            self.signal = StuckSignal("stop", "same_text", evidence)
        return self.signal

    # ── The verdict ──────────────────────────────────────────────────────────────────────────────

    def _verdict(self, last: WaitingCall) -> StuckSignal | None:
        """The first rule at stop level, else the first at nudge level."""
        if self._novel:
            self._calls_without_novelty = 0
            self._replies_without_novelty = 0
        elif self._repeats:
            self._calls_without_novelty += self._repeats
            self._replies_without_novelty += 1
        if (
            self._calls_without_novelty
            or self._streak
            or self._transient
            or self._identical is not None
            or self._near_count >= self._policy.near_duplicates_nudge
        ):
            return self._strongest(last)
        return None

    def _strongest(self, last: WaitingCall) -> StuckSignal | None:
        policy = self._policy
        # One reply cannot take the count over a limit, however many calls it repeats: the model
        # had not seen their answers. For replies with one call this is the number of calls.
        stale = min(self._calls_without_novelty, self._replies_without_novelty + 1)
        often = self._identical.call.count if self._identical is not None else 0
        counts: tuple[tuple[StuckRule, int, int, int], ...] = (
            ("no_novelty", stale, policy.no_novelty_nudge, policy.no_novelty_stop),
            ("same_error", self._same_error, policy.same_error_nudge, policy.same_error_stop),
            ("error_streak", self._streak, policy.error_streak_nudge, policy.error_streak_stop),
            (
                "near_duplicates",
                self._near_count,
                policy.near_duplicates_nudge,
                policy.near_duplicates_stop,
            ),
            ("transient_errors", self._transient, policy.transient_limit, policy.transient_limit),
            ("identical_call", often, policy.identical_call_limit, policy.identical_call_limit),
        )
        for rule, count, _, limit in counts:
            if count >= limit:
                return StuckSignal("stop", rule, self._evidence(rule, count, last))
        for rule, count, limit, _ in counts:
            if count >= limit:
                return StuckSignal("nudge", rule, self._evidence(rule, count, last))
        return None

    def _evidence(self, rule: StuckRule, count: int, last: WaitingCall) -> str:
        match rule:
            case "no_novelty":
                count = self._calls_without_novelty
                return f"{count} calls in a row brought nothing new, the last: {last}"
            case "same_error":
                return f"failed {count} times in a row with the same error: {last}"
            case "error_streak":
                name = shortened(last.tool.name)
                return f"{name} failed {count} times in a row with one error, the last: {last}"
            case "near_duplicates":
                return f"{count} nearly equal calls in a row with one result, the last: {last}"
            case "transient_errors":
                return f"{count} passing errors (429, 5xx, time-out) in a row, the last: {last}"
            case _:
                return f"called {count} times since the last user message: {self._identical}"
