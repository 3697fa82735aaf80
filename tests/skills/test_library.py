"""A library: distilled skills in a folder, found again by another process."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.behaviour.kit import answers, ask
from tests.skills.kit import TOP_TEN, converging, distilled, inline
from untildone import (
    Agent,
    AgentHooks,
    ConfigError,
    FallbackChain,
    RateLimitError,
    RetryPolicy,
    ServerError,
    SkillError,
    StuckPolicy,
    run_agent,
)
from untildone.skills import DistilledSkill, SkillLibrary, SkillRegistry, skill
from untildone.skills.distilled import skill_name
from untildone.skills.skill_file import SkillFile
from untildone.testing import ScriptedModel, call, reply
from untildone.tools.mcp import HTTPMCP, StdioMCP


async def lookup(what: str) -> str:
    return f"facts about {what}"


class Answer(BaseModel):
    answer: str


def made(name: str = "sql_analyst_1a2b3c4d", model: Any = "ollama/llama3", **settings: Any):
    agent = Agent("sql_analyst", model, settings.pop("system_prompt", "Be exact."), **settings)
    return DistilledSkill(name, f"Does what {name} does.", agent)


@pytest.fixture
def library(tmp_path: Path) -> SkillLibrary:
    return SkillLibrary(tmp_path / "skills")


def only_file(library: SkillLibrary) -> Path:
    (path,) = library.path.glob("*/SKILL.md")
    return path


# ── Round trip ───────────────────────────────────────────────────────────────────────────────────


def test_a_saved_skill_is_a_skill_md_that_other_tools_can_read(library: SkillLibrary):
    path = library.save(made(tools=[lookup]))
    assert path == library.path / "sql-analyst-1a2b3c4d" / "SKILL.md"
    file = SkillFile.from_text(path.read_text("utf-8"))
    assert file.name == path.parent.name
    assert file.description == "Does what sql_analyst_1a2b3c4d does."
    assert file.body == "Be exact."
    assert file.metadata["untildone-model"] == "ollama/llama3"
    assert file.metadata["untildone-tools"] == '["lookup"]'


def test_a_loaded_skill_has_everything_that_the_saved_one_had(library: SkillLibrary):
    @skill
    async def helper() -> str:
        return "helped"

    async def approve(name: str, args: dict[str, Any]) -> bool:
        return True

    hooks = AgentHooks(approve_tool=approve)
    mcps = [StdioMCP("server", env={"KEY": "v"}), HTTPMCP("https://example.com/mcp", name="web")]
    before = made(
        system_prompt="Be exact.\n\n---\nNever guess: «ü»\n",
        tools=[lookup],
        mcps=mcps,
        skills=[helper],
        max_turns=7,
        temperature=0.25,
        max_tokens=99,
        extra_params={"top_p": 0.5, "stop": ["END"]},
        retry_policy=RetryPolicy(max_retries=1, retry_on=(RateLimitError, ServerError)),
        fallback_chain=FallbackChain(["ollama/qwen3", "ollama/gemma3"]),
        hooks=hooks,
        response_model=Answer,
        stuck=StuckPolicy(action="stop", no_novelty_stop=9),
        on_max_turns="raise",
        timeout_s=12.5,
    )
    library.save(before)
    (after,) = library.load(
        tools=[lookup], mcps=mcps, skills=[helper], response_models=[Answer], hooks=hooks
    )
    assert (after.name, after.description) == (before.name, before.description)
    assert after is SkillRegistry.get(before.name)
    same = (
        "name model system_prompt max_turns temperature max_tokens extra_params retry_policy"
        " fallback_chain hooks response_model stuck on_max_turns timeout_s loop_config"
    )
    for name in same.split():
        assert getattr(after.agent, name) == getattr(before.agent, name), name
    assert list(after.agent.mcps) == mcps
    assert list(after.agent.skills) == [helper]
    assert [each.spec.name for each in after.agent.tools] == ["lookup"]


async def test_a_loaded_skill_works_with_the_functions_it_is_bound_to(library: SkillLibrary):
    library.save(await distilled(["a"], tools=[lookup]))
    SkillRegistry.clear()

    async def lookup_anew() -> str:
        return "never"

    model = ScriptedModel([reply(None, call("lookup", what="x")), "done"])
    (after,) = library.load(tools=[lookup, lookup_anew], model=model)
    assert await after.execute(task="t") == "done"
    assert answers(model.requests[-1].messages) == ["facts about x"]
    assert model.requests[0].tool_names == ["lookup"]


def test_another_process_has_the_skills_too(library: SkillLibrary):
    library.save(made(tools=[lookup]))
    program = textwrap.dedent("""
        import asyncio, sys
        from untildone.skills import SkillLibrary, SkillRegistry
        from untildone.testing import ScriptedModel

        async def lookup(what: str) -> str:
            return "facts"

        SkillLibrary(sys.argv[1]).load(tools=[lookup])
        skill = SkillRegistry.get("sql_analyst_1a2b3c4d")
        skill.agent.__dict__["model"] = ScriptedModel(lambda seen: seen.messages[-1]["content"])
        print(asyncio.run(skill.execute(task="from another process")))
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(library.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == "from another process\n"


async def test_distillation_saves_into_the_loops_library(library: SkillLibrary):
    await run_agent(converging(["a"], loop={"skill_library": library}), ask(TOP_TEN))
    assert library.names() == [skill_name("sql_analyst", TOP_TEN)]


async def test_a_library_that_fails_costs_nothing_but_is_reported(tmp_path: Path, caplog: Any):
    (tmp_path / "file").write_text("in the way")
    library = SkillLibrary(tmp_path / "file")
    agent = converging(["a"], loop={"skill_library": library})
    result = await run_agent(agent, ask(TOP_TEN))
    assert result.text == "a"
    assert len(SkillRegistry.list_all()) == 1
    assert "is not kept in SkillLibrary" in caplog.text


def test_saving_again_replaces_and_removing_removes(library: SkillLibrary):
    library.save(made(system_prompt="one"))
    library.save(made(system_prompt="two"))
    (after,) = library.load()
    assert after.agent.system_prompt == "two"
    assert library.remove(after.name)
    assert not library.remove(after.name)
    assert library.names() == []
    assert list(library.path.iterdir()) == []


def test_a_library_that_is_not_there_yet_is_empty(library: SkillLibrary):
    assert library.names() == []
    assert library.load() == []
    assert not library.remove("x")


def test_skills_can_be_loaded_by_name_and_without_a_registry(library: SkillLibrary):
    for name in ("one_00000001", "two_00000002"):
        library.save(made(name))
    (after,) = library.load(only=["two_00000002"], registry=None)
    assert after.name == "two_00000002"
    assert SkillRegistry.list_all() == []
    with pytest.raises(SkillError, match=r"no skill 'three' in .*skills"):
        library.load(only=["two_00000002", "three"])


def test_a_skill_that_another_needs_is_built_before_it(library: SkillLibrary):
    inner = made("z_inner")
    middle = made("m_middle", skills=[inner])
    library.save(made("a_outer", skills=[middle]))
    library.save(middle)
    library.save(inner)
    by_name = {each.name: each for each in library.load()}
    (bound,) = by_name["a_outer"].agent.skills
    assert bound is by_name["m_middle"]
    assert list(bound.agent.skills) == [by_name["z_inner"]]


def test_a_needed_skill_is_found_in_the_registry(library: SkillLibrary):
    @skill
    async def helper() -> str:
        return "helped"

    library.save(made(skills=[helper]))
    SkillRegistry.register(helper)
    (after,) = library.load()
    assert list(after.agent.skills) == [helper]


# ── What is missing ──────────────────────────────────────────────────────────────────────────────


def test_all_that_is_missing_is_listed_at_once_and_nothing_is_registered(library: SkillLibrary):
    @skill
    async def helper() -> str:
        return "helped"

    async def approve(name: str, args: dict[str, Any]) -> bool:
        return True

    library.save(
        made(
            "needy_00000001",
            ScriptedModel([]),
            tools=[lookup],
            mcps=[StdioMCP("server")],
            skills=[helper],
            hooks=AgentHooks(approve_tool=approve),
            response_model=Answer,
        )
    )
    library.save(made("plain_00000002"))
    with pytest.raises(SkillError) as caught:
        library.load()
    for needed in (
        "the tool 'lookup': give tools=[...]",
        "the MCP server 'server': give mcps=[...]",
        "the skill 'helper': give skills=[...]",
        "the hook approve_tool: give hooks=AgentHooks(approve_tool=...)",
        "the response model 'Answer': give response_models=[...]",
        "its model was an object: give model=...",
    ):
        assert needed in str(caught.value)
    assert str(caught.value).count("needy-00000001") == 6
    assert SkillRegistry.list_all() == []


def test_skills_that_need_each_other_are_refused_by_name(library: SkillLibrary):
    a, b = made("a"), made("b")
    library.save(made("a", skills=[b]))
    library.save(made("b", skills=[a]))
    with pytest.raises(SkillError) as caught:
        library.load()
    assert "it needs the skill 'b'" in str(caught.value)
    assert "it needs the skill 'a'" in str(caught.value)


def test_each_skill_gets_the_hooks_that_it_had_and_no_others(library: SkillLibrary):
    async def deny(name: str, args: dict[str, Any]) -> bool:
        return False

    async def seen(name: str, text: str) -> None:
        return None

    library.save(made("free"))
    library.save(made("asks", hooks=AgentHooks(approve_tool=deny)))
    given = AgentHooks(approve_tool=deny, on_tool_end=seen)
    loaded = {skill.name: skill.agent.hooks for skill in library.load(hooks=given)}
    assert loaded == {"free": None, "asks": AgentHooks(approve_tool=deny)}


# ── What must not or cannot be written ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "params",
    [
        {"api_key": "k"},
        {"extra_headers": {"Authorization": "Bearer x"}},
        {"client": [{"password": "p"}]},
        {"access_token": "t"},
        {"openai_api_key": "k"},
        {"hf_token": "t"},
        {"session_token": "t"},
        {"extra_headers": {"X-Goog-Api-Key": "k"}},
        {"extra_headers": {"Proxy-Authorization": "Basic x"}},
        {"extra_headers": {"X-Auth": "x"}},
        {"extra_headers": {"Ocp-Apim-Subscription-Key": "x"}},
        {"api_keys": ["k"]},
        {"api_key": b"k"},
        {"user": "sk-proj-abcdefghijklmnop123456"},
        {"headers": [["Authorization", "Bearer abc123def"]]},
        {"proxy": "http://user:pw@host"},
    ],
)
def test_a_secret_among_the_parameters_is_not_written(library: SkillLibrary, params: Any):
    with pytest.raises(ConfigError, match="looks like a secret") as caught:
        library.save(made(extra_params=params))
    assert "'Bearer x'" not in str(caught.value)
    assert not library.path.exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"system_prompt": "Use sk-proj-abcdefghijklmnop123456 for it."}, "the system_prompt"),
        ({"system_prompt": "-----BEGIN RSA PRIVATE KEY-----\nx"}, "the system_prompt"),
        ({"model": "openai/gpt@https://user:pw@host"}, "the model"),
        ({"fallback_chain": FallbackChain(["openai/gpt@https://user:pw@host"])}, "the model"),
    ],
)
def test_a_key_in_a_text_is_not_written(library: SkillLibrary, settings: Any, named: str):
    with pytest.raises(ConfigError, match="what looks like a key") as caught:
        library.save(made(**settings))
    assert named in str(caught.value)
    assert not library.path.exists()


def test_what_only_sounds_like_a_secret_is_written(library: SkillLibrary):
    password = {"type": "object", "properties": {"password": {"type": "string"}}}
    params = {
        "max_tokens": 5,
        "stop_token": "</s>",
        "prompt_cache_key": "sales",
        "response_format": {"type": "json_schema", "json_schema": {"schema": password}},
    }
    prompt = "Never show a password, a token or an API key. Ask for the bearer of the ring."
    library.save(made(extra_params=params, system_prompt=prompt))
    (after,) = library.load()
    assert dict(after.agent.extra_params) == params


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"extra_params": {"f": print}}, "cannot be written down"),
        ({"extra_params": {"f": float("nan")}}, "cannot be written down"),
        ({"fallback_chain": FallbackChain([ScriptedModel([])])}, "fallback_chain"),
        ({"retry_policy": RetryPolicy(retry_on=(OSError,))}, "OSError"),
    ],
)
def test_what_is_no_data_is_refused_by_name(library: SkillLibrary, settings: Any, told: str):
    with pytest.raises(ConfigError, match=told):
        library.save(made(**settings))


def test_a_skill_of_python_is_kept_as_python(library: SkillLibrary):
    @skill
    async def helper() -> str:
        return "helped"

    wrong: Any = helper
    with pytest.raises(ConfigError, match="kept as Python"):
        library.save(wrong)


def test_the_secrets_of_a_server_are_not_written(library: SkillLibrary):
    servers = [
        HTTPMCP("https://u:pw@example.com/mcp?key=k1", headers={"Authorization": "Bearer b1"}),
        StdioMCP("server", env={"KEY": "e1"}),
    ]
    path = library.save(made(mcps=servers))
    text = path.read_text("utf-8")
    assert SkillFile.from_text(text).metadata["untildone-mcps"] == '["example.com", "server"]'
    for secret in ("u:pw", "key=k1", "Bearer", "KEY"):
        assert secret not in text


# ── The folder ───────────────────────────────────────────────────────────────────────────────────

NAMES = ["A_1", "a_1", "a-1", "a__1", "_a_1", "a_1_", "A" * 64, "a" * 64, "-", "_", "9"]


def test_no_two_names_share_a_folder_and_all_are_as_the_form_wants_them(library: SkillLibrary):
    for name in NAMES:
        library.save(made(name))
    folders = [each.name for each in library.path.iterdir()]
    assert len(folders) == len(NAMES)
    for folder in folders:
        assert len(folder) <= 64
        assert folder == folder.lower()
        assert folder.replace("-", "").isalnum()
        assert "--" not in folder
        assert not folder.startswith("-")
    assert sorted(library.names()) == sorted(NAMES)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "..", "a/../../b", "C:\\x", "\x00"])
def test_no_name_leads_out_of_the_folder(library: SkillLibrary, tmp_path: Path, name: str):
    outside = tmp_path / "evil" / "SKILL.md"
    outside.parent.mkdir()
    outside.write_text("keep me")
    assert not library.remove(name)
    with pytest.raises(SkillError, match="no skill"):
        library.load(only=[name])
    with pytest.raises(ConfigError, match="name"):
        made(name)
    assert outside.read_text() == "keep me"


def test_links_that_lead_out_of_the_folder_are_not_followed(library: SkillLibrary, tmp_path: Path):
    library.save(made())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = library.path / "sql-analyst-1a2b3c4d"
    (target / "SKILL.md").rename(elsewhere / "SKILL.md")
    target.rmdir()
    target.symlink_to(elsewhere)
    assert library.names() == []
    with pytest.raises(SkillError, match="link"):
        library.save(made())
    (library.path / "x").mkdir()
    (library.path / "x" / "SKILL.md").symlink_to(elsewhere / "SKILL.md")
    assert library.names() == []


def test_skills_that_others_made_are_left_alone(library: SkillLibrary):
    library.save(made())
    for name, text in (
        ("pdf-forms", "---\nname: pdf-forms\ndescription: Fills forms.\n---\nDo it.\n"),
        ("no-skill", None),
    ):
        (library.path / name).mkdir()
        if text is not None:
            (library.path / name / "SKILL.md").write_text(text)
    (library.path / "README.md").write_text("Ours.")
    assert library.names() == ["sql_analyst_1a2b3c4d"]
    assert len(library.load()) == 1


def rewritten(library: SkillLibrary, old: str, new: str) -> None:
    path = only_file(library)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: pdf\ndescription: >\n  Fills PDF forms.\nallowed-tools: Bash\n---\nDo it.\n",
        "---\nname: pdf\ndescription: x\nallowed-tools: [Bash, Read]\n---\nDo it.\n",
        "---\nname: pdf\ndescription: x\nmetadata:\n  tags:\n    - pdf\n---\nDo it.\n",
        "---\nname: pdf\n? odd\n: yaml\n---\nDo it.\n",
        "# no front matter\n",
        "",
        "---\nname: pdf\ndescription: no end",
        "x" * 1_000_001,
        "\udcff\udcfe",
    ],
)
def test_one_that_others_made_in_whatever_form_hides_none_of_ours(library: SkillLibrary, text: str):
    library.save(made())
    (library.path / "pdf").mkdir()
    (library.path / "pdf" / "SKILL.md").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert library.names() == ["sql_analyst_1a2b3c4d"]
    assert len(library.load()) == 1


def test_a_file_of_ours_that_other_tools_changed_is_still_read(library: SkillLibrary):
    library.save(made())
    description = 'description: "Does what sql_analyst_1a2b3c4d does."'
    rewritten(
        library,
        description,
        "description: >\n  Does it\n  well.\n\n  Always.\nallowed-tools:\n- Bash\n- Read",
    )
    rewritten(library, "metadata:\n", "metadata:\n  tags:\n    - sql\n  sizes: [1]\n")
    (after,) = library.load()
    assert after.description == "Does it well.\nAlways."
    assert after.agent.system_prompt == "Be exact."


def test_line_ends_of_windows_change_nothing(library: SkillLibrary):
    path = library.save(made(system_prompt="Be brief.\nBe exact."))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (after,) = library.load()
    assert after.agent.system_prompt == "Be brief.\nBe exact."


def test_one_without_a_description_is_not_written(library: SkillLibrary):
    with pytest.raises(ConfigError, match="empty description"):
        library.save(DistilledSkill("s_1", " ", Agent("a", "ollama/llama3")))
    assert library.names() == []


def test_instructions_changed_by_hand_count(library: SkillLibrary):
    library.save(made())
    rewritten(library, "Be exact.", "Be quick.")
    (after,) = library.load()
    assert after.agent.system_prompt == "Be quick."


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("---\n", "", "does not begin with"),
        ('untildone-format: "1"', 'untildone-format: "2"', "format '2'"),
        ('untildone-skill: "sql_analyst', 'untildone-skill: "other', "belongs elsewhere"),
        ('untildone-skill: "sql_analyst_1a2b3c4d"', 'untildone-skill: ""', "no 'untildone-skill'"),
        ('untildone-settings: "{', 'untildone-settings: "', "no JSON"),
        ('untildone-settings: "{', 'untildone-settings: "[1]" #"{', "no object"),
        ('untildone-tools: "[', 'untildone-tools: "[1,', "no list of texts"),
        ('\\"max_turns\\": 10', '\\"max_turns\\": 0', "max_turns"),
        ('\\"stuck\\": {', '\\"stuck\\": {\\"nonsense\\": 1, ', "nonsense"),
        ('\\"retry_on\\": [', '\\"retry_on\\": [\\"Nope\\", ', "'Nope'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    library: SkillLibrary, old: str, new: str, told: str
):
    library.save(made(tools=[lookup], stuck=StuckPolicy(action="stop"), retry_policy=RetryPolicy()))
    rewritten(library, old, new)
    with pytest.raises(SkillError) as caught:
        library.load(tools=[lookup])
    assert "SKILL.md: " in str(caught.value)
    assert told in str(caught.value)


def test_a_file_of_ours_that_is_no_text_or_too_large_is_named(library: SkillLibrary):
    path = library.save(made())
    whole = path.read_bytes()
    path.write_bytes(whole + b"\xff\xfe")
    with pytest.raises(SkillError, match=r"SKILL.md: .*utf-8"):
        library.names()
    path.write_bytes(whole.ljust(1_000_001, b"x"))
    with pytest.raises(SkillError, match="1,000,001 bytes"):
        library.names()


# ── Atomic writes ────────────────────────────────────────────────────────────────────────────────


def test_a_write_that_breaks_off_leaves_the_old_file_and_no_draft(
    library: SkillLibrary, monkeypatch: pytest.MonkeyPatch
):
    path = library.save(made(system_prompt="old"))

    def fail(number: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        library.save(made(system_prompt="new"))
    assert SkillFile.from_text(path.read_text("utf-8")).body == "old"
    assert list(path.parent.iterdir()) == [path]


def test_readers_see_a_whole_file_while_writers_write(library: SkillLibrary):
    prompts = [letter * 50_000 for letter in "abcd"]
    path = library.save(made(system_prompt=prompts[0]))
    stop = threading.Event()
    torn: list[str] = []

    def read() -> None:
        while not stop.is_set():
            body = SkillFile.from_text(path.read_text("utf-8")).body
            if body not in prompts:
                torn.append(body[:20])

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [
        threading.Thread(
            target=lambda prompt=prompt: [library.save(made(system_prompt=prompt)) for _ in "12345"]
        )
        for prompt in prompts
    ]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert torn == []
    assert list(path.parent.iterdir()) == [path]


def test_text_that_is_no_unicode_is_refused(library: SkillLibrary):
    with pytest.raises(SkillError, match="Unicode"):
        library.save(made(system_prompt="\ud800"))


async def test_inline_offload_is_not_needed_by_a_distilled_skill(library: SkillLibrary):
    library.save(made(model=ScriptedModel([])))
    (after,) = library.load(model=ScriptedModel(["x"]))
    arguments = after.parse(json.dumps({"task": "t"}))
    assert await after.run(arguments, inline) == "x"
