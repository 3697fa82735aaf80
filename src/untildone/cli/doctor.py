"""``untildone doctor``: what is configured, what can be reached, what is missing.

Keys are never shown; each is sent to its own provider only, to learn whether it is accepted.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from untildone import __version__
from untildone.domain.errors import ConfigError
from untildone.models.local import install_command, local_weights
from untildone.models.providers import (
    PROVIDERS,
    Provider,
    key_variable_of,
    provider_of,
    resolve_model,
)

TIMEOUT_S: Final = 3.0
"""How long a provider has to answer."""

MODEL_VARIABLE: Final = "UNTILDONE_MODEL"
"""The environment variable of the default model."""

_LOCAL: Final = "smollm2"
_MOST_BYTES: Final = 1_000_000
_MOST_NAMES: Final = 4
_REFUSED: Final = (401, 403)
_SUCCESS: Final = range(200, 300)
_FAULTS: Final = range(500, 600)
_ANTHROPIC_VERSION: Final = "2023-06-01"

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        state: ``missing`` is nothing wrong: it is not set up.
        text: What was found, and what to do.
        is_model: Whether it is a way to reach a model.
        models: The names that a server lists, where it was asked.
    """

    name: str
    state: State
    text: str
    is_model: bool = False
    models: tuple[str, ...] = ()


def examine(*, offline: bool = False) -> list[tuple[str, list[Finding]]]:
    """All findings by section."""
    servers = _probed(_servers(), offline=offline)
    clouds = _probed(_clouds(), offline=offline)
    asked = {} if offline else {finding.name: finding for finding in (*servers, *clouds)}
    return [
        (f"untildone {__version__}", _installation()),
        ("Default model", [_default_model(asked)]),
        ("A model on this machine", [_local()]),
        ("Servers on this machine", servers),
        ("Providers", clouds),
    ]


def unusable(sections: Iterable[tuple[str, list[Finding]]]) -> str:
    """Why a run without ``--model`` cannot work, with the next step; ``""`` where it can.

    Without a default model it has to be given to each run: then any model that can be run will do.
    """
    findings = [finding for _, found in sections for finding in found]
    usable = [finding.name for finding in findings if finding.is_model and finding.state == "ok"]
    if not usable:
        local = install_command(_LOCAL) or f"--model local/{_LOCAL}"
        return f"no model can be run yet; the shortest ways: {local}, or export OPENAI_API_KEY=…"
    if any(each.name == MODEL_VARIABLE and each.state == "problem" for each in findings):
        return (
            f"the default model cannot be run: do what its line says, or set {MODEL_VARIABLE} to a"
            f" model of {', '.join(usable)}"
        )
    return ""


def _installation() -> list[Finding]:
    proxies = [name for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") if _variable(name)]
    proxy = [Finding("proxy", "ok", f"{', '.join(proxies)} set")] if proxies else []
    return [
        Finding("python", "ok", f"{platform.python_version()} on {platform.system()}"),
        _package("click"),
        _package("rich"),
        _package("jsonschema", "for --until schema:FILE; pip install 'untildone[cli]'"),
        _package("aiohttp", "for every model that is not on this machine; pip install untildone"),
        *proxy,
    ]


def _variable(name: str) -> str:
    return os.environ.get(name, "") or os.environ.get(name.lower(), "")


def _package(name: str, needed: str = "pip install 'untildone[cli]'") -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "problem", f"not installed: {needed}")


def _default_model(asked: Mapping[str, Finding]) -> Finding:
    """What is wrong with the default model, held against what its provider has answered."""
    model = os.environ.get(MODEL_VARIABLE, "").strip()
    if not model:
        return Finding(MODEL_VARIABLE, "missing", "not set: give --model to each run")
    try:
        resolve_model(model)
    except ConfigError as error:
        return Finding(MODEL_VARIABLE, "problem", str(error))
    provider = provider_of(model)
    answer = None if provider is None else asked.get(provider.name)
    if provider is None or answer is None:
        return Finding(MODEL_VARIABLE, "ok", model)
    if answer.state == "missing":
        return Finding(MODEL_VARIABLE, "problem", f"{model}: {answer.text}; {provider.advice}")
    if answer.state == "problem":
        return Finding(MODEL_VARIABLE, "problem", f"{model}: {answer.text}")
    return Finding(MODEL_VARIABLE, "ok", f"{model}{_not_listed(model, answer.models)}")


def _not_listed(model: str, listed: Sequence[str]) -> str:
    """That a server does not list a model: lists are not always whole, so it is no fault."""
    name = model.partition("/")[2].strip()
    if not listed or name in listed or f"{name}:latest" in listed:
        return ""
    near = get_close_matches(name, listed, n=_MOST_NAMES, cutoff=0.4) or listed[:_MOST_NAMES]
    return f", which is not in the provider's list; there are {', '.join(near)}"


def _local() -> Finding:
    name = f"local/{_LOCAL}"
    try:
        weights = local_weights(_LOCAL)
    except ConfigError as error:
        return Finding(name, "missing", str(error), is_model=True)
    size = weights.stat().st_size / 1e6
    text = f"{weights.name}, {size:.0f} MB, with xllamacpp {_version('xllamacpp')}"
    return Finding(name, "ok", text, is_model=True)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"


def _servers() -> list[Provider]:
    return [row for row in PROVIDERS.values() if row.base_url and not row.needs_key]


def _clouds() -> list[Provider]:
    return [row for row in PROVIDERS.values() if row.needs_key or row.wire == "litellm"]


def _probed(providers: Sequence[Provider], *, offline: bool) -> list[Finding]:
    """Asks all at once, each in a thread that nobody waits for beyond the time-out."""
    found: dict[str, Finding] = {}

    def ask(provider: Provider) -> None:
        found[provider.name] = _examined(provider, offline=offline)

    threads = [
        threading.Thread(target=ask, args=(provider,), daemon=True) for provider in providers
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + TIMEOUT_S + 1
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    return [found.get(provider.name) or _too_slow(provider) for provider in providers]


def _too_slow(provider: Provider) -> Finding:
    text = f"no answer within {TIMEOUT_S:g} s; {provider.advice}"
    return Finding(provider.name, "problem", text, is_model=True)


def _examined(provider: Provider, *, offline: bool) -> Finding:
    if provider.wire == "litellm":
        return _litellm(provider)
    key_variable = key_variable_of(provider)
    try:
        model = resolve_model(f"{provider.name}/any")
    except ConfigError as error:
        if key_variable is None and not _is_set(provider.base_url_variable):
            text = f"no key: set {' or '.join(provider.key_variables)}"
            return Finding(provider.name, "missing", text, is_model=True)
        return Finding(provider.name, "problem", str(error), is_model=True)
    address: str = getattr(model, "base_url", provider.base_url)
    where = f"{f'key in {key_variable}' if key_variable else 'no key'}, {address}"
    if key_variable is None and not provider.needs_key:
        where = address
    if offline:
        state: State = "ok" if provider.needs_key else "missing"
        return Finding(provider.name, state, f"{where}, not asked", is_model=True)
    key = os.environ[key_variable].strip() if key_variable else None
    return _asked(provider, address, key, where)


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


def _litellm(provider: Provider) -> Finding:
    if find_spec("litellm") is None:
        text = "for 100 more providers: pip install 'untildone[litellm]'"
        return Finding(provider.name, "missing", text, is_model=True)
    text = f"litellm {_version('litellm')}; it finds the keys of its providers itself"
    return Finding(provider.name, "ok", text)


def _asked(provider: Provider, address: str, key: str | None, where: str) -> Finding:
    status, answer = _get(_models_request(provider, address, key))
    name = provider.name
    if status is None and _is_optional(provider, address):
        return Finding(name, "missing", f"nothing runs at {address}", is_model=True)
    if status is None:
        return Finding(name, "problem", f"{where}: {answer}; {provider.advice}", is_model=True)
    if status in _REFUSED:
        variables = " or ".join(provider.key_variables)
        text = f"the key is refused (status {status}); check {variables}"
        if key is None:
            text = f"no key was sent, and it wants one (status {status}); set {variables}"
        return Finding(name, "problem", f"{where}: {text}", is_model=True)
    if status in _SUCCESS:
        models = _models_in(answer)
        return Finding(
            name, "ok", f"{where}: {_listed(models)}", is_model=True, models=models or ()
        )
    text = f"{where}: answers with status {status}"
    if status in _FAULTS:
        text = f"{text}: the fault is the provider's; try again later"
        return Finding(name, "problem", text, is_model=True)
    return Finding(name, "ok", text, is_model=True)


def _is_optional(provider: Provider, address: str) -> bool:
    """A server at its usual place that does not run is nothing wrong."""
    return not provider.needs_key and address == provider.base_url


def _models_request(provider: Provider, address: str, key: str | None) -> Request:
    headers = {"User-Agent": f"untildone/{__version__}", "Accept": "application/json"}
    url = f"{address}/models"
    if provider.wire == "anthropic":
        url = f"{address.removesuffix('/v1')}/v1/models"
        headers["anthropic-version"] = _ANTHROPIC_VERSION
        if key:
            headers["x-api-key"] = key
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    return Request(url, headers=headers)  # noqa: S310  http and https only: the model has checked it


class _NoRedirect(HTTPRedirectHandler):
    """A key never travels to an address that nobody configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuses."""


def _get(request: Request) -> tuple[int | None, str]:
    """Status and body; None and the reason where nobody answers."""
    host = urlsplit(request.full_url).hostname or ""
    is_here = host in ("localhost", "127.0.0.1", "::1")
    handlers: list[Any] = [_NoRedirect(), *([ProxyHandler({})] if is_here else [])]
    try:
        with build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read(_MOST_BYTES).decode("utf-8", "replace")
    except HTTPError as error:
        with error:
            return error.code, ""
    except URLError as error:
        return None, f"nothing answers ({_reason(error.reason)})"
    except (OSError, HTTPException, ValueError) as error:
        return None, f"what answers does not speak HTTP ({_reason(error)})"


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return f"within {TIMEOUT_S:g} s"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:120]


def _models_in(body: str) -> tuple[str, ...] | None:
    """The names that an answer lists; None where it is no list."""
    try:
        return tuple(str(model["id"]) for model in json.loads(body)["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _listed(names: tuple[str, ...] | None) -> str:
    """How many models a server lists, and some of their names."""
    if names is None:
        return "answers"
    if not names:
        return "answers, and serves no model yet"
    shown = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"answers: {shown}{more}"


MARKS: Final[dict[State, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "missing": ("·", "dim"),
    "problem": ("✗", "red"),
}
"""The mark and the style of each state."""


def report(sections: list[tuple[str, list[Finding]]], write: Callable[[str, str], None]) -> None:
    """Writes the findings line by line, each with a style."""
    width = max(len(finding.name) for _, found in sections for finding in found)
    for title, found in sections:
        write(title, "bold")
        for finding in found:
            mark, style = MARKS[finding.state]
            write(f"  {mark} {finding.name:<{width}}  {finding.text}", style)
