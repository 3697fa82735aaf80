"""The measuring side of a client: every client script ends in `measure_client.main(module)`.

A client offers these; both are called outside the clock and give a coroutine function to be timed:

    stream(base_url)  one streamed reply, read to its end; gives its text
    loop(base_url)    one turn loop: asks, runs the tool, asks again, until the closing text

and `aclose()`, which ends its connections.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from script import CLOSING_TEXT
from stream_server import allow_connections

Job = Callable[[], Awaitable[str]]

WARM_UP = 5


def main(client: ModuleType) -> None:
    """Measure what the command line names and print it as one line of JSON."""
    command, *arguments = sys.argv[1:]
    allow_connections()
    print(json.dumps(asyncio.run(_COMMANDS[command](client, *arguments))))


async def chunks(client: ModuleType, base_url: str, count: str, requests: str) -> dict[str, float]:
    """CPU µs of the whole process for a chunk of a streamed reply: the median over requests."""
    job: Job = client.stream(base_url)
    samples: list[float] = []
    for number in range(WARM_UP + int(requests)):
        gc.collect()
        started = time.process_time_ns()
        text = await job()
        spent_ns = time.process_time_ns() - started
        if len(text.split()) != int(count):
            raise AssertionError(f"expected {count} pieces, saw {len(text.split())}")
        if number >= WARM_UP:
            samples.append(spent_ns / 1000 / int(count))
    await client.aclose()
    return {"cpu_us": statistics.median(samples)}


async def loops(client: ModuleType, base_url: str, count: str) -> dict[str, float]:
    """Many turn loops at once: wall time and CPU, the making of the connections included."""
    job: Job = client.loop(base_url)
    for _ in range(WARM_UP):
        await job()
    jobs = [client.loop(base_url) for _ in range(int(count))]
    gc.collect()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    texts = await asyncio.gather(*(job() for job in jobs))
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    if set(texts) != {CLOSING_TEXT}:
        raise AssertionError(f"expected the closing text, saw {set(texts)}")
    await client.aclose()
    return {"wall_s": wall_s, "cpu_s": cpu_s}


_COMMANDS: dict[str, Callable[..., Any]] = {"chunks": chunks, "loops": loops}
