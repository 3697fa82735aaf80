"""MCP servers as configuration: what is checked when it is built, and what is made of results."""

import base64
import hashlib
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any

import pytest

from untildone import Agent, ConfigError
from untildone.domain.tools import ToolOutput
from untildone.testing import ScriptedModel
from untildone.tools.mcp import HTTPMCP, SSEMCP, StdioMCP
from untildone.tools.mcp_connection import LastWords
from untildone.tools.mcp_results import content_output

URL = "https://example.com/mcp"


def test_what_s1_shows_is_positional():
    stdio = StdioMCP("npx", ["-y", "server"], {"KEY": "v"})
    assert (stdio.command, stdio.args, stdio.env) == ("npx", ("-y", "server"), {"KEY": "v"})
    for kind in (HTTPMCP, SSEMCP):
        http = kind(URL, {"Authorization": "Bearer x"})
        assert (http.url, http.headers) == (URL, {"Authorization": "Bearer x"})


def test_a_server_has_a_name_of_its_own_or_the_one_it_is_given():
    assert StdioMCP("/usr/bin/server").name == "server"
    assert HTTPMCP("https://u:p@example.com:8080/mcp").name == "example.com:8080"
    assert StdioMCP("server", name="files").name == "files"


def test_configuration_cannot_be_changed_and_is_no_list_of_the_callers():
    args = ["a"]
    server = StdioMCP("x", args)
    args.append("b")
    assert server.args == ("a",)
    with pytest.raises(FrozenInstanceError):
        server.command = "y"  # pyright: ignore[reportAttributeAccessIssue]


def test_secrets_are_not_in_its_repr():
    shown = repr(StdioMCP("x", env={"KEY": "hunter2"}))
    assert "hunter2" not in shown
    shown = repr(HTTPMCP(URL, {"Authorization": "Bearer hunter2"}, auth=("u", "hunter2")))
    assert "hunter2" not in shown


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (StdioMCP, {"command": ""}, "StdioMCP.command is ''"),
    (StdioMCP, {"command": ["npx"]}, "StdioMCP.command is ['npx']"),
    (StdioMCP, {"command": "npx", "args": "-y server"}, "StdioMCP.args is '-y server'"),
    (StdioMCP, {"command": "npx", "args": [1]}, "StdioMCP.args is [1]"),
    (StdioMCP, {"command": "npx", "env": {"A": 1}}, "StdioMCP.env is a dict"),
    (HTTPMCP, {"url": "example.com/mcp"}, "http:// or https://"),
    (HTTPMCP, {"url": ""}, "HTTPMCP.url"),
    (SSEMCP, {"url": URL, "headers": ["a"]}, "SSEMCP.headers is a list"),
    (HTTPMCP, {"url": URL, "prefix": "a b"}, "HTTPMCP.prefix"),
    (HTTPMCP, {"url": URL, "only": "add"}, "HTTPMCP.only is 'add'"),
    (HTTPMCP, {"url": URL, "timeout_s": 0}, "HTTPMCP.timeout_s is 0"),
    (HTTPMCP, {"url": URL, "timeout_s": float("inf")}, "HTTPMCP.timeout_s is inf"),
    (HTTPMCP, {"url": URL, "connect_timeout_s": -1}, "HTTPMCP.connect_timeout_s"),
    (HTTPMCP, {"url": URL, "max_result_chars": 10}, "HTTPMCP.max_result_chars"),
]


@pytest.mark.parametrize(("kind", "settings", "told"), REFUSED, ids=[each[2] for each in REFUSED])
def test_what_cannot_work_is_refused_by_name_when_it_is_built(
    kind: Any, settings: dict[str, Any], told: str
):
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert told in str(caught.value)


@pytest.mark.parametrize("wrong", ["npx server", StdioMCP, {"command": "npx"}, None])
def test_what_is_no_server_is_refused_when_the_agent_is_built(wrong: Any):
    with pytest.raises(ConfigError, match=r"Agent.mcps\[0\].*StdioMCP"):
        Agent("a", ScriptedModel([]), mcps=[wrong])


@pytest.mark.parametrize(
    ("server", "label"),
    [
        (StdioMCP("npx", ["-y", "@scope/server", "/srv/data/2026-06-01-backup-000001"]), None),
        (StdioMCP("x", ["--token", "sk-abcdef1234567890"]), "'x --token [secret]'"),
        (StdioMCP("x", ["--url=https://u:p@h/"]), "'x --url=https://[secret]@h/'"),
        (StdioMCP("x", ["y" * 300]), "'x [secret]'"),
        (HTTPMCP("https://u:p@h.example/mcp?key=v#f"), "'https://h.example/mcp'"),
        (HTTPMCP("https://h.example/sk-abcdef1234567890"), "'https://h.example/[secret]'"),
    ],
)
def test_errors_name_a_server_without_its_secrets(server: Any, label: str | None):
    wanted = label or "'npx -y @scope/server /srv/data/2026-06-01-backup-000001'"
    assert server.label == wanted


def part(kind: str, **fields: Any) -> Any:
    return SimpleNamespace(type=kind, **fields)


MAX = 50_000


def test_a_result_is_its_texts_joined_and_notes_for_what_is_no_text():
    data = base64.b64encode(b"x" * 1000).decode()
    resource = SimpleNamespace(uri="file:///a.txt", text="what it says", mime_type="text/plain")
    binary = SimpleNamespace(uri="file:///a.bin", blob=data, mime_type=None)
    output = content_output(
        [
            part("text", text="one"),
            part("text", text=""),
            part("image", data=data, mime_type="image/tiff"),
            part("audio", data=data, mime_type="audio/wav"),
            part("resource_link", name="notes", uri="file:///n.md"),
            part("resource", resource=resource),
            part("resource", resource=binary),
        ],
        None,
        MAX,
    )
    assert isinstance(output, str)
    assert output.split("\n") == [
        "one",
        "",
        "[image, image/tiff, 1,000 bytes, not shown]",
        "[audio, audio/wav, 1,000 bytes, not shown]",
        "[resource notes: file:///n.md]",
        "what it says",
        "[resource file:///a.bin, binary, 1,000 bytes, not shown]",
    ]


def test_images_and_pdfs_are_sent_as_what_they_are():
    data = base64.b64encode(b"x" * 1000).decode()
    digest = hashlib.sha256(data.encode()).hexdigest()[:12]
    paper = SimpleNamespace(uri="file:///a/paper.pdf", blob=data, mime_type="application/pdf")
    content = [
        part("text", text="seen:"),
        part("image", data=data, mime_type="image/png"),
        part("resource", resource=paper),
    ]
    assert content_output(content, None, MAX) == ToolOutput(
        "seen:\n"
        f"[attachment 1: image/png, 1,000 bytes, sha256 {digest}]\n"
        f"[attachment 2: paper.pdf, application/pdf, 1,000 bytes, sha256 {digest}]",
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {
                "type": "file",
                "file": {
                    "filename": "paper.pdf",
                    "file_data": f"data:application/pdf;base64,{data}",
                },
            },
        ),
    )


def test_structured_content_is_shown_where_there_is_nothing_else():
    assert content_output([], {"a": 1}, MAX) == '{"a":1}'
    assert content_output([part("text", text="1")], {"a": 1}, MAX) == "1"
    assert content_output([], None, MAX) == ""


def test_of_last_words_the_last_are_kept():
    words = LastWords()
    assert str(words) == ""
    for number in range(10_000):
        words.add(f"line {number}\n".encode())
    assert len(str(words)) <= 500
    assert str(words).endswith("line 9999")
