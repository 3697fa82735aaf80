"""From a model string to a model: ``"openai/gpt-4o-mini"`` → an ``OpenAIChatModel``.

The table below is all that tells one OpenAI-compatible provider from another. Nothing is sent from
here: that a key is missing is told before a run begins, that it is wrong by the first call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from untildone.domain.errors import ConfigError
from untildone.models.endpoint import checked_base_url
from untildone.models.openai_chat import OpenAIChatModel
from untildone.ports import Model

_OPENAI_URL: Final = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row of the table.

    Attributes:
        name: What stands before the slash of a model string.
        base_url: Where it is, unless ``base_url_variable`` names another place.
        key_variables: Environment variables that may hold the key, the first one found wins.
        base_url_variable: The environment variable of another base URL.
        needs_key: Whether a missing key is an error (at ``base_url``; other places may need none).
        wire: The protocol.
        advice: What to check when nothing answers.
        settings: Further arguments of ``OpenAIChatModel``.
    """

    name: str
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    base_url_variable: str = ""
    needs_key: bool = True
    wire: Literal["chat", "anthropic", "litellm", "local"] = "chat"
    advice: str = "check the network (a proxy? a firewall?) and the provider's status page"
    settings: Mapping[str, Any] | None = None


def _cloud(name: str, base_url: str, *key_variables: str, **settings: Any) -> Provider:
    return Provider(
        name=name,
        base_url=base_url,
        key_variables=key_variables,
        base_url_variable=f"{name.upper()}_BASE_URL",
        settings=settings,
    )


def _server(name: str, base_url: str, start: str, *key_variables: str) -> Provider:
    variable = f"{name.upper().replace('.', '')}_BASE_URL"
    return Provider(
        name=name,
        base_url=base_url,
        key_variables=key_variables,
        base_url_variable=variable,
        needs_key=False,
        advice=f"is the server running? {start}; for another address set {variable}",
    )


_ROWS: Final = (
    _cloud("openai", _OPENAI_URL, "OPENAI_API_KEY"),
    Provider(
        name="anthropic",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
        wire="anthropic",
    ),
    Provider(
        name="ollama",
        base_url="http://127.0.0.1:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        base_url_variable="OLLAMA_HOST",
        needs_key=False,
        advice="is Ollama running? Start it with 'ollama serve'; for another address set"
        " OLLAMA_HOST",
    ),
    Provider(name="local", wire="local", needs_key=False),
    _server(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        "Start it with 'llama-server -m FILE.gguf --jinja'",
        "LLAMA_API_KEY",
    ),
    _server("vllm", "http://127.0.0.1:8000/v1", "Start it with 'vllm serve MODEL'", "VLLM_API_KEY"),
    _server(
        "lmstudio",
        "http://127.0.0.1:1234/v1",
        "Start it in LM Studio or with 'lms server start'",
        "LM_API_TOKEN",
    ),
    _cloud(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        sends_back=("reasoning_details",),
    ),
    _cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    _cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", usage_option=False),
    _cloud(
        "deepseek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        sends_back=("reasoning_content",),
    ),
    _cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "TOGETHERAI_API_KEY"),
    _cloud("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _cloud(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        keeps_call_extras=True,
    ),
    Provider(name="litellm", wire="litellm", needs_key=False),
)

PROVIDERS: Final[Mapping[str, Provider]] = {row.name: row for row in _ROWS}
"""All providers by name."""

_ALIASES: Final = {"llama.cpp": "llamacpp", "lm-studio": "lmstudio", "google": "gemini"}
_FAMILIES: Final = {
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "gemini",
    "deepseek": "deepseek",
    "grok": "xai",
    "mistral": "mistral",
    "smollm2": "local",
}

_resolved: dict[tuple[str, str | None, str | None, str], Model] = {}


def provider_named(name: str) -> Provider | None:
    """The provider of a name as it stands before the slash of a model string; None if unknown.

    Upper and lower case are one, and so are ``google`` and ``gemini``, ``llama.cpp`` and
    ``llamacpp``, ``lm-studio`` and ``lmstudio``.

    Args:
        name: The name or the alias.
    """
    known = name.strip().lower()
    return PROVIDERS.get(_ALIASES.get(known, known))


def provider_of(model: str) -> Provider | None:
    """The provider of a model string such as ``openai/gpt-4o-mini``; None where it names none.

    Args:
        model: The string.
    """
    prefix, slash, _ = model.partition("/")
    return provider_named(prefix) if slash else None


def key_variable_of(provider: Provider) -> str | None:
    """The environment variable that holds the provider's key now; None where none does.

    Args:
        provider: A row of the table.
    """
    held = (name for name in provider.key_variables if os.environ.get(name, "").strip())
    return next(held, None)


def resolve_model(model: str | Model) -> Model:
    """The model that a string names; a ``Model`` is given back as it is.

    Strings are ``provider/name``; the name may hold further slashes. Keys and addresses are read
    from the environment here, and the same ones give the same object.

    Raises:
        ConfigError: The provider is unknown, its key is missing, what serves the model on this
            machine is not installed, or the value is no model.
    """
    if not isinstance(model, str):
        if callable(getattr(model, "generate", None)):
            return model
        raise ConfigError(
            f"a model must be a string like 'openai/gpt-4o-mini' or an object with an async"
            f" generate(request, on_delta), not {model!r:.80}"
        )
    text = model.strip()
    provider, name = _parts(text)
    base_url = _base_url(provider)
    key, variable = _key(provider, base_url)
    at = (f"{provider.name}/{name}", key, variable, base_url)
    resolved = _resolved.get(at)
    if resolved is None:
        resolved = _resolved[at] = _made(provider, name, base_url, key, variable)
    return resolved


def _parts(text: str) -> tuple[Provider, str]:
    prefix, slash, name = text.partition("/")
    known = prefix.strip().lower()
    provider = provider_named(prefix)
    if slash and provider is not None:
        if not name.strip():
            raise ConfigError(
                f"the model string {text!r} names no model; write '{provider.name}/MODEL'"
            )
        return provider, name.strip()
    if not slash:
        raise ConfigError(_without_provider(text))
    names = ", ".join(PROVIDERS)
    near = get_close_matches(known, [*PROVIDERS, *_ALIASES], n=1, cutoff=0.8)
    guess = f" Did you mean '{near[0]}/{name}'?" if near else ""
    raise ConfigError(
        f"unknown provider {prefix!r} in the model string {text!r}.{guess} Known are {names}."
        " For any other OpenAI-compatible server set OPENAI_BASE_URL and use 'openai/MODEL', or"
        " give OpenAIChatModel('MODEL', base_url='https://…/v1', api_key='…')"
    )


def _without_provider(text: str) -> str:
    lowered = text.lower()
    if provider_named(text) is not None:
        return f"the model string {text!r} names no model; write '{text}/MODEL'"
    first, colon, rest = text.partition(":")
    if colon and provider_named(first) is not None:
        guess = f"{first.lower()}/{rest}"
    else:
        family = next((key for key in _FAMILIES if lowered.startswith(key)), "gpt")
        guess = f"{_FAMILIES[family]}/{text or 'gpt-4o-mini'}"
    return (
        f"the model string {text!r} names no provider; write provider/model, for example {guess!r}"
        f" (providers: {', '.join(PROVIDERS)})"
    )


def _base_url(provider: Provider) -> str:
    variable = provider.base_url_variable
    configured = os.environ.get(variable, "").strip() if variable else ""
    if not configured:
        return provider.base_url
    if provider.name == "ollama":
        return ollama_base_url(configured)
    return checked_base_url(configured, setting=variable)


def _key(provider: Provider, base_url: str) -> tuple[str | None, str | None]:
    """The key, and the environment variable that holds it or would have to."""
    held_in = key_variable_of(provider)
    if held_in is not None:
        return os.environ[held_in].strip(), held_in
    if provider.needs_key and base_url == provider.base_url:
        variable = provider.key_variables[0]
        others = "".join(f" (or {name})" for name in provider.key_variables[1:])
        raise ConfigError(
            f"no key for {provider.name!r}: set the environment variable {variable}{others},"
            f" for example: export {variable}=…"
        )
    return None, next(iter(provider.key_variables), None)


def _made(
    provider: Provider, name: str, base_url: str, key: str | None, variable: str | None
) -> Model:
    shown = f"{provider.name}/{name}"
    if provider.wire == "local":
        from untildone.models.local import local_weights
        from untildone.models.local_model import LocalModel
        from untildone.models.prompted_tools import PromptedToolsModel

        local_weights(name)
        # Its server takes tools but its small models never call them: they are prompted instead,
        # for one call at a time, after which they answer (measured: docs/concepts/models.md).
        return PromptedToolsModel(LocalModel(name), most_calls=1)
    if provider.wire == "litellm":
        from untildone.models.litellm import LiteLLMModel

        if find_spec("litellm") is None:
            raise ConfigError(f"{shown!r} needs litellm: pip install 'untildone[litellm]'")
        return LiteLLMModel(name)
    if provider.wire == "anthropic":
        from untildone.models.anthropic_messages import AnthropicModel

        return AnthropicModel(
            name, base_url=base_url, api_key=key, name=shown, key_variable=variable
        )
    return OpenAIChatModel(
        name,
        base_url=base_url,
        api_key=key,
        name=shown,
        key_variable=variable,
        advice=_advice(provider, base_url),
        **(provider.settings or {}),
    )


def _advice(provider: Provider, base_url: str) -> str:
    if provider.needs_key and base_url != provider.base_url:
        return f"check {provider.base_url_variable} and that the server is running"
    return provider.advice


def ollama_base_url(host: str) -> str:
    """The address of Ollama's OpenAI-compatible API from ``OLLAMA_HOST``, read as Ollama does.

    Raises:
        ConfigError: It is no host, ``host:port`` or address.
    """
    has_scheme = "://" in host
    if host.startswith(":"):
        host = f"127.0.0.1{host}"
    url = checked_base_url(host if has_scheme else f"http://{host}", setting="OLLAMA_HOST")
    parts = urlsplit(url)
    name = parts.hostname or ""
    # The addresses that servers listen on are not addresses to connect to.
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104
    if ":" in name:
        name = f"[{name}]"
    port = parts.port or (None if has_scheme else 11434)
    path = parts.path.removesuffix("/v1")
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{path}/v1"
