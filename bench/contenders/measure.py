"""The measuring side of a contender: every contender script ends in `measure.main(module)`.

It runs under the contender's own interpreter, so it is standard library only. A contender offers
these, each called *outside* the clock with the size of the run, each returning a coroutine function
that is then timed:

    turns(n)        n tool turns and a closing answer, nobody listening
    observed(n)     the same with an event queue and its reader, a time-out and a retry wrapper
    iterations(n)   n iterations of the refine loop, none accepted, the conversation kept
    fresh(n)        the same, every iteration from the original messages
    concurrent(n, latency_s, loops)  many of them, to run at once: n model calls of `latency_s` each
    wire(n, base_url)                n model calls over HTTP

What it does not offer stands in its `MISSING`: name → reason. `CALLS` counts what really ran; a run
that made another number of model or tool calls than it was asked for is an error, not a figure.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from loopback import Loopback
from memory import peak_resident_kib, resident_kib

Job = Callable[[], Awaitable[None]]

RUNS_PER_SAMPLE = {1: 100, 10: 20, 100: 3, 1000: 1}
WARM_UP = (10, 30)  # runs of 10: the specialising interpreter has seen every line by then


@dataclass
class Calls:
    """How many model and tool calls were really made."""

    model: int = 0
    tool: int = 0

    def expect(self, *, model: int, tool: int) -> None:
        """Raise unless exactly these calls were made since the last time; count from nought."""
        if (self.model, self.tool) != (model, tool):
            raise AssertionError(
                f"expected {model} model and {tool} tool calls, saw {self.model} and {self.tool}"
            )
        self.model = self.tool = 0


def main(contender: ModuleType) -> None:
    """Measure what the command line names and print it as one line of JSON."""
    command, *arguments = sys.argv[1:]
    figures = _COMMANDS[command](contender, *arguments)
    print(json.dumps(figures))


def cpu(contender: ModuleType, plan: str, budget_s: str) -> dict[str, Any]:
    """CPU µs per turn or iteration: the median of many samples for each kind and size.

    Args:
        contender: The module under measurement.
        plan: JSON, kind → the sizes to measure.
        budget_s: About how many CPU seconds to spend on every kind. Sizes take turns, so that a
            slow moment of the machine hits all of them; each is sampled at least once.
    """
    figures = {}
    for kind, sizes in json.loads(plan).items():
        if kind in contender.MISSING:
            figures[kind] = {"missing": contender.MISSING[kind]}
        else:
            figures[kind] = asyncio.run(_samples(contender, kind, sizes, float(budget_s)))
    return figures


async def _samples(
    contender: ModuleType, kind: str, sizes: list[int], budget_s: float
) -> dict[str, float]:
    await _sample(contender, kind, *WARM_UP)
    samples: dict[int, list[float]] = {n: [] for n in sizes}
    began = time.process_time()
    while (left_s := began + budget_s - time.process_time()) > 0:
        for n, found in samples.items():
            runs = RUNS_PER_SAMPLE[n]
            # Where a single run eats the budget, one must do.
            if not found or found[0] * n * runs / 1e6 < left_s / 2:
                found.append(await _sample(contender, kind, n, runs))
    return {str(n): statistics.median(found) for n, found in samples.items()}


async def _sample(contender: ModuleType, kind: str, n: int, runs: int) -> float:
    """CPU µs per turn or iteration over some runs of size n."""
    jobs: list[Job] = [getattr(contender, kind)(n) for _ in range(runs)]
    gc.collect()
    started = time.process_time_ns()
    for job in jobs:
        await job()
    spent_ns = time.process_time_ns() - started
    if kind in {"iterations", "fresh"}:
        contender.CALLS.expect(model=n * runs, tool=0)
    else:
        contender.CALLS.expect(model=(n + 1) * runs, tool=n * runs)
    return spent_ns / 1000 / n / runs


def concurrent(
    contender: ModuleType, loops: str, model_calls: str, latency_s: str
) -> dict[str, float]:
    """Many loops at once on one event loop, beside what their model calls alone would take."""
    count, n, latency = int(loops), int(model_calls), float(latency_s)

    async def measure() -> dict[str, float]:
        await contender.concurrent(n, 0.0, 1)[0]()
        contender.CALLS.expect(model=n, tool=n - 1)
        gc.collect()
        resident = resident_kib()
        jobs: list[Job] = contender.concurrent(n, latency, count)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        await asyncio.gather(*(job() for job in jobs))
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        contender.CALLS.expect(model=n * count, tool=(n - 1) * count)
        peak = peak_resident_kib()
        return {
            "of_ideal": wall_s / (n * latency),
            "cpu_s": cpu_s,
            "peak_rss_mib": peak / 1024,
            "kib_per_loop": (peak - resident) / count,
        }

    return asyncio.run(measure())


def wire(contender: ModuleType, model_calls: str) -> dict[str, float]:
    """Bytes of all request bodies of one run; CPU µs a turn of the loop's thread, not the server's.

    The first run pays for connections, TLS contexts and caches and is not counted.
    """
    n, repeats = int(model_calls), 5

    async def measure(server: Loopback) -> dict[str, float]:
        job: Job = contender.wire(n, server.base_url)
        await job()
        contender.CALLS.expect(model=0, tool=n - 1)
        server.forget()
        samples: list[float] = []
        for _ in range(repeats):
            gc.collect()
            started = time.thread_time()
            await job()
            samples.append((time.thread_time() - started) * 1e6 / n)
        contender.CALLS.expect(model=0, tool=(n - 1) * repeats)
        if server.requests != n * repeats:
            raise AssertionError(f"expected {n * repeats} requests, saw {server.requests}")
        return {"kib": server.body_bytes / repeats / 1024, "cpu_us": statistics.median(samples)}

    with Loopback(closing_turn=n) as server:
        return asyncio.run(measure(server))


_COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "cpu": cpu,
    "concurrent": concurrent,
    "wire": wire,
}
