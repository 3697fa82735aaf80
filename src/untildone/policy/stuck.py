"""Is the agent going in circles? Two answers: S2's, for reading, and the one that agents use.

``is_stuck`` is the function of S2, which looks at calls only. ``StuckDetector`` also looks at what
the calls returned: a poll whose answer changes and batch work are no circles; A B A B and every
longer cycle are. It is fed one message after the other, never looks back over the run, and is
neither told nor asked what is done about its signals: nudging and stopping are the engine's.

Pure: the same messages give the same signals in every process. Kept per distinct call are at most
2,000 characters of its last result and 16 bytes for each different one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from untildone.domain.errors import ConfigError
from untildone.domain.tools import PLAIN_TRAITS, ToolTraits

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
        if _field(message, "role") == "assistant":
            for call in _call_list(message):
                function = _field(call, "function") or call
                name, arguments = _field(function, "name"), _field(function, "arguments")
                if name is not None:
                    recent_calls[str(name), str(arguments)] += 1
    return bool(recent_calls) and max(recent_calls.values()) >= threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckPolicy:
    """When an agent counts as stuck, and what is then done.

    Most rules have two levels. A limit is the number of calls at which its level is reached; to
    leave a rule out, give it a limit that no run reaches. Limits must be whole numbers of 1 or
    more, and a stop limit may not be below the nudge limit beside it.

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
            _check_limit(name, getattr(self, name))
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


def _check_limit(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(
            f"StuckPolicy.{name} is {value!r}; give a whole number of 1 or more"
            " (a large one leaves the rule out)"
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


class AskedCall(Protocol):
    """A tool call as the detector needs it; ``arguments`` is the raw JSON text."""

    @property
    def id(self) -> str:
        """The provider's id, which may be empty or doubled; only ``observe`` uses it."""
        ...

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them."""
        ...


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
        self._tools: dict[str, _Tool] = {}
        self._epoch = 0
        self._reply = 0
        self._asked: list[_Asked] = []
        self._answered_ids: set[str] = set()
        self._forget_counts()

    def _forget_counts(self) -> None:
        self.signal = None
        self._epoch += 1  # ends the counts that are kept with each call, without visiting them
        self._novel = False
        self._repeats = 0
        self._identical: _Asked | None = None
        self._calls_without_novelty = 0
        self._replies_without_novelty = 0
        self._forget_errors()
        self._forget_near()
        self._transient = 0
        self._transient_reply = 0
        self._last_text = ""
        self._same_text = 0

    def _forget_errors(self) -> None:
        self._error_call: _Call | None = None
        self._error_tool: _Tool | None = None
        self._error_text = ""
        self._same_error = 0
        self._streak = 0
        self._streak_reply = 0

    def _forget_near(self) -> None:
        self._near: _Asked | None = None
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
        role = _field(message, "role")
        if role == "user":
            self.note_user()
        elif role == "assistant":
            calls = [_recorded_call(call) for call in _call_list(message)]
            self._answered_ids.clear()
            return self.note_assistant(_text(message), calls)
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
        call_id = str(_field(message, "tool_call_id") or "")
        waiting = [asked.id for asked in self._asked]
        if call_id in waiting:
            index = waiting.index(call_id)
        elif call_id in self._answered_ids:
            return None  # a second answer to one call
        else:
            index = 0
        self._answered_ids.add(call_id)
        text = _text(message)
        mark = _error_mark(message)
        return self._answer(index, text, is_error=reads_as_error(text) if mark is None else mark)

    # ── One result ───────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: AskedCall) -> _Asked:
        name, arguments = call.name, call.arguments or "{}"
        tool = self._tools.get(name)
        if tool is None:
            tool = self._tools[name] = _Tool(name, self._traits.get(name, PLAIN_TRAITS))
        known = tool.calls.get(arguments)
        if known is None:
            known = tool.find(arguments)
        return _Asked(call.id, tool, known, arguments)

    def _answer(self, index: int, text: str, *, is_error: bool) -> StuckSignal | None:
        asked = self._asked.pop(index)
        self._count(asked)
        if is_error and _TRANSIENT.search(text, 0, _ERROR_HEAD):
            self._note_transient()
        else:
            self._transient = 0
            self._compare(asked, text, is_error=is_error)
        asked.call.reply = self._reply
        if self._asked:
            return None
        self.signal = self._verdict(asked)
        return self.signal

    def _count(self, asked: _Asked) -> None:
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

    def _compare(self, asked: _Asked, text: str, *, is_error: bool) -> None:
        """Is the result news? Is it the last one over again?"""
        tool, call = asked.tool, asked.call
        traits = tool.traits
        kept = _kept(_without_fields(text, traits.volatile) if traits.volatile else text)
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

    def _note_error(self, asked: _Asked, kept: str, *, same: bool) -> None:
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

    def _note_near(self, asked: _Asked, kept: str) -> None:
        """Counts near-duplicates in a row, once a reply."""
        before = self._near
        self._near = asked
        if (
            before is None
            or asked.tool is not before.tool
            or kept != self._near_result
            or not _says_something(kept)
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
        text = _kept(text.strip())
        if text != self._last_text:
            self._last_text = text
            self._same_text = 0
        if not text:
            return None
        self._same_text += 1
        if self._same_text >= self._policy.same_text_limit:
            evidence = f"the same text {self._same_text} times: {_shortened(text)}"
            self.signal = StuckSignal("stop", "same_text", evidence)
        return self.signal

    # ── The verdict ──────────────────────────────────────────────────────────────────────────────

    def _verdict(self, last: _Asked) -> StuckSignal | None:
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

    def _strongest(self, last: _Asked) -> StuckSignal | None:
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

    def _evidence(self, rule: StuckRule, count: int, last: _Asked) -> str:
        match rule:
            case "no_novelty":
                count = self._calls_without_novelty
                return f"{count} calls in a row brought nothing new, the last: {last}"
            case "same_error":
                return f"failed {count} times in a row with the same error: {last}"
            case "error_streak":
                name = _shortened(last.tool.name)
                return f"{name} failed {count} times in a row with one error, the last: {last}"
            case "near_duplicates":
                return f"{count} nearly equal calls in a row with one result, the last: {last}"
            case "transient_errors":
                return f"{count} passing errors (429, 5xx, time-out) in a row, the last: {last}"
            case _:
                return f"called {count} times since the last user message: {self._identical}"


# ── What is remembered of calls ──────────────────────────────────────────────────────────────────

_MAX_ARGUMENTS: Final = 2_000
"""Longer arguments are remembered by their hash."""
_MAX_RESULT: Final = 2_000
"""Of a longer result, head and tail are kept, and a hash of what is between them."""
_MAX_COMPARED: Final = 400
"""Longer arguments are a text being written, not a query being varied."""
_MAX_SHOWN: Final = 120
_ERROR_HEAD: Final = 400
"""Where in a result an error is looked for."""


class _Call:
    """One distinct call, a tool with canonical arguments, and the results it gave.

    ``last`` is the last result, ``key`` the hash of it masked, ``seen`` all such hashes; the latter
    two are made when a second, different result comes: masking costs more than all the rest.
    """

    __slots__ = ("count", "epoch", "key", "last", "reply", "seen")

    def __init__(self) -> None:
        self.last: str | None = None
        self.key = b""
        self.seen: set[bytes] | None = None
        self.count = 0
        self.epoch = 0
        self.reply = 0

    def compare(self, kept: str) -> tuple[bool, bool]:
        """Whether a further result is the same as the last one, and whether it is novel."""
        if self.last is None or kept == self.last:
            return True, False
        seen = self.seen
        if seen is None:
            self.key = _masked_hash(self.last)
            seen = self.seen = {self.key}
        key = _masked_hash(kept)
        same, novel = key == self.key, key not in seen
        seen.add(key)
        self.key = key
        self.last = kept
        return same, novel


class _Tool:
    """A tool and its distinct calls, by arguments as they were written and by ``_shape``.

    A shape maps to the one text that has it, so far, or to the calls by canonical text. So the
    usual new call costs no parsing; canonical text is made where two different texts may be equal.
    """

    __slots__ = ("calls", "name", "shapes", "traits")

    def __init__(self, name: str, traits: ToolTraits) -> None:
        self.name = name
        self.traits = traits
        self.calls: dict[str, _Call] = {}
        self.shapes: dict[str, str | dict[str, _Call]] = {}

    def find(self, arguments: str) -> _Call:
        """The call with these arguments, which were not yet met in this very form."""
        short = len(arguments) <= _MAX_ARGUMENTS
        if short and not self.traits.volatile and not _has_optional_escape(arguments):
            return self._find_plain(arguments)
        text = _canonical(arguments, self.traits.volatile)
        if len(text) > _MAX_ARGUMENTS:
            text = _letters(text)
        call = self.calls.get(text)
        if call is None:
            call = self._find_plain(text)
        if short:
            self.calls[arguments] = call
        return call

    def _find_plain(self, arguments: str) -> _Call:
        shape = _shape(arguments)
        alike = self.shapes.get(shape)
        if alike is None:
            self.shapes[shape] = arguments
            call = _Call()
        else:
            if isinstance(alike, str):
                alike = self.shapes[shape] = {_canonical(alike): self.calls[alike]}
            call = alike.setdefault(_canonical(arguments), _Call())
        self.calls[arguments] = call
        return call


class _Asked(NamedTuple):
    """A call that waits for its answer."""

    id: str
    tool: _Tool
    call: _Call
    arguments: str

    def __str__(self) -> str:
        return f"{_shortened(self.tool.name)}({_shortened(self.arguments)})"


def _shortened(text: str) -> str:
    text = " ".join(text[: _MAX_SHOWN * 2].split())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


# ── Arguments ────────────────────────────────────────────────────────────────────────────────────

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def _canonical(text: str, leave_out: Sequence[str] = ()) -> str:
    """Equal JSON gives equal text; what is no JSON stays as it is."""

    def without(value: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in value.items() if name not in leave_out}

    try:
        return _encode(json.loads(text, object_hook=without if leave_out else None))
    except (ValueError, RecursionError):
        return text


def _without_fields(result: str, leave_out: Sequence[str]) -> str:
    return _canonical(result, leave_out) if result.lstrip()[:1] in ("{", "[") else result


def _has_optional_escape(text: str) -> bool:
    """Whether a character may be written in a way that JSON does not force."""
    return "\\u" in text or "\\/" in text


def _shape(text: str) -> str:
    """The pieces between JSON's marks, sorted: equal for equal JSON, and cheaper than parsing."""
    text = "".join(text.split())
    for mark in "{}[]":
        text = text.replace(mark, ",")
    pieces = text.split(",")
    pieces.sort()
    return ",".join(pieces)


def near_duplicates(one: str, other: str) -> bool:
    """Whether two texts of arguments are the same query in other words.

    They are if one has the words of the other and at most as many more, where a word may also be
    the beginning of the other's ("auth" and "authentication"). A word *replaced* by another is
    batch work ("alice", then "bob"), and so is a difference in numbers only (paging).
    """
    if one == other:
        return True
    if len(one) > _MAX_COMPARED or len(other) > _MAX_COMPARED:
        return False
    if _NUMBER.sub("#", one) == _NUMBER.sub("#", other):
        return False
    few, many = sorted((_words(one), _words(other)), key=len)
    if len(few) * 2 < len(many):
        return False
    missing, extra = few - many, many - few
    return len(missing) <= _MAX_VARIED and all(
        any(_begins(word, long) for long in extra) for word in missing
    )


_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_MIN_STEM: Final = 3
_MAX_VARIED: Final = 3


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _begins(one: str, other: str) -> bool:
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) >= _MIN_STEM and short.isalpha() and long.startswith(short)


# ── Results ──────────────────────────────────────────────────────────────────────────────────────

# Patterns begin with a small set of characters, which `re` skips to quickly; what must stand before
# is looked at from there. One pattern with all alternatives takes 3 to 15 times as long.
_STAMP: Final = re.compile(
    r"""[0-9](?<![\w:.][0-9])(?:
        \d{3}-\d\d-\d\d[T\ _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?\s?(?:Z|[+-]\d\d:?\d\d)? # date and time
        | \d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\w:])                                    # time of day
        | (?<=1)[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?!\w)                     # Unix time
        | \d*(?:\.\d+)?(?:\s?(?:[nuµμm]?s|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?)|[mhd])
          (?:\d+(?:\.\d+)?[hms]s?)*(?!\w)                                            # duration
    )""",
    re.VERBOSE,
)
_LABELLED_ID: Final = re.compile(
    r"""[iI][dD](?:(?<=id)(?<![a-zA-Z\d]id)|(?<=\bpid)|(?<=[^A-Z]I[dD])|(?<=\bI[dD])|(?<=\bPID))
        ["']?(?:\s*[:=\#]|\s)\s*["'\#]*(?=[\w-]*\d)[\w-]+""",
    re.VERBOSE,
)
_PREFIXED_ID: Final = re.compile(
    r"""[-_](?:(?<=\breq.)|(?<=\brequest.)|(?<=\btrace.)|(?<=\bspan.)|(?<=\bsession.)|(?<=\btxn.)
        |(?<=\bevt.)|(?<=\bmsg.)|(?<=\brun.)|(?<=\bcall.)|(?<=\bresp.))
        (?=[\w-]*\d)[\w-]{6,}""",
    re.VERBOSE,
)
_LABELLED_DURATION: Final = re.compile(
    r"""[edlut](?:lapsed|uration|atency|ptime|ook)\w{0,20}["']?\s*[:=]?\s*\d+(?:\.\d+)?(?!\s*[\w.])"""
)
_UUID: Final = re.compile(r"\b[\da-fA-F]{8}-(?:[\da-fA-F]{4}-){3}[\da-fA-F]{12}\b")
_BARE_UUID_MIDDLE: Final = re.compile(r"[47](?<=\b[\da-f]{12}.)[\da-f]{3}[89ab][\da-f]{15}\b")
_BARE_UUID: Final = re.compile(r"\b[\da-f]{12}[47][\da-f]{3}[89ab][\da-f]{15}\b")
_ADDRESS: Final = re.compile(r"0x[\da-fA-F]{6,}\b")
_DURATION_LABELS: Final = ("elapsed", "duration", "latency", "uptime", "took")


def _masked(text: str) -> str:
    """The text without timestamps, durations and ids: UUIDs, addresses, what is labelled an id.

    Bare hexadecimal stays, and so do dates without a time: a new checksum is news.
    """
    if text.count("-") >= 4:  # noqa: PLR2004  the hyphens of one UUID
        text = _UUID.sub("~", text)
    if _BARE_UUID_MIDDLE.search(text):
        text = _BARE_UUID.sub("~", text)
    if "0x" in text:
        text = _ADDRESS.sub("~", text)
    if any(label in text for label in _DURATION_LABELS):
        text = _LABELLED_DURATION.sub("~", text)
    return _STAMP.sub("~", _PREFIXED_ID.sub("~", _LABELLED_ID.sub("~", text)))


def _masked_hash(text: str) -> bytes:
    return blake2b(_masked(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


_AS_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


def _letters(text: str) -> str:
    """A hash that masking leaves alone, since it has no digits."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    return digest.hexdigest().translate(_AS_LETTERS)


def _kept(text: str) -> str:
    """All that is kept of a result: the text, or head, hash and tail of a long one."""
    if len(text) <= _MAX_RESULT:
        return text
    half = _MAX_RESULT // 2
    return f"{text[:half]}\n{_letters(text[half:-half])}\n{text[-half:]}"


_ACKNOWLEDGEMENT: Final = re.compile(
    r"\b(?:ok|okay|done|success\w*|true|saved|stored|written|wrote|created|updated|added|removed"
    r"|deleted|applied|sent|set|accepted|recorded|noted)\b",
    re.IGNORECASE,
)
_MAX_ACKNOWLEDGEMENT: Final = 80


def _says_something(result: str) -> bool:
    """Whether an equal result says that nothing was gained: every write answers "ok"."""
    if len(result) > _MAX_ACKNOWLEDGEMENT:
        return True
    return bool(result.strip()) and not _ACKNOWLEDGEMENT.search(result)


_TRANSIENT: Final = re.compile(
    r"""
    rate.?limit | too\ many\ requests | overloaded | temporarily\ unavailable
    | internal\ server\ error | bad\ gateway | service\ unavailable
    | timed[\ -]?out | time-?out(?:error|exception)?(?!\w) | deadline\ exceeded
    | (?<![a-z])(?:http|status|code|error)[\W\d]{0,8}\b(?:429|5\d\d)\b
    | ^\W*(?:429|5\d\d)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"""
    [^\w{]{0,4}(?:
        [\w.]{0,60}(?:error|exception)\b | traceback\b | fail(?:ed|ure)\b | fatal\b
        | invalid\b | malformed\b | unable\ to\b | cannot\b | can't\b | could\ not\b
        | unknown\ (?:tool|function|command)\b | (?:access|permission)\ denied\b
        | (?:\w+\ ){0,3}timed\ out\b
        | http\W{0,3}(?:\d\.\d\ )?[45]\d\d\b
        | (?:429|5\d\d)\W{1,3}(?:too\ many|internal|bad\ gateway|service|gateway|server)\b
    )
    | \s*\{\s*"(?:error|errors|exception)"\s*:(?!\s*(?:null|false|""|\[\s*\]|\{\s*\}))
    """,
    re.VERBOSE | re.IGNORECASE,
)


def reads_as_error(text: str) -> bool:
    """Whether a result that is not marked either way begins as an error would."""
    return _ERROR.match(text, 0, _ERROR_HEAD) is not None


# ── Recorded messages, which may be odd ──────────────────────────────────────────────────────────


class _RecordedCall(NamedTuple):
    id: str
    name: str
    arguments: str


def _recorded_call(call: object) -> _RecordedCall:
    function = _field(call, "function") or call
    arguments = _field(function, "arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else _dumped(arguments)
    return _RecordedCall(
        str(_field(call, "id") or ""), str(_field(function, "name") or ""), arguments
    )


def _field(holder: object, name: str) -> Any:
    """``holder[name]`` or ``holder.name``; None where there is neither."""
    if isinstance(holder, Mapping):
        return cast("Mapping[str, Any]", holder).get(name)
    return getattr(holder, name, None)


def _call_list(message: object) -> Sequence[Any]:
    calls = _field(message, "tool_calls")
    return cast("Sequence[Any]", calls) if isinstance(calls, list | tuple) else ()


def _text(message: object) -> str:
    """The content as text. Parts that are no text count too: another picture is another result."""
    content = _field(message, "content")
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _dumped(content)
    return "".join(map(_part_text, cast("list[object]", content)))


def _part_text(part: object) -> str:
    text = part if isinstance(part, str) else _field(part, "text")
    return text if isinstance(text, str) else _dumped(part)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _error_mark(message: Mapping[str, Any]) -> bool | None:
    """Whether a tool message says of itself that it is an error; None where it does not say."""
    for name in ("is_error", "isError"):
        mark = _field(message, name)
        if isinstance(mark, bool):
            return mark
    status = _field(message, "status")
    return status == "error" if status in ("error", "success") else None
