"""Images and documents that a tool returns: apart from the text, which says what they are."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from typing import Any

import pytest

from tests.behaviour.kit import ask
from tests.models.raw_server import answer, chunked, delta, raw_server, sse
from untildone import Agent, ExitReason, image, pdf, run_agent, tool
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import ModelRequest
from untildone.domain.tools import ToolOutput
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.litellm import LiteLLMModel
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.tool_attachments import attachments_apart
from untildone.models.tool_prompts import prompted
from untildone.testing import ScriptedModel, call, reply
from untildone.tools import as_tool
from untildone.tools.results import result_text, tool_output

PNG = b"\x89PNG\r\n\x1a\n" + bytes(92)
OTHER = b"\x89PNG\r\n\x1a\n" + bytes(91) + b"\x01"
PDF = b"%PDF-1.7\n" + bytes(41)
MAX = 50_000


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def digest(data: bytes) -> str:
    return hashlib.sha256(encoded(data).encode()).hexdigest()[:12]


PNG_PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(PNG)}"}}
PNG_NOTE = f"[attachment 1: image/png, 100 bytes, sha256 {digest(PNG)}]"


def test_an_image_alone_is_a_note_and_an_attachment():
    assert tool_output(image(PNG), MAX) == ToolOutput(PNG_NOTE, (PNG_PART,))


def test_a_list_of_texts_images_and_data_becomes_lines():
    page = pdf(PDF, name="a.pdf")
    output = tool_output(
        ["Before:", image(PNG), {"type": "text", "text": "and"}, {"n": 1}, page], MAX
    )
    assert output == ToolOutput(
        "\n".join(
            [
                "Before:",
                PNG_NOTE,
                "and",
                '{"n":1}',
                f"[attachment 2: a.pdf, application/pdf, 50 bytes, sha256 {digest(PDF)}]",
            ]
        ),
        (PNG_PART, page),
    )


def test_an_image_deep_inside_is_found_and_the_rest_stays_json():
    @dataclasses.dataclass
    class Shot:
        title: str
        picture: dict[str, Any]

    output = tool_output({"shots": [Shot("ü", image(PNG))], "more": False}, MAX)
    assert output == ToolOutput(
        f'{{"shots":[{{"title":"ü","picture":"{PNG_NOTE}"}}],"more":false}}', (PNG_PART,)
    )


def test_an_address_is_shown_as_it_is():
    part = image("https://example.com/a.png")
    output = tool_output(part, MAX)
    assert output == ToolOutput("[attachment 1: https://example.com/a.png]", (part,))


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image_url", "image_url": {"url": "javascript:alert(1)"}},
        {"type": "image_url", "image_url": 7},
        {"type": "file", "file": {"file_data": None}},
        {"image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "data:text/html,x"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "width": 3}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a b.png"}},
        PNG_PART | {"cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"detail": "high"}},
    ],
)
def test_what_only_looks_like_a_part_stays_data(value: object):
    assert tool_output(value, MAX) == result_text(value)


def test_a_text_is_a_text_whatever_it_says():
    text = f'{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{encoded(PNG)}"}}}}'
    assert tool_output(text, MAX) == text


def test_the_text_is_cut_and_the_attachment_is_whole():
    output = tool_output(["x" * 5_000, image(PNG)], 1_000)
    assert isinstance(output, ToolOutput)
    assert len(output.text) <= 1_000
    assert "characters left out" in output.text
    assert output.attachments == (PNG_PART,)


def test_of_too_many_attachments_the_notes_alone_are_sent():
    output = tool_output([image(PNG)] * 21, MAX)
    assert isinstance(output, ToolOutput)
    assert output.attachments == (PNG_PART,) * 20
    assert output.text.splitlines()[19:] == [
        PNG_NOTE.replace("attachment 1", "attachment 20"),
        PNG_NOTE.replace("attachment 1", "attachment 21").replace("]", ", not shown]"),
    ]


def test_an_image_too_deep_inside_is_left_where_it_is():
    value: Any = image(PNG)
    for _ in range(900):
        value = [value]
    assert isinstance(tool_output(value, MAX), str | ToolOutput)


def test_a_file_name_cannot_break_out_of_its_note():
    part = pdf(PDF, name="a.pdf]\n[attachment 2: lies")
    output = tool_output(part, MAX)
    assert isinstance(output, ToolOutput)
    assert "\n" not in output.text


@pytest.mark.parametrize("part", ["x", 7, {"type": "image_url", "image_url": {"url": b"x"}}])
async def test_what_a_tool_puts_together_itself_is_checked(part: Any):
    @tool
    def screen() -> Any:
        """Shows the screen."""
        return ToolOutput("here", (part,))

    model = ScriptedModel([reply(None, [call("screen")]), "Done."])
    result = await run_agent(Agent("ada", model, tools=[screen]), ask())
    assert result.tool_calls[0]["is_error"] is True
    assert "has to come from image() or pdf()" in result.tool_calls[0]["result"]


# ── In a run ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_words_with_another_picture_are_not_the_same_result():
    pictures = [b"\x89PNG\r\n\x1a\n" + bytes([n]) for n in range(12)]

    @tool
    def screen() -> Any:
        """Shows the screen."""
        return image(pictures.pop())

    model = ScriptedModel([*[reply(None, [call("screen")])] * 9, "Done."])
    result = await run_agent(Agent("ada", model, tools=[screen]), ask())
    assert result.exit_reason is ExitReason.SATISFIED

    @tool(name="screen")
    def still() -> Any:
        """Shows the screen."""
        return image(PNG)

    model = ScriptedModel([*[reply(None, [call("screen")])] * 9, "Done."])
    result = await run_agent(Agent("ada", model, tools=[still]), ask())
    assert result.exit_reason is ExitReason.STUCK


# ── On the wire ──────────────────────────────────────────────────────────────────────────────────

HISTORY = [
    Message("user", "look twice"),
    Message("assistant", None, (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))),
    Message("tool", [{"type": "text", "text": "one"}, PNG_PART], (), "a"),
    Message("tool", "two", (), "b"),
]


async def openai_body(messages: list[Message]) -> list[dict[str, Any]]:
    async with raw_server(chunked(sse(delta(content="x"), delta("stop"), "[DONE]"))) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        await model.generate(ModelRequest(messages=messages))
        return server.body()["messages"]


FOLLOWS = {
    "role": "user",
    "content": [{"type": "text", "text": "Attachments of the result of call a:"}, PNG_PART],
}


async def test_openai_gets_attachments_after_the_last_answer_of_the_batch():
    sent = await openai_body(HISTORY)
    assert sent[2:] == [
        {"role": "tool", "content": "one", "tool_call_id": "a"},
        {"role": "tool", "content": "two", "tool_call_id": "b"},
        FOLLOWS,
    ]


async def test_all_attachments_of_a_batch_are_one_message_and_texts_stay_apart():
    messages = [
        *HISTORY[:2],
        Message("tool", [PNG_PART], (), "a"),
        Message("tool", [*[{"type": "text", "text": t} for t in "xy"], PNG_PART], (), "b"),
    ]
    sent = await openai_body(messages)
    assert [each["content"] for each in sent[2:4]] == [
        "(the result follows in the user's message)",
        "x\ny",
    ]
    assert [part.get("text") for part in sent[4]["content"]] == [
        "Attachments of the result of call a:",
        None,
        "Attachments of the result of call b:",
        None,
    ]
    assert attachments_apart(messages)[-1].content == sent[4]["content"]


async def test_what_openai_was_sent_stays_a_prefix_of_what_it_is_sent_later():
    first = await openai_body(HISTORY)
    later = await openai_body([*HISTORY, Message("assistant", "seen"), Message("user", "and now?")])
    assert later[: len(first)] == first
    assert [each["role"] for each in later[len(first) :]] == ["assistant", "user"]


async def test_anthropic_gets_attachments_inside_the_result():
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    begin = {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {}}}
    body = chunked(sse(begin, stop, {"type": "message_stop"}))
    async with raw_server(body) as server:
        await AnthropicModel("c", api_key="k", base_url=server.url).generate(
            ModelRequest(messages=HISTORY, max_tokens=9)
        )
        result = server.body()["messages"][-1]["content"][0]
    source = {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}
    assert result == {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "one"}, {"type": "image", "source": source}],
    }


def test_litellm_and_prompted_tools_get_them_as_the_users_message():
    arguments = LiteLLMModel("x/y")._arguments(ModelRequest(messages=HISTORY))
    assert arguments["messages"][2:] == [
        {"role": "tool", "content": "one", "tool_call_id": "a"},
        {"role": "tool", "content": "two", "tool_call_id": "b"},
        FOLLOWS,
    ]
    told = prompted(HISTORY, [as_tool(look).spec], examples=False)
    with_picture = [m for m in told if isinstance(m.content, list)]
    assert [part["type"] for part in with_picture[0].content or []] == ["text", "text", "image_url"]  # type: ignore[index]


def look() -> str:
    """Shows the screen."""
    return "nothing"


async def test_a_server_that_cannot_read_pictures_says_so_and_the_error_helps():
    refusal = answer("400 Bad Request", b'{"error":{"message":"image input is not supported"}}')
    async with raw_server(refusal) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        with pytest.raises(Exception, match="image input is not supported"):
            await model.generate(ModelRequest(messages=HISTORY))
