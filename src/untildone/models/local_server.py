"""The embedded model server's own process; run by path, never imported.

It loads one GGUF file, serves the OpenAI-compatible API on a loopback port, and ends when its
standard input does: when ``local.py`` closes it, or when the parent is gone, however it went.

Why a process of its own: xllamacpp holds the GIL while it loads, 0.4 to 2 s in which no event loop
of the process would turn; a fault in native code cannot take the user's program down; and OpenMP
reads its settings from the environment when it is loaded (see ``local.py``).

Usage: ``python -P local_server.py '{"library": …, "weights": …, "name": …, "threads": …}'``.
It writes one line of JSON: ``{"base_url": …}``, or ``{"error": …}`` with the log on standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from typing import Any, Final

_SLOTS: Final = 4
_SLOT_TOKENS: Final = 4096
_MOST_REPLY_TOKENS: Final = 1024
_ERRORS_ONLY: Final = 1


def main() -> None:
    """Serves until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the line of JSON stays alone, whatever native code prints
    try:
        server = _server(json.loads(sys.argv[1]))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=report, flush=True)
        sys.exit(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    print(json.dumps({"base_url": f"{server.listening_address}/v1"}), file=report, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # there is nothing to save, and the destructor waits for replies under way


def _server(settings: dict[str, Any]) -> Any:
    sys.path.append(settings["library"])
    library: Any = import_module("xllamacpp")  # it has no type stubs
    params = library.CommonParams()
    params.model.path = settings["weights"]
    params.model_alias = {settings["name"]}
    params.n_parallel = _SLOTS
    # Split, not shared: with kv_unified, requests that fill it together all fail with a 500.
    params.n_ctx = _SLOTS * _SLOT_TOKENS
    params.kv_unified = False
    params.n_predict = _MOST_REPLY_TOKENS
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.fit_params = False  # measures free GPU memory, 0.2 s
    params.verbosity = _ERRORS_ONLY
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.cors_origins = ""  # no page in a browser may read from it
    params.ui = False
    return library.Server(params)


if __name__ == "__main__":
    main()
