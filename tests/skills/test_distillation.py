"""From a converged run to a skill: its name, its description, its agent, and what it then does."""

import asyncio
import hashlib
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.behaviour.kit import answers, ask
from tests.behaviour.refine_kit import scoring
from tests.skills.kit import TOP_TEN, converging, distilled
from untildone import (
    Agent,
    AgentHooks,
    ConfigError,
    FallbackChain,
    LoopConfig,
    LoopConfigWarning,
    MaxTurnsError,
    RetryPolicy,
    ServerError,
    SkillError,
    StuckPolicy,
    resume_agent,
    run_agent,
    search_loop,
)
from untildone.domain.usage import Usage
from untildone.skills import DistilledSkill, SkillRegistry, skill
from untildone.skills.distilled import described, skill_name
from untildone.testing import EventLog, FakeClock, ScriptedModel, call, reply


def names() -> list[str]:
    return [each.name for each in SkillRegistry.list_all()]


# ── Name ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_name_is_the_tag_and_eight_hex_of_the_query():
    digest = hashlib.sha256(TOP_TEN.encode()).hexdigest()[:8]
    assert skill_name("sql_analyst", TOP_TEN) == f"sql_analyst_{digest}"


@given(st.text(min_size=1), st.text())
def test_every_name_can_be_used_and_ends_with_eight_hex_of_the_query(tag: str, query: str):
    name = skill_name(tag, query)
    assert re.fullmatch(r"[A-Za-z0-9_-]{10,64}", name)
    assert re.fullmatch(r".*_[0-9a-f]{8}", name)
    assert name.rpartition("_")[2] == skill_name("tag", query).rpartition("_")[2]
    assert name == skill_name(tag, query)


@pytest.mark.parametrize(
    ("one", "other"),
    [("分析", "翻译"), ("a b", "a_b"), ("x" * 80, "x" * 81), ("a.b", "a/b"), ("é", "è")],
)
def test_tags_that_look_alike_when_written_plainly_keep_their_skills_apart(one: str, other: str):
    assert skill_name(one, "q") != skill_name(other, "q")


async def test_the_tag_is_the_loops_then_the_agents_then_its_name():
    for settings, tag in (
        ({"loop": {"task_tag": "loop_tag"}, "procedural_task_tag": "agent_tag"}, "loop_tag"),
        ({"procedural_task_tag": "agent_tag"}, "agent_tag"),
        ({}, "sql_analyst"),
    ):
        assert (await distilled(["a"], **settings)).name.startswith(f"{tag}_")


async def test_distilling_again_replaces_the_skill():
    first = await distilled(["a"], system_prompt="one")
    second = await distilled(["a"], system_prompt="two")
    assert first.name == second.name
    assert SkillRegistry.get(first.name) is second
    assert len(names()) == 1


@pytest.mark.parametrize("value", [85, 1.01, -0.1, float("nan"), float("inf"), True, "0.9"])
async def test_a_confidence_that_is_none_is_told_of_and_distils_nothing(
    value: Any, caplog: pytest.LogCaptureFixture
):
    def converged(result: Any) -> bool:
        result.confidence = value
        return True

    loop = LoopConfig(convergence_fn=converged, auto_extract_skill=True)
    result = await run_agent(Agent("a", ScriptedModel(["x"]), loop_config=loop), ask())
    assert result.exit_reason == "converged"
    assert result.confidence is None
    assert names() == []
    assert f"set to {value!r} and is left out" in caplog.text
    assert "from 0 to 1" in caplog.text


# ── Description ──────────────────────────────────────────────────────────────────────────────────


async def test_the_description_is_made_of_the_tag_and_the_query():
    skill = await distilled(["a"])
    assert skill.description == (
        "Does tasks of the kind 'sql_analyst', such as: Find top 10 customers by revenue"
    )


SECRETS = [
    "bob.smith@example.com",
    "+1 (555) 123-4567",
    "030/12345-67",
    "sk-proj-AbCd1234EfGh5678",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "4111 1111 1111 1111",
    "123-45-6789",
    "8675309",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "Xy7Pq2LmN9aaB",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["Use {} please", "邮箱{}。谢谢", "({})", "{}"])
def test_what_looks_like_a_secret_or_a_person_is_left_out(secret: str, around: str):
    text = described("tag", around.format(secret))
    assert secret not in text
    for part in re.findall(r"[A-Za-z0-9]{5,}", secret):
        if part not in ("BEGIN", "PRIVATE", "example"):
            assert part not in text
    assert re.search(r"\[(email|number|secret)\]", text)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("the password is hunter2, use it", "the password is [secret] use it"),
        ("token=abc and api_key: xyz", "token=[secret] and api_key: [secret]"),
        ("Authorization: Bearer abc", "Authorization: [secret]"),
        ("connect to postgres://admin:pw@db/x", "connect to postgres://[secret]@db/x"),
    ],
)
def test_what_is_called_a_secret_is_left_out(query: str, kept: str):
    assert described("tag", query).endswith(kept)


@pytest.mark.parametrize(
    "query",
    [
        "Explain the mechanism of CRISPR-Cas9 gene editing",
        "Compare Q1 2024 with Q1 2023, growth over 1,000,000",
        "reset the password policy of version 1.2.3",
        "in python3.11 with utf-8 on x86_64",
    ],
)
def test_plain_words_stay_as_they_are(query: str):
    assert described("tag", query).endswith(query)


def test_a_tag_is_redacted_too():
    assert "bob@example.com" not in described("bob@example.com", "q")


@given(st.text(alphabet=" \n\tabcAB1@.-", max_size=4000))
def test_a_description_is_one_short_line(query: str):
    text = described("tag", query)
    assert "\n" not in text
    assert len(text) < 260


def test_a_secret_at_the_edge_of_what_is_read_is_not_cut_in_half():
    query = "word " * 399 + "sk-proj-AbCd1234EfGh5678"
    assert "sk-" not in described("tag", query)


def test_without_a_query_the_tag_is_all_there_is():
    assert described("tag", " \n ") == "Does tasks of the kind 'tag'"


async def test_the_description_can_be_given_or_made_sync_or_async():
    async def slowly(tag: str, query: str) -> str:
        return f"{query}/{tag}"

    for given_, wanted in (
        ("Analyses sales.", "Analyses sales."),
        (lambda tag, query: f"{tag}: {len(query)}", f"sql_analyst: {len(TOP_TEN)}"),
        (slowly, f"{TOP_TEN}/sql_analyst"),
        ("x" * 2000, "x" * 1024),
    ):
        made = await distilled(["a"], loop={"skill_description": given_})
        assert made.description == wanted


async def test_a_given_description_that_is_empty_leaves_the_query_out():
    for given_ in ("", "  ", lambda tag, query: ""):
        made = await distilled(["a"], loop={"skill_description": given_})
        assert made.description == "Does tasks of the kind 'sql_analyst'"


async def test_what_a_description_costs_counts_for_the_run():
    usage = Usage(input_tokens=5000, output_tokens=7)

    async def asked(tag: str, query: str) -> str:
        writer = Agent("writer", ScriptedModel(["a summary"], usage=usage))
        return (await run_agent(writer, ask())).text

    plain = await run_agent(converging(["a"]), ask())
    log = EventLog()
    result = await run_agent(converging(["a"], loop={"skill_description": asked}), ask(), log=log)
    assert result.input_tokens == plain.input_tokens + 5000
    assert result.output_tokens == plain.output_tokens + 7
    again = await resume_agent(converging(["a"], loop={"skill_description": asked}), log.events)
    assert (again.input_tokens, again.output_tokens) == (result.input_tokens, result.output_tokens)


async def test_a_description_that_cannot_be_made_costs_the_skill_and_not_the_answer(caplog: Any):
    def broken(tag: str, query: str) -> str:
        raise ZeroDivisionError("no words")

    result = await run_agent(converging(["a"], loop={"skill_description": broken}), ask())
    assert result.text == "a"
    assert names() == []
    assert "no words" in caplog.text


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────


def test_what_has_no_effect_is_warned_of_by_name():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"auto_extract_skill": True}, "auto_extract_skill"),
        ({"auto_extract_skill": True, "criteria": [lambda ctx: True]}, "auto_extract_skill"),
        ({"skill_description": "x"}, "skill_description"),
    ]
    for settings, named in cases:
        with pytest.warns(LoopConfigWarning, match=named):
            LoopConfig(**settings)


def test_with_something_that_judges_there_is_no_warning():
    LoopConfig(auto_extract_skill=True, verifier=scoring(1.0))
    LoopConfig(auto_extract_skill=True, convergence_fn=lambda r: True)


@pytest.mark.parametrize("name", ["skill_description", "skill_library"])
def test_what_cannot_work_is_refused(name: str):
    settings: dict[str, Any] = {name: 5}
    with pytest.raises(ConfigError, match=name):
        LoopConfig(auto_extract_skill=True, verifier=scoring(1.0), **settings)


# ── The agent ────────────────────────────────────────────────────────────────────────────────────


async def lookup(what: str) -> str:
    return f"facts about {what}"


async def test_replay_runs_a_fresh_agent_with_the_same_settings():
    class Answer(BaseModel):
        answer: str

    @skill
    async def helper() -> str:
        return "helped"

    async def approve(name: str, args: dict[str, Any]) -> bool:
        return True

    settings: dict[str, Any] = {
        "system_prompt": "Be exact.",
        "tools": [lookup],
        "skills": [helper],
        "max_turns": 7,
        "temperature": 0.3,
        "max_tokens": 99,
        "extra_params": {"top_p": 0.5},
        "retry_policy": RetryPolicy(max_retries=1),
        "fallback_chain": FallbackChain([ScriptedModel(["never"])]),
        "hooks": AgentHooks(approve_tool=approve),
        "stuck": StuckPolicy(action="off"),
        "on_max_turns": "raise",
        "timeout_s": 12.0,
        "response_model": Answer,
    }
    agent = converging(['{"answer": "1"}'], **settings)
    await run_agent(agent, ask(TOP_TEN))
    (made,) = SkillRegistry.list_all()
    assert isinstance(made, DistilledSkill)
    fresh = made.agent
    assert (fresh.name, fresh.model, fresh.loop_config) == (agent.name, agent.model, None)
    for name in settings:
        assert getattr(fresh, name) == getattr(agent, name), name


async def test_replay_does_a_new_task_and_remembers_no_answer():
    def script(seen: Any) -> str:
        return f"{seen.index}: {seen.messages[-1]['content']}"

    made = await distilled(script, system_prompt="Be exact.")
    assert await made.execute(task="Now the worst ten") == "1: Now the worst ten"
    model = made.agent.model
    assert isinstance(model, ScriptedModel)
    assert model.requests[1].messages == [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": "Now the worst ten"},
    ]


async def test_the_tools_of_a_skill_are_those_that_the_run_had():
    made_with: list[Any] = [lookup]
    agent = converging(["a", reply(None, call("lookup", what="x")), "b"])
    await run_agent(agent, ask(), tool_defs=made_with)
    (made,) = SkillRegistry.list_all()
    assert await made.execute(task="t") == "b"
    model = agent.model
    assert isinstance(model, ScriptedModel)
    assert answers(model.requests[-1].messages) == ["facts about x"]


async def test_a_search_loop_is_distilled_with_its_one_tool():
    agent = converging(["a"], loop={"verifier": scoring(0.9)}, tools=[])
    with pytest.warns(LoopConfigWarning, match="confidence"):
        await search_loop("find it", lookup, agent)
    (made,) = SkillRegistry.list_all()
    assert isinstance(made, DistilledSkill)
    assert list(made.agent.tools) == [lookup]


async def test_memories_stay_with_the_agent_that_learned():
    class Shelf:
        async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
            return [("k", "v")]

        async def store(self, key: str, value: str) -> None: ...

        async def retrieve(self, key: str) -> str | None: ...

        async def clear(self) -> None: ...

    made = await distilled(["a", "b"], memory=Shelf())
    assert made.agent.memory is None
    assert await made.execute(task="t") == "b"


async def test_the_agent_of_an_agent_is_distilled_too():
    inner = converging(["inner answer"], name="inner")
    outer = ScriptedModel([reply(None, call("inner", task="Do it.")), "Done."])
    await run_agent(Agent("outer", outer, tools=[inner.as_tool()]), ask())
    assert names() == [skill_name("inner", "Do it.")]


async def test_a_run_inside_a_run_inside_a_thread_is_distilled_too():
    inner = converging(["inner answer"], name="inner")

    def work(task: str) -> str:
        return asyncio.run(run_agent(inner, ask(task))).text

    outer = ScriptedModel([reply(None, call("work", task="Do it.")), "Done."])
    await run_agent(Agent("outer", outer, tools=[work]), ask())
    assert names() == [skill_name("inner", "Do it.")]


# ── Execution ────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_calls_a_distilled_skill_by_its_name_with_a_task():
    made = await distilled(["a", "the replayed answer"])
    model = ScriptedModel([reply(None, call(made.name, task="Next.")), "Done."])
    result = await run_agent(Agent("host", model, skills=[made]), ask())
    assert answers(result.messages) == ["the replayed answer"]
    spec = made.spec.to_dict()["function"]
    assert spec["parameters"]["required"] == ["task"]


async def test_what_a_skill_costs_counts_for_the_run_that_called_it():
    made = await distilled(["a", reply(None, call("lookup", what="x")), "b"], tools=[lookup])
    model = ScriptedModel([reply(None, call(made.name, task="Next.")), "Done."])
    result = await run_agent(Agent("host", model, skills=[made]), ask())
    assert (result.input_tokens, result.output_tokens) == (40, 20)
    assert result.turns == 2


@pytest.mark.parametrize("kwargs", [{}, {"task": 5}, {"task": "t", "more": 1}, {"query": "t"}])
async def test_a_call_without_a_task_says_how_to_call(kwargs: dict[str, Any]):
    made = await distilled(["a"])
    with pytest.raises(SkillError, match=r"execute\(task='...'\)"):
        await made.execute(**kwargs)


async def test_an_answer_that_was_not_finished_says_so():
    made = await distilled(["a", reply("so far", call("lookup", what="x"))], tools=[lookup])
    made.agent.__dict__["max_turns"] = 1
    assert await made.execute(task="t") == f"[{made.name} stopped early: max_turns]\nso far"


async def test_on_max_turns_raise_raises_out_of_a_skill():
    script = [
        "a",
        *[reply(None, call("lookup", what=str(n))) for n in range(2)],
    ]
    made = await distilled(script, tools=[lookup], max_turns=2, on_max_turns="raise")
    with pytest.raises(MaxTurnsError):
        await made.execute(task="t")


async def test_retries_are_those_of_the_agent():
    made = await distilled(
        ["a", ServerError("down"), "b"], retry_policy=RetryPolicy(backoff_seconds=0)
    )
    assert await made.execute(task="t") == "b"


async def test_a_denied_tool_stays_denied_inside_a_skill():
    ran: list[str] = []

    async def wipe(path: str) -> str:
        ran.append(path)
        return "gone"

    async def deny(name: str, args: dict[str, Any]) -> bool:
        return False

    script = ["a", reply(None, call("wipe", path="/")), "I may not."]
    made = await distilled(script, tools=[wipe], hooks=AgentHooks(approve_tool=deny))
    assert await made.execute(task="t") == "I may not."
    assert ran == []


async def test_a_tool_that_waits_for_a_person_is_an_error_inside_a_skill():
    async def ask_someone(name: str, args: dict[str, Any]) -> None: ...

    made = await distilled(
        ["a", reply(None, call("lookup", what="x"))],
        tools=[lookup],
        hooks=AgentHooks(approve_tool=ask_someone),
    )
    with pytest.raises(SkillError, match="approval"):
        await made.execute(task="t")


async def test_a_failing_skill_is_one_error_and_the_calling_run_goes_on():
    made = await distilled(["a", ServerError("down")])
    model = ScriptedModel([reply(None, call(made.name, task="t")), "I see."])
    result = await run_agent(Agent("host", model, skills=[made]), ask())
    assert answers(result.messages) == ["Error: ServerError: down"]
    assert result.text == "I see."


async def test_cancelling_the_calling_run_ends_the_skill():
    reached = asyncio.Event()

    async def forever(seen: Any) -> str:
        if seen.index == 0:
            return "a"
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    made = await distilled(forever)
    model = ScriptedModel([reply(None, call(made.name, task="t"))])
    task = asyncio.create_task(run_agent(Agent("host", model, skills=[made]), ask()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ── None calls itself ────────────────────────────────────────────────────────────────────────────


async def test_a_skill_distilled_again_is_not_offered_to_itself():
    first = await distilled(["a", "b"])
    second = await distilled(["a", "b"], skills=[first])
    assert first.name == second.name
    assert list(second.agent.skills) == []
    model = second.agent.model
    assert isinstance(model, ScriptedModel)
    await second.execute(task="t")
    assert model.requests[-1].tool_names == []


async def test_two_skills_that_call_each_other_end_with_an_error_result():
    """A's agent has B, B's agent has A: A → B → A is refused, and both still answer."""

    def calling(name: str) -> Any:
        def script(seen: Any) -> Any:
            last = seen.messages[-1]
            return reply(None, call(name, task="go on")) if last["role"] == "user" else "over"

        return script

    b_skills: list[Any] = []
    b = DistilledSkill("b", "B.", Agent("b", ScriptedModel(calling("a")), skills=b_skills))
    a = DistilledSkill("a", "A.", Agent("a", ScriptedModel(calling("b")), skills=[b]))
    b.agent.__dict__["skills"] = (a,)
    assert await a.execute(task="begin") == "over"
    model = b.agent.model
    assert isinstance(model, ScriptedModel)
    (told,) = answers(model.requests[-1].messages)
    assert "a → b → a" in told
    assert told.startswith("Error: ")


async def test_one_skill_serves_many_runs_at_once():
    made = await distilled(lambda seen: seen.messages[-1]["content"])
    texts = await asyncio.gather(*(made.execute(task=f"task {n}") for n in range(50)))
    assert texts == [f"task {n}" for n in range(50)]


async def test_the_registry_holds_what_many_runs_distil_at_once():
    agent = converging(lambda seen: "a")
    await asyncio.gather(*(run_agent(agent, ask(f"q{n}")) for n in range(50)))
    assert sorted(names()) == sorted(skill_name("sql_analyst", f"q{n}") for n in range(50))


async def test_a_registry_that_fails_costs_the_skill_and_not_the_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(skill: Any) -> None:
        raise ZeroDivisionError("full")

    monkeypatch.setattr(SkillRegistry, "register", fail)
    with caplog.at_level(logging.WARNING, "untildone"):
        result = await run_agent(converging(["a"]), ask(), clock=FakeClock())
    assert result.text == "a"
    assert "full" in caplog.text
