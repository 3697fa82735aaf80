"""The stuck detector, rule by rule. Counts in here are worked out from the contract by hand."""

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.domain.errors import ConfigError
from untildone.domain.tools import ToolTraits
from untildone.policy import stuck_masks
from untildone.policy.stuck import (
    StuckDetector,
    StuckPolicy,
    StuckSignal,
    is_stuck,
    near_duplicates,
    reads_as_error,
)

# ── Helpers ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Call:
    name: str
    arguments: str = "{}"
    id: str = ""


def turn(detector, *answered):
    """One reply with the given calls, answered; ``answered`` is (call, result) or (…, True)."""
    detector.note_assistant("", [call for call, *_ in answered])
    signal = None
    for _, text, *error in answered:
        assert signal is None, "a batch was judged before it was answered"
        signal = detector.note_result(text, is_error=bool(error))
    assert detector.signal == signal
    return signal


def turns(detector, calls):
    """One turn a call; what came of each, as ``None`` or ``(level, rule)``."""
    return [brief(turn(detector, call)) for call in calls]


def brief(signal):
    return None if signal is None else (signal.level, signal.rule)


def levels(detector, calls):
    return [outcome and outcome[0] for outcome in turns(detector, calls)]


def search(query, result="no results", *error):
    return (Call("search", json.dumps({"q": query})), result, *error)


def live(calls):
    """What an engine with the default policy does: (turn of the nudge, turn of the stop)."""
    detector, nudged = StuckDetector(), None
    for number, call in enumerate(calls, 1):
        signal = turn(detector, call)
        if signal is None:
            continue
        if nudged is None:
            nudged = number
            detector.note_user()
        elif signal.level == "stop":
            return nudged, number
    return nudged, None


A, B, C = search("a", "found a"), search("b", "found b"), search("c", "found c")
NUDGE, STOP = ("nudge", "no_novelty"), ("stop", "no_novelty")


def user(text="go on"):
    return {"role": "user", "content": text}


def asks(*calls, text=None):
    """An assistant message in OpenAI form; a call is (id, name, arguments)."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ],
    }


def answers(call_id, text, **more):
    return {"role": "tool", "tool_call_id": call_id, "content": text, **more}


def observed(detector, messages):
    return [brief(detector.observe(message)) for message in messages]


# ── is_stuck, S2's ───────────────────────────────────────────────────────────────────────────────


def openai_turn(query, result="-"):
    call = ("c", "search", json.dumps({"q": query}))
    return [asks(call), answers("c", result)]


def test_is_stuck_at_the_third_identical_call():
    messages = [user(), *openai_turn("a"), *openai_turn("a")]
    assert not is_stuck(messages)
    assert is_stuck([*messages, *openai_turn("a")])


def test_is_stuck_looks_at_window_times_two_messages():
    apart = [*openai_turn("a"), *openai_turn("a"), *openai_turn("b"), *openai_turn("c")]
    messages = [*apart, *openai_turn("d"), *openai_turn("a")]
    assert not is_stuck(messages, window=5)  # the last ten messages hold two of them
    assert is_stuck(messages, window=6)
    assert is_stuck(messages, window=5, threshold=2)


def test_is_stuck_reads_attribute_style_messages_and_calls():
    function = SimpleNamespace(name="search", arguments={"q": "a"})
    message = SimpleNamespace(role="assistant", tool_calls=[SimpleNamespace(function=function)] * 3)
    assert is_stuck([message])
    assert is_stuck([{"role": "assistant", "tool_calls": message.tool_calls}])


def test_is_stuck_sees_three_identical_calls_of_one_reply_as_s2_does():
    assert is_stuck([asks(*[("c", "search", "{}")] * 3)])


def test_is_stuck_compares_arguments_as_they_are_written():
    messages = [asks(("1", "f", '{"a": 1}')), asks(("2", "f", '{"a":1}')), asks(("3", "f", "{}"))]
    assert not is_stuck(messages)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{}],
        [None],
        [{"role": "assistant", "content": None, "tool_calls": None}],
        [{"role": "assistant", "tool_calls": [None, {}, {"function": None}]}] * 5,
        [{"role": "user", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}] * 5,
        [SimpleNamespace(role="assistant")] * 5,
    ],
)
def test_is_stuck_is_false_where_no_call_can_be_read(messages):
    assert is_stuck(messages) is False


def s2_is_stuck(messages, window, threshold):
    """S2's rule written anew: any call that stands often enough among the last messages."""
    recent = list(messages)[-window * 2 :]
    calls = [
        (call["function"]["name"], str(call["function"]["arguments"]))
        for message in recent
        if message["role"] == "assistant"
        for call in message.get("tool_calls") or []
    ]
    return any(calls.count(call) >= threshold for call in calls)


CALLS = st.tuples(st.sampled_from("12"), st.sampled_from("fg"), st.sampled_from(["{}", '{"a": 1}']))
CONVERSATIONS = st.lists(
    st.one_of(
        st.builds(user),
        st.lists(CALLS, max_size=3).map(lambda calls: asks(*calls)),
        st.builds(answers, st.sampled_from("12"), st.sampled_from(["ok", "Error: x", "503"])),
        st.just({"role": "assistant", "content": "hm"}),
    ),
    max_size=30,
)


@given(CONVERSATIONS, st.integers(1, 6), st.integers(1, 5))
def test_is_stuck_equals_s2(messages, window, threshold):
    assert is_stuck(messages, window, threshold) == s2_is_stuck(messages, window, threshold)


# ── The policy ───────────────────────────────────────────────────────────────────────────────────


def test_policy_defaults_are_the_contracts():
    policy = StuckPolicy()
    assert policy.action == "nudge"
    assert policy.nudge_text == (
        "You seem to be repeating yourself. Try a different approach or finalize your answer"
        " with what you have."
    )
    assert (policy.no_novelty_nudge, policy.no_novelty_stop) == (3, 4)
    assert (policy.same_error_nudge, policy.same_error_stop) == (3, 4)
    assert (policy.error_streak_nudge, policy.error_streak_stop) == (5, 6)
    assert (policy.near_duplicates_nudge, policy.near_duplicates_stop) == (6, 8)
    assert policy.transient_limit == 6
    assert policy.same_text_limit == 3
    assert policy.identical_call_limit == 25


LIMITS = [
    field.name
    for field in fields(StuckPolicy)
    if field.name.endswith(("_nudge", "_stop", "_limit"))
]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, True, None, "3", 3.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_whole_number_of_one_or_more_is_refused(name, value):
    with pytest.raises(ConfigError) as refused:
        StuckPolicy(**{name: value})
    text = str(refused.value)
    assert name in text
    assert repr(value) in text
    assert "whole number of 1 or more" in text


@pytest.mark.parametrize("rule", ["no_novelty", "same_error", "error_streak", "near_duplicates"])
def test_a_stop_limit_below_its_nudge_limit_is_refused(rule):
    with pytest.raises(ConfigError, match=rf"{rule}_stop is 6, below {rule}_nudge, which is 7"):
        replace(StuckPolicy(), **{f"{rule}_nudge": 7, f"{rule}_stop": 6})
    assert replace(StuckPolicy(), **{f"{rule}_nudge": 7, f"{rule}_stop": 7})


@pytest.mark.parametrize("action", ["", "none", None, True, "Nudge"])
def test_an_unknown_action_is_refused_with_the_choices(action):
    with pytest.raises(ConfigError, match=r"action is .*use 'nudge', 'stop' or 'off'"):
        StuckPolicy(action=action)


@pytest.mark.parametrize("text", ["", "  \n", None, 7])
def test_a_nudge_without_words_is_refused(text):
    with pytest.raises(ConfigError, match="nudge_text is "):
        StuckPolicy(nudge_text=text)


def test_a_policy_is_a_value():
    policy = StuckPolicy(transient_limit=2)
    assert policy == StuckPolicy(transient_limit=2)
    assert hash(policy) == hash(StuckPolicy(transient_limit=2))
    with pytest.raises(FrozenInstanceError):
        policy.transient_limit = 3  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        StuckPolicy("stop")  # pyright: ignore[reportCallIssue]


# ── Without novelty ──────────────────────────────────────────────────────────────────────────────


def test_the_fourth_identical_call_nudges_and_the_fifth_stops():
    assert turns(StuckDetector(), [A] * 6) == [None, None, None, NUDGE, STOP, STOP]


def test_live_identical_calls_are_nudged_after_the_4th_and_stopped_after_the_8th():
    assert live([A] * 20) == (4, 8)


def test_live_an_agent_that_heeds_the_nudge_is_left_alone():
    assert live([A, A, A, A, B, C, *[search(f"item {n}", f"{n}") for n in range(50)]]) == (4, None)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 9, 30])
def test_a_cycle_of_any_length_is_found_in_its_second_round(length):
    cycle = [search(f"query {n}", f"result {n}") for n in range(length)]
    expected = [None] * (length + 2) + ["nudge", "stop"]
    assert levels(StuckDetector(), (cycle * 4)[: length + 4]) == expected


def test_a_text_between_hides_no_repeat():
    detector, seen = StuckDetector(), []
    for number in range(5):
        detector.note_assistant(f"thought {number}", [])
        seen.append(turn(detector, A))
    assert list(map(brief, seen)) == [None, None, None, NUDGE, STOP]


def test_words_beside_the_call_hide_no_repeat():
    detector = StuckDetector()
    messages = []
    for number in range(5):
        messages += [asks(("c", "f", "{}"), text=f"now, {number}"), answers("c", "same")]
    assert observed(detector, messages)[1::2] == [None, None, None, NUDGE, STOP]


def test_a_new_result_of_an_old_call_is_novel():
    changed = search("a", "something else")
    assert levels(StuckDetector(), [A, A, A, changed, A, A, A]) == [
        *[None, None, None, None],  # two repeats, then news
        *[None, None, "nudge"],
    ]


def test_a_result_that_comes_back_is_not_novel():
    on, off = search("switch", "is on"), search("switch", "is off")
    assert levels(StuckDetector(), [on, off, on, off, on, off]) == [
        *[None, None],
        *[None, None, "nudge", "stop"],
    ]


def test_the_same_arguments_for_another_tool_are_another_call():
    calls = [(Call(f"tool_{n}", '{"q": 1}'), "same") for n in range(30)]
    assert levels(StuckDetector(), calls) == [None] * 30


def test_a_user_message_resets_the_count_but_not_the_memory():
    detector = StuckDetector()
    assert levels(detector, [A, A, A]) == [None] * 3
    detector.note_user()
    assert levels(detector, [A, A, A, A]) == [None, None, "nudge", "stop"]


def test_a_signal_changes_nothing_of_what_follows():
    detector = StuckDetector()
    assert levels(detector, [A, A, A, A, A]) == [None, None, None, "nudge", "stop"]
    assert levels(detector, [B]) == [None]  # the recovery is not flagged
    assert levels(detector, [A, A, A]) == [None, None, "nudge"]


def test_after_the_nudge_one_more_look_at_something_old_is_not_flagged():
    detector = StuckDetector()
    turns(detector, [A] * 5)
    detector.note_user()
    assert detector.signal is None
    assert levels(detector, [A, B, A, C]) == [None] * 4


def test_system_messages_are_no_users():
    detector = StuckDetector()
    messages = []
    for _ in range(4):
        messages += [
            asks(("c", "f", "{}")),
            answers("c", "same"),
            {"role": "system", "content": "x"},
        ]
    assert observed(detector, messages)[-2] == NUDGE


def test_evidence_names_tool_count_and_a_piece_of_the_arguments():
    detector = StuckDetector()
    call = (Call("read_file", json.dumps({"path": "/etc/hosts", "note": "x" * 5_000})), "127.0.0.1")
    signal = [turn(detector, call) for _ in range(4)][-1]
    assert isinstance(signal, StuckSignal)
    assert "3 calls" in signal.evidence
    assert 'read_file({"path": "/etc/hosts"' in signal.evidence
    assert len(signal.evidence) < 250


# ── Polling and batch work ───────────────────────────────────────────────────────────────────────


def poll(result, *error):
    return (Call("job_status", '{"job": 7}'), result, *error)


@pytest.mark.parametrize(
    "result",
    [
        "{n}% done",
        "step {n} of 24",
        '{{"state": "running", "lines": {n}}}',
        "queue position {n}",
        "still at it" + " ." * 3_000 + "{n}" + " ." * 3_000,
    ],
)
def test_polling_with_changing_results_is_never_stopped(result):
    assert turns(StuckDetector(), [poll(result.format(n=n)) for n in range(24)]) == [None] * 24


def test_polling_between_sleeps_is_not_stopped_while_results_change():
    calls = []
    for number in range(20):
        calls += [(Call("sleep", '{"s": 5}'), "slept"), poll(f"{number} done")]
    assert levels(StuckDetector(), calls) == [None] * 40


def test_one_identical_call_25_times_is_a_circle_even_if_results_change():
    outcome = turns(StuckDetector(), [poll(f"{n}% done") for n in range(26)])
    assert outcome == [None] * 24 + [("stop", "identical_call")] * 2


def test_the_25_are_counted_over_the_calls_between_and_signal_only_at_that_call():
    detector = StuckDetector()
    for number in range(24):
        assert turn(detector, poll(f"{number}% done")) is None
        assert turn(detector, search(f"page {number}", f"{number}")) is None
    assert brief(turn(detector, poll("24% done"))) == ("stop", "identical_call")
    assert turn(detector, search("page 24", "24")) is None


def test_a_user_message_resets_the_25():
    detector = StuckDetector()
    for number in range(60):
        assert turn(detector, poll(f"{number}% done")) is None
        if number % 24 == 23:
            detector.note_user()


def test_an_unchanged_answer_of_an_undeclared_tool_is_a_repeat():
    assert levels(StuckDetector(), [poll("running")] * 4)[-1] == "nudge"


def test_a_declared_poll_may_give_the_same_answer_for_ever():
    detector = StuckDetector(traits={"job_status": ToolTraits(polling=True)})
    assert levels(detector, [poll("running")] * 200) == [None] * 200


def test_what_stands_between_two_declared_polls_is_no_circle():
    detector = StuckDetector(traits={"job_status": ToolTraits(polling=True)})
    calls = [(Call("sleep", '{"s": 5}'), "slept"), poll("running")] * 20
    assert levels(detector, calls) == [None] * 40


def test_a_declared_poll_that_fails_the_same_way_is_no_waiting():
    detector = StuckDetector(traits={"job_status": ToolTraits(polling=True)})
    outcome = turns(detector, [poll("no such job", True)] * 4)
    assert outcome == [None, None, ("nudge", "same_error"), ("stop", "same_error")]


NAMES = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "ken"]


@pytest.mark.parametrize("result", ["ok", "", "done", "no match", "[]", '{"hits": []}'])
@pytest.mark.parametrize(
    "arguments",
    [
        [{"customer": name} for name in NAMES],
        [{"path": f"/data/part-{letter}.csv"} for letter in "abcdefghijk"],
        [{"id": number} for number in range(11)],
        [{"sql": f"update users set active = true where name = '{name}'"} for name in NAMES],
        [{"host": f"node{letter}"} for letter in "ABCDEFGHIJK"],
        [{"key": f"{name}@example.org", "retries": 3, "verbose": True} for name in NAMES],
    ],
    ids=["names", "letters", "numbers", "sql", "suffixes", "boilerplate"],
)
def test_batch_work_is_never_stopped(arguments, result):
    calls = [(Call("handle", json.dumps(given)), result) for given in arguments]
    assert turns(StuckDetector(), calls) == [None] * len(calls)


def test_batch_work_in_one_reply_that_fails_throughout_is_one_failure():
    failed = [(Call("fetch", json.dumps({"url": name})), "refused", True) for name in NAMES]
    detector = StuckDetector()
    assert turn(detector, *failed) is None
    passing = [(Call("get", json.dumps({"url": name})), "HTTP 503", True) for name in NAMES]
    assert turn(detector, *passing) is None


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────


def test_the_same_call_with_the_same_error_nudges_at_3_and_stops_at_4():
    failing = search("a", "no such index", True)
    assert turns(StuckDetector(), [failing] * 4) == [
        *[None, None],
        *[("nudge", "same_error"), ("stop", "same_error")],
    ]


def test_live_a_failing_call_is_nudged_after_the_3rd_and_stopped_after_the_7th():
    assert live([search("a", "no such index", True)] * 20) == (3, 7)


def test_the_same_error_is_the_same_whatever_time_it_names():
    calls = [search("a", f"no such index (at 12:00:{n:02d})", True) for n in range(4)]
    assert turns(StuckDetector(), calls)[2] == ("nudge", "same_error")


def test_another_call_between_two_errors_ends_the_row():
    failing = search("a", "no such index", True)
    fixes = [search(f"fix {name}", name) for name in NAMES]
    calls = [call for fix in fixes for call in (failing, fix)]
    assert levels(StuckDetector(), calls) == [None] * len(calls)


def test_the_same_call_with_ever_new_errors_is_no_circle():
    calls = [search("a", f"line {n}: unexpected token", True) for n in range(20)]
    assert levels(StuckDetector(), calls) == [None] * 20


def failing(arguments, text="permission denied", tool="write"):
    return (Call(tool, json.dumps({"path": arguments})), text, True)


def test_one_tool_failing_with_one_error_nudges_at_5_and_stops_at_6():
    outcome = turns(StuckDetector(), [failing(name) for name in NAMES[:7]])
    assert outcome[:4] == [None] * 4
    assert outcome[4:] == [("nudge", "error_streak"), *[("stop", "error_streak")] * 2]


@pytest.mark.parametrize(
    "between",
    [
        failing("x", tool="chmod"),
        failing("x", "no space left"),
        search("x", "found"),
    ],
    ids=["another tool", "another error", "a success"],
)
def test_something_else_between_ends_the_streak(between):
    names = iter(NAMES)
    calls = [failing(next(names)) for _ in range(4)] + [between]
    calls += [failing(next(names)) for _ in range(4)]
    assert levels(StuckDetector(), calls) == [None] * 9


def test_a_streak_counts_replies_not_the_calls_of_one():
    detector = StuckDetector()
    names = iter(NAMES * 3)
    outcome = [
        brief(turn(detector, *[failing(f"{next(names)}/{reply}") for _ in range(3)]))
        for reply in range(6)
    ]
    assert outcome == [None] * 4 + [("nudge", "error_streak"), ("stop", "error_streak")]


def test_a_user_message_ends_a_row_of_errors():
    detector = StuckDetector()
    for _ in range(4):
        assert levels(detector, [failing(name) for name in NAMES[:2]]) == [None, None]
        detector.note_user()


TRANSIENT = [
    "429 Too Many Requests",
    "Error: 503 Service Unavailable",
    "HTTP/1.1 502 Bad Gateway",
    "Rate limit reached, retry in 20 s",
    "status_code=500",
    "Error code: 529 - overloaded",
    "TimeoutError",
    "httpx.ReadTimeout: ",
    "Command timed out",
    "the request timed out after 30 s",
    "504: gateway time-out",
]


@pytest.mark.parametrize("text", TRANSIENT)
def test_transient_errors_have_their_own_limit_of_6(text):
    outcome = turns(StuckDetector(), [search("a", text, True)] * 7)
    assert outcome == [None] * 5 + [("stop", "transient_errors")] * 2


@pytest.mark.parametrize(
    "text",
    [
        "item 503 not found",
        "line 429: unexpected token",
        "unknown argument timeout_s",
        "order 5000 is closed",
        "there are 500 rows, at most 100 are allowed",
    ],
)
def test_an_error_that_only_names_a_number_is_not_transient(text):
    assert turns(StuckDetector(), [search("a", text, True)] * 3)[-1] == ("nudge", "same_error")


def test_transient_errors_are_counted_over_all_tools():
    calls = [failing(name, "HTTP 503", tool=f"tool_{n % 2}") for n, name in enumerate(NAMES[:6])]
    assert turns(StuckDetector(), calls)[5] == ("stop", "transient_errors")


def test_a_retry_that_works_ends_the_row_of_transient_errors():
    down, detector = search("a", "HTTP 503", True), StuckDetector()
    for number in range(10):
        assert levels(detector, [down] * 2) == [None] * 2
        assert turn(detector, search(f"b{number}", f"{number}")) is None


def test_transient_errors_neither_repeat_nor_renew():
    down = search("a", "HTTP 503", True)
    calls = [A, down, A, down, A, down, A]  # the 2nd, 3rd and 4th A are the repeats
    assert levels(StuckDetector(), calls) == [None] * 6 + ["nudge"]


def test_a_result_that_only_speaks_of_503_is_no_error():
    quoting = search("a", "HTTP 503 means that the service is unavailable")
    assert turns(StuckDetector(), [quoting] * 4)[-1] == NUDGE


# ── Reading errors from recorded messages ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "Error: user not found",
        "error executing query: no such table",
        "ValueError: invalid literal",
        "  java.lang.IllegalStateException: closed",
        "Traceback (most recent call last):\n …",
        "Failed to open the door",
        "Invalid action!",
        "[ERROR] no",
        "Permission denied",
        "Unknown tool 'x'",
        '{"error": "no such user"}',
        "HTTP 404 not found",
        "503 Service Unavailable",
        "Command timed out",
    ],
)
def test_text_that_begins_as_errors_do_reads_as_an_error(text):
    assert reads_as_error(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "No results",
        "0 errors found",
        "The log says: Error: user not found",
        '{"error": null, "rows": 3}',
        '{"error": "", "rows": 3}',
        '{"errors": [], "rows": 3}',
        "500 Main Street",
        "invalidated the cache",
        "x" * 1_000_000 + " error",
    ],
)
def test_other_text_does_not(text):
    assert not reads_as_error(text)


def repeated(result):
    messages = []
    for _ in range(3):
        messages += [asks(("c", "f", "{}")), result]
    return observed(StuckDetector(), messages)[-1]


@pytest.mark.parametrize(
    ("result", "is_error"),
    [
        (answers("c", "Error: x"), True),
        (answers("c", "Error: x", is_error=None), True),
        (answers("c", "all fine"), False),
        (answers("c", "all fine", is_error=True), True),
        (answers("c", "Error: x", is_error=False), False),
        (answers("c", "all fine", isError=True), True),
        (answers("c", "all fine", status="error"), True),
        (answers("c", "Error: x", status="success"), False),
        (answers("c", [{"type": "text", "text": "Error: "}, {"type": "text", "text": "x"}]), True),
    ],
)
def test_the_messages_own_error_mark_wins_over_its_text(result, is_error):
    assert repeated(result) == (("nudge", "same_error") if is_error else None)


# ── The same text ────────────────────────────────────────────────────────────────────────────────


def says(text):
    return {"role": "assistant", "content": text}


def test_the_same_text_three_times_with_nothing_between_stops():
    outcome = observed(StuckDetector(), [user(), says("I am on it."), *[says("I am on it. ")] * 2])
    assert outcome == [None, None, None, ("stop", "same_text")]


@pytest.mark.parametrize(
    "between",
    [
        [user()],
        [says("Let me see.")],
        [asks(("c", "f", "{}")), answers("c", "x")],
        [{"role": "developer", "content": "hurry"}],
    ],
    ids=["user", "another text", "a call", "developer"],
)
def test_something_between_makes_it_another_text(between):
    messages = [says("I am on it."), says("I am on it."), *between, says("I am on it.")]
    assert not any(observed(StuckDetector(), messages))


@pytest.mark.parametrize("text", ["", None, "  ", []])
def test_silence_is_no_text(text):
    assert not any(observed(StuckDetector(), [says(text)] * 5))


# ── Near-duplicates ──────────────────────────────────────────────────────────────────────────────

VARIATIONS = [
    "authentication code",
    "auth code",
    "Auth Code",
    "code auth",
    "auth-code",
    "auth codes",
    "the auth codes",
    "auth codes?",
    "auth code",
    "authentication code!",
]


def test_variations_of_a_query_with_an_equal_result_nudge_at_6_and_stop_at_8():
    outcome = turns(StuckDetector(), [search(query) for query in VARIATIONS[:8]])
    assert outcome[:5] == [None] * 5
    assert outcome[5:7] == [("nudge", "near_duplicates")] * 2
    assert outcome[7] == ("stop", "near_duplicates")


def test_variations_that_find_other_things_are_no_circle():
    calls = [search(query, f"hit {n}") for n, query in enumerate(VARIATIONS)]
    assert not any(turns(StuckDetector(), calls))


def test_variations_of_what_is_only_acknowledged_are_no_circle():
    drafts = [(Call("save", json.dumps({"draft": query})), "Saved.") for query in VARIATIONS]
    assert not any(turns(StuckDetector(), drafts))


def test_a_long_text_being_written_is_no_query_being_varied():
    text = "so it begins and goes on and on " * 20
    drafts = [(Call("lint", json.dumps({"text": text + "a" * n})), "2 remarks") for n in range(12)]
    assert not any(turns(StuckDetector(), drafts))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"q": "auth code"}', '{"q": "authentication code"}'),
        ('{"q": "auth code"}', '{"q": "Auth  Code"}'),
        ('{"q": "auth code"}', '{"q": "code auth"}'),
        ('{"q": "auth code"}', '{"q": "auth code please"}'),
        ('{"cmd": "cat a.txt | sort"}', '{"cmd": "cat a.txt | sort | uniq"}'),
    ],
)
def test_the_same_words_or_a_few_more_are_near_duplicates(one, other):
    assert near_duplicates(one, other)
    assert near_duplicates(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"page": 1}', '{"page": 2}'),
        ('{"q": "x", "offset": -10}', '{"q": "x", "offset": 10.5}'),
        ('{"file": "a.txt"}', '{"file": "b.txt"}'),
        ('{"file": "report_alpha"}', '{"file": "report_beta"}'),
        ('{"q": "email of alice"}', '{"q": "email of bob"}'),
        ('{"host": "serverA"}', '{"host": "serverB"}'),
        ('{"q": "auth", "page": 1}', '{"q": "authentication", "page": 2}'),
        ('{"path": "src"}', '{"path": "src/app/models/user/account"}'),
    ],
)
def test_other_numbers_or_a_replaced_word_are_batch_work(one, other):
    assert not near_duplicates(one, other)
    assert not near_duplicates(other, one)


# ── What is masked ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "result",
    [
        "now 2024-05-01T10:00:0{n}Z",
        "now 2024-05-01 10:00:0{n}.12{n}+02:00",
        "at 10:0{n}:00, nothing",
        "Thu May 2 12:05:0{n} UTC 2024",
        "ts=171234567{n}",
        '{{"ts": 171234567{n}123}}',
        "nothing found, took {n} ms",
        "nothing found ({n}.{n}s)",
        "up for 1m{n}s",
        "waited {n} minutes",
        '{{"rows": [], "elapsed": 0.{n}}}',
        "request 4bf92f35-77b3-4da6-a3ce-929d0e0e473{n} failed",
        "request 4bf92f3577b34da6a3ce929d0e0e473{n}",
        '{{"request_id": "r{n}", "rows": []}}',
        "<object at 0x7f3a9c00{n}>",
        "see req_00a81f{n}",
        "requestId={n}",
        "pid {n} exited",
    ],
)
def test_timestamps_ids_and_durations_make_nothing_new(result):
    calls = [search("a", result.format(n=n)) for n in range(1, 6)]
    assert turns(StuckDetector(), calls) == [None, None, None, NUDGE, STOP]


@pytest.mark.parametrize(
    "result",
    [
        "{n} files left",
        "{n}% done",
        "sha1=403729c5736{n}",
        "8f14e45fceea167a5a36dedd4bea254{n}",
        "foo.py:{n}:14: unexpected token",
        "paid: {n}",
        "invalid: {n}",
        "version 1.{n}",
        "2024-05-0{n}",
        "{n} meters",
        "run_{n} passed",
    ],
)
def test_other_numbers_are_news(result):
    calls = [search("a", result.format(n=n)) for n in range(1, 9)]
    assert turns(StuckDetector(), calls) == [None] * 8


def test_nothing_is_masked_before_a_call_repeats_with_another_result(monkeypatch):
    def refuse(text):
        raise AssertionError(text[:80])

    monkeypatch.setattr(stuck_masks, "_masked", refuse)
    long = "2024-05-01T10:00:00Z " * 100
    turns(StuckDetector(), [search(f"q{n}", f"{n} {long}") for n in range(20)])
    turns(StuckDetector(), [search("a", long)] * 5)


def test_long_results_that_differ_in_the_middle_differ():
    calls = [search("a", "x" * 50_000 + str(n) + "y" * 50_000) for n in range(24)]
    assert turns(StuckDetector(), calls) == [None] * 24


def test_long_equal_results_are_equal_whatever_time_stands_at_either_end():
    page = "row\n" * 20_000
    calls = [search("a", f"at 10:00:0{n} {page} took {n} ms") for n in range(4)]
    assert turns(StuckDetector(), calls)[-1] == NUDGE


def test_five_megabytes_are_not_kept():
    detector = StuckDetector()
    huge = "x" * 5_000_000
    turn(detector, (Call("f", json.dumps({"text": huge})), huge))
    turn(detector, (Call("f", json.dumps({"text": huge})), huge + "y"))
    turn(detector, (Call("g"), huge, True))
    turn(detector, (Call("h"), "small"))
    assert len(pickle.dumps(detector)) < 20_000


# ── Canonical arguments ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "forms",
    [
        [
            '{"a": 1, "b": [1, 2]}',
            '{"b": [1, 2], "a": 1}',
            '{"b":[1,2],"a":1}',
            '{\n "a":1,"b":[1,2]}',
        ],
        [
            '{"a": {"x": 1, "y": 2}}',
            '{"a": {"y": 2, "x": 1}}',
            '{"a":{"y":2,"x":1}}',
            '{"a":{"x":1,"y":2}}',
        ],
        ['{"a": "é"}', '{"a": "\\u00e9"}', '{"a":"é"}', '{ "a":"\\u00E9"}'],
        [
            '{"a": "\\u00e9", "b": 1}',
            '{"b": 1, "a": "é"}',
            '{"a":"é","b":1}',
            '{"b":1,"a":"\\u00e9"}',
        ],
        ['{"u": "http:\\/\\/x"}', '{"u": "http://x"}', '{"u":"http://x"}', '{"u":"http:\\/\\/x"}'],
        ["", "{}", " {} ", "{ }"],
        [json.dumps({"t": "x" * 3_000, "n": 1}), json.dumps({"n": 1, "t": "x" * 3_000})] * 2,
        [json.dumps({"a": list(range(300)), "b": 1}, indent=indent) for indent in (None, 8, 1, 2)],
    ],
    ids=["order", "nested", "escape", "escape first", "slash", "empty", "long", "indented"],
)
def test_equal_json_is_the_same_call(forms):
    outcome = turns(StuckDetector(), [(Call("f", form), "same") for form in forms])
    assert outcome == [None, None, None, NUDGE]


@pytest.mark.parametrize(
    "forms",
    [
        ['{"a": 1}', '{"a": "1"}', '{"a": true}', '{"a": null}', '{"a": [1]}', '{"a": {"1": 1}}'],
        ['{"a": 1, "b": 2}', '{"a": 2, "b": 1}', '{"a": [1, 2]}', '{"a": [2, 1]}', '{"b": [2, 1]}'],
        ['{"a": "x y"}', '{"a": "xy"}', '{"a": " xy"}', '{"a": "x  y"}', '{"a": "x\\ny"}'],
        ["not json", "not  json", '{"a": ', "[" * 100_000, "[" * 90_000, "1" * 5_000],
    ],
)
def test_unequal_json_is_another_call(forms):
    calls = [(Call("f", form), f"result {n}") for n, form in enumerate(forms)]
    repeat = [(Call("f", form), f"result {n + 1}") for n, form in enumerate(forms)]
    assert not any(turns(StuckDetector(), calls + repeat))  # 2nd round: each result is new there


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.text('ab é"\\/{},:[]\n\u2028', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=2), inner),
    max_leaves=8,
)


def shuffled(value, draw):
    if isinstance(value, dict):
        names = draw(st.permutations(sorted(value)))
        return {name: shuffled(value[name], draw) for name in names}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


@given(st.data(), st.dictionaries(st.text("abcé", max_size=3), JSON, max_size=4))
def test_arguments_are_the_same_in_any_order_spacing_and_escaping(data, value):
    detector, outcome = StuckDetector(), []
    for _ in range(4):
        form = json.dumps(
            shuffled(value, data.draw),
            ensure_ascii=data.draw(st.booleans()),
            indent=data.draw(st.sampled_from([None, 0, 2])),
        )
        outcome.append(brief(turn(detector, (Call("f", form), "same"))))
    assert outcome == [None, None, None, NUDGE]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), min_size=2, max_size=8))
def test_unequal_arguments_are_never_taken_for_equal(values):
    detector = StuckDetector()
    memory = {}
    for value in values:
        text = json.dumps(value, sort_keys=True)
        call = (Call("f", json.dumps(value)), f"result of {text}")
        turn(detector, call)
        memory.setdefault(text, 0)
        memory[text] += 1
    assert len(set(map(id, detector._tools["f"].calls.values()))) == len(memory)


# ── Batches ──────────────────────────────────────────────────────────────────────────────────────


def test_identical_calls_in_one_batch_are_no_repeats():
    assert turn(StuckDetector(), *[A] * 30) is None


def test_identical_calls_in_one_batch_count_once():
    detector = StuckDetector()
    outcome = [brief(turn(detector, A, A, A)) for _ in range(5)]
    assert outcome == [None, None, None, NUDGE, STOP]


def test_identical_calls_in_one_batch_count_once_in_another_spelling():
    detector = StuckDetector()
    forms = [(Call("f", '{"a": 1, "b": 2}'), "x"), (Call("f", '{"b":2,"a":1}'), "x")]
    assert [brief(turn(detector, *forms)) for _ in range(5)] == [None, None, None, NUDGE, STOP]


@pytest.mark.parametrize(
    ("text", "error", "quiet"),
    [("no such index", True, 2), ("HTTP 503", True, 5), ("no results", False, 3)],
    ids=["same error", "transient", "no novelty"],
)
def test_identical_calls_in_one_batch_count_once_under_every_rule(text, error, quiet):
    detector = StuckDetector()
    calls = [search("a", text, *[True] * error)] * 8
    outcome = [brief(turn(detector, *calls)) for _ in range(quiet + 1)]
    assert outcome[:-1] == [None] * quiet
    assert outcome[-1] is not None


def test_identical_calls_in_one_batch_count_once_towards_the_25():
    detector = StuckDetector()
    outcome = [brief(turn(detector, poll(f"{n}%"), poll(f"{n}%"))) for n in range(25)]
    assert outcome == [None] * 24 + [("stop", "identical_call")]


def test_the_batch_is_judged_once_and_as_a_whole():
    detector = StuckDetector()
    turn(detector, A, B)
    assert turn(detector, A, B) is None  # two calls without novelty, one reply
    assert turn(detector, A, B, C) is None  # C is news: the reply got somewhere
    assert turn(detector, C, A, B) is None  # three calls, but one reply
    assert brief(turn(detector, A, B)) == NUDGE
    assert brief(turn(detector, A)) == STOP


def test_one_reply_alone_is_never_a_circle():
    detector = StuckDetector()
    many = [search(name, name) for name in NAMES]
    assert turn(detector, *many) is None
    assert turn(detector, *many) is None  # it checks again: nobody had told it that nothing changed
    assert brief(turn(detector, *many)) == NUDGE
    assert brief(turn(detector, *many)) == STOP


def test_a_cycle_of_batches_is_found():
    detector = StuckDetector()
    turn(detector, A, B)
    turn(detector, C)
    outcome = [brief(turn(detector, *calls)) for calls in [(A, B), (C,), (A, B)]]
    assert outcome == [None, NUDGE, STOP]  # after 2, 3 and 5 calls


def test_the_new_one_of_two_results_of_identical_calls_is_news():
    detector = StuckDetector()
    turns(detector, [A, A, A])
    assert turn(detector, A, search("a", "now another")) is None
    assert levels(detector, [A, A, A]) == [None, None, "nudge"]


def test_results_are_matched_by_id_in_any_order():
    detector, outcome = StuckDetector(), []
    for _ in range(4):
        messages = [asks(("1", "f", "{}"), ("2", "g", "{}")), answers("2", "g"), answers("1", "f")]
        outcome += observed(detector, messages)
    assert outcome == [None] * 8 + [NUDGE] + [None] * 2 + [STOP]  # each reply adds two calls


@pytest.mark.parametrize("ids", [("x", "x"), ("", ""), (None, None)])
def test_calls_with_the_same_or_no_id_are_answered_in_order(ids):
    detector, outcome = StuckDetector(), []
    for number in range(8):
        outcome += observed(
            detector,
            [
                asks((ids[0], "f", f'{{"n": {number}}}'), (ids[1], "g", "{}")),
                answers(ids[0], f"f {number}"),  # news in every reply
                answers(ids[1], "g"),
            ],
        )
    assert not any(outcome)


def test_answers_under_unknown_ids_are_taken_in_order():
    detector = StuckDetector()
    messages = [asks(("1", "f", "{}")), answers("call-77", "same")] * 4
    assert observed(detector, messages)[-1] == NUDGE


def test_a_second_answer_to_one_call_is_passed_over():
    detector = StuckDetector()
    batch = [asks(("1", "f", "{}"), ("2", "g", "{}")), answers("1", "f"), answers("1", "again")]
    assert observed(detector, [*batch, answers("2", "g")] * 3)[-1] == NUDGE


def test_calls_that_were_never_answered_count_for_nothing():
    detector = StuckDetector()
    assert not any(observed(detector, [asks(("1", "f", "{}"))] * 10))
    assert not any(observed(detector, [asks(("1", "f", "{}")), user()] * 10))
    assert observed(detector, [asks(("1", "f", "{}")), answers("1", "x")] * 4)[-1] == NUDGE


def test_an_answer_to_nothing_is_passed_over():
    detector = StuckDetector()
    assert detector.note_result("x") is None
    assert observed(detector, [answers("1", "x"), user(), answers("1", "x")]) == [None] * 3


def test_a_batch_is_judged_with_its_last_answer_only():
    detector = StuckDetector()
    turns(detector, [A, A, A])
    detector.note_assistant(None, [A[0], B[0]])
    assert detector.note_result(A[1]) is None
    assert detector.signal is None
    assert detector.note_result("something new") is None


# ── Traits ───────────────────────────────────────────────────────────────────────────────────────


def test_of_a_nondeterministic_tool_only_the_call_counts():
    detector = StuckDetector(traits={"ask": ToolTraits(nondeterministic=True)})
    calls = [(Call("ask", '{"q": "why?"}'), f"answer in wording {n}") for n in range(5)]
    assert turns(detector, calls) == [None, None, None, NUDGE, STOP]
    others = [(Call("ask", json.dumps({"q": name})), "because") for name in VARIATIONS]
    assert not any(turns(detector, others))


def test_volatile_fields_of_arguments_are_left_out():
    detector = StuckDetector(traits={"f": ToolTraits(volatile=("reason", "seq"))})
    calls = [
        (Call("f", json.dumps({"reason": name, "q": 1, "deep": {"seq": name}})), "same")
        for name in NAMES[:5]
    ]
    assert turns(detector, calls) == [None, None, None, NUDGE, STOP]


def test_volatile_fields_of_a_json_result_are_left_out():
    detector = StuckDetector(traits={"f": ToolTraits(volatile=("load",))})
    calls = [(Call("f"), json.dumps({"jobs": [{"load": name}]})) for name in NAMES[:4]]
    assert turns(detector, calls)[-1] == NUDGE
    news = [(Call("f"), json.dumps({"jobs": [{"load": 1, "name": name}]})) for name in NAMES]
    assert not any(turns(detector, news))
    broken = [(Call("f"), '{"load": ' + name) for name in NAMES[:5]]
    assert not any(turns(detector, broken))


def test_volatile_fields_of_another_tool_count():
    detector = StuckDetector(traits={"g": ToolTraits(volatile=("reason",))})
    assert not any(turns(detector, [(Call("f", json.dumps({"reason": n})), "x") for n in NAMES]))


def test_idempotent_changes_no_verdict():
    detector = StuckDetector(traits={"search": ToolTraits(idempotent=True)})
    assert turns(detector, [A] * 5) == [None, None, None, NUDGE, STOP]


# ── Policy at work ───────────────────────────────────────────────────────────────────────────────


def test_turned_off_it_says_nothing():
    detector = StuckDetector(StuckPolicy(action="off"))
    assert not any(turns(detector, [A] * 50))
    assert not any(observed(detector, [says("again")] * 5))


@pytest.mark.parametrize("action", ["nudge", "stop"])
def test_the_action_is_the_engines_business(action):
    assert turns(StuckDetector(StuckPolicy(action=action)), [A] * 5)[3:] == [NUDGE, STOP]


def test_limits_are_the_policys():
    policy = StuckPolicy(
        no_novelty_nudge=1,
        no_novelty_stop=2,
        transient_limit=1,
        same_text_limit=2,
        identical_call_limit=4,
    )
    assert turns(StuckDetector(policy), [A, A, A]) == [None, NUDGE, STOP]
    assert turns(StuckDetector(policy), [poll(f"{n}%") for n in range(4)])[3] == (
        "stop",
        "identical_call",
    )
    assert turns(StuckDetector(policy), [search("x", "HTTP 503", True)]) == [
        ("stop", "transient_errors")
    ]
    assert observed(StuckDetector(policy), [says("hm"), says("hm")])[1] == ("stop", "same_text")


def test_a_detector_can_be_copied_in_the_middle_of_a_batch():
    detector = StuckDetector(traits={"x": ToolTraits(polling=True)})
    turns(detector, [A, A, A])
    detector.note_assistant(None, [A[0]])
    for twin in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
        assert brief(twin.note_result(A[1])) == NUDGE
        assert brief(turn(twin, A)) == STOP
    assert detector.signal is None
    assert brief(detector.note_result(A[1])) == NUDGE


def test_two_detectors_share_nothing():
    one, other = StuckDetector(), StuckDetector()
    turns(one, [A] * 5)
    assert turns(other, [A] * 3) == [None] * 3


# ── Whatever is fed to it ────────────────────────────────────────────────────────────────────────

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FUNCTION = st.fixed_dictionaries({}, optional={"name": JUNK, "arguments": JUNK})
ODD_CALL = JUNK | st.fixed_dictionaries({}, optional={"id": JUNK, "function": FUNCTION | JUNK})
ODD_MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "user", "assistant", "tool", "tool", "function"]) | JUNK,
        "content": JUNK | st.lists(st.fixed_dictionaries({"type": JUNK, "text": JUNK}), max_size=2),
        "tool_calls": st.lists(ODD_CALL, max_size=3) | JUNK,
        "tool_call_id": JUNK,
        "is_error": JUNK,
        "status": JUNK,
    },
)


@given(st.lists(ODD_MESSAGE | JUNK, max_size=12))
def test_no_message_can_crash_it(messages):
    detector = StuckDetector()
    for message in messages:
        assert detector.observe(message) is None or isinstance(detector.signal, StuckSignal)
    is_stuck(messages)


@given(st.text() | st.text(st.characters(categories=["Cs"]), max_size=3), st.text(max_size=3))
def test_no_text_can_crash_it(text, more):
    detector = StuckDetector(traits={"f": ToolTraits(volatile=("a",))})
    for name in ("f", "g"):
        for result in (text, text + more, text * 50):
            turn(detector, (Call(name, text), result), (Call(name, text * 50), result, True))


@given(CONVERSATIONS)
def test_the_same_messages_give_the_same_signals(messages):
    assert observed(StuckDetector(), messages) == observed(StuckDetector(), messages)


@given(CONVERSATIONS)
def test_messages_are_left_as_they_were(messages):
    before = copy.deepcopy(messages)
    observed(StuckDetector(), messages)
    assert messages == before


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from("fg"),
            st.sampled_from(["{}", '{"a": 1}', '{"a":1}', '{"a": "b"}']),
            st.sampled_from(["ok", "nothing", "Error: x", "Error: 503"]),
        ),
        max_size=3,
    ),
    max_size=15,
)


@given(STEPS)
def test_both_ways_in_give_the_same_signals(steps):
    typed, recorded = StuckDetector(), StuckDetector()
    for step in steps:
        calls = [(f"c{n}", name, arguments) for n, (name, arguments, _) in enumerate(step)]
        typed.note_assistant(None, [Call(name, arguments, i) for i, name, arguments in calls])
        recorded.observe(asks(*calls))
        for number, (_, _, text) in enumerate(step):
            expected = typed.note_result(text, is_error=text.startswith("Error"))
            assert recorded.observe(answers(f"c{number}", text)) == expected


@given(st.lists(st.lists(st.sampled_from("fgh"), max_size=4), max_size=12), st.booleans())
def test_a_run_of_novel_calls_never_signals(replies, is_error):
    detector, number = StuckDetector(), 0
    for reply in replies:
        answered = []
        for name in reply:
            number += 1
            text = f"result {number}"
            answered.append((Call(name, json.dumps({"q": number})), text, *[True] * is_error))
        detector.note_assistant(f"thought {number}", [call for call, *_ in answered])
        for _, text, *error in answered:
            assert detector.note_result(text, is_error=bool(error)) is None


SCRIPT = """
from untildone.policy.stuck import StuckDetector
detector = StuckDetector()
for n in range(40):
    form = ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"c": %d}' % (n % 5)][n % 3]
    call = {"id": "c", "function": {"name": "f", "arguments": form}}
    detector.observe({"role": "assistant", "tool_calls": [call]})
    print(detector.observe({"role": "tool", "tool_call_id": "c", "content": "x" * 3000 * (n % 2)}))
"""


def test_signals_do_not_depend_on_the_processes_hash_seed():
    said = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(said) == 1
    assert "no_novelty" in said.pop()
