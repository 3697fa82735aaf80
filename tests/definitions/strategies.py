"""Definitions as hypothesis makes them: every kind, every field, and texts that formats dislike."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from untildone import LoopOutcome
from untildone.app.definitions import (
    AgentDefinition,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
)

# What the three formats have to quote, fold, escape or keep apart from numbers and keywords.
ODD_TEXTS = [
    *(
        "no",
        "on",
        "~",
        "null",
        "True",
        "1",
        "0o17",
        "0x1F",
        "1e3",
        ".inf",
        "-",
        "- a",
        "? a",
        "a: b",
    ),
    *("#", "a # b", "'", '"', "\\", "{", "[", "&a", "*a", "!a", "|", ">", "%", "@", "`", "<<", "="),
    *(
        "2020-01-01",
        "12:30:45",
        " a",
        "a ",
        "a\n",
        "\na",
        "a\n\nb",
        "a\n b\n",
        "a\r\nb",
        "a\tb",
        "\t",
    ),
    *(
        "---",
        "...",
        "a\n---\nb",
        "\x00",
        "\x07",
        "\x1b[0m",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
        "\ufeff",
    ),
    *(
        "\ufffe",
        "\U0001f600",
        "é",
        "ﬁ",
        "x" * 300,
        "word " * 60,
        "a\n" * 5,
        "'''",
        '"""',
        "\\u0041",
    ),
]

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(codec="utf-8"), max_size=30))
words = texts.filter(lambda text: bool(text.strip()))
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,12}", fullmatch=True)

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)


def json_values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )


without_null = json_values(st.booleans() | numbers | texts)
"""JSON values that TOML can say too."""

plain_json = json_values(st.none() | st.booleans() | numbers | texts)

bindings = st.builds(
    ModelBinding,
    provider=words,
    model=words,
    parameters=st.dictionaries(texts, without_null, max_size=3),
)
judges = st.none() | st.builds(ModelBinding, provider=words, model=words)


def of_kind(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[LoopCriterion]:
    return st.builds(LoopCriterion, kind=st.sampled_from([kind, kind.upper()]), **fields)


seconds = st.none() | st.floats(min_value=0.001, max_value=86_400)

simple_criteria = st.one_of(
    of_kind("completionMarker", marker=words),
    of_kind(
        "aiJudge",
        judge_criteria=st.lists(words, min_size=1, max_size=3),
        judge_instructions=st.none() | words,
        judge_model=judges,
    ),
    of_kind("todoCompletion", modes=st.none() | st.lists(words, min_size=1, max_size=2)),
    of_kind("backgroundTaskCompletion", wait_seconds=seconds),
    of_kind(
        "minScore",
        min_score=st.floats(0, 1) | st.integers(0, 1),
        rubric=st.none() | words,
        confirmations=st.none() | st.integers(0, 5),
        judge_model=judges,
    ),
    of_kind("jsonSchema", json_schema=st.dictionaries(texts, without_null, max_size=3)),
    of_kind("regex", pattern=st.sampled_from(["a", "^x{1,3}$", "(?i)done"]), feedback=words),
    of_kind(
        "command",
        command=words | st.lists(words, min_size=1, max_size=3),
        working_directory=st.none() | words,
        timeout_seconds=seconds,
    ),
    st.builds(
        LoopCriterion,
        kind=names.map(lambda name: f"my.{name}"),
        options=st.none() | st.dictionaries(texts, without_null, max_size=2),
    ),
)

criteria = st.recursive(
    simple_criteria,
    lambda inner: st.one_of(
        of_kind("allOf", criteria=st.lists(inner, min_size=1, max_size=3)),
        of_kind("anyOf", criteria=st.lists(inner, min_size=1, max_size=3)),
        of_kind("not", criteria=st.tuples(inner), feedback=st.none() | words),
    ),
    max_leaves=5,
)

loops = st.builds(
    LoopSettings,
    criteria=st.lists(criteria, min_size=1, max_size=3),
    max_iterations=st.none() | st.integers(1, 2**63 - 1),
    fresh_context_per_iteration=st.booleans(),
    on_exhausted=st.sampled_from(LoopOutcome),
    on_criterion_error=st.sampled_from(LoopOutcome),
)

definitions = st.builds(
    AgentDefinition,
    name=words,
    model=bindings,
    instructions=texts,
    tools=st.lists(words, max_size=3, unique=True),
    mcp_servers=st.lists(words, max_size=2, unique=True),
    harness=st.builds(
        HarnessSettings,
        loop=st.none() | loops,
        maximum_iterations_per_request=st.none() | st.integers(1, 1000),
    ),
)
