"""Runs the contenders in turn, again and again, and collects what they print.

One figure of one contender is a list with a value from every round. The rounds are interleaved so
that a noisy minute of the machine falls on all contenders alike; the median is reported.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.roster import (
    AIOHTTP,
    CLIENTS,
    HERE,
    MEMORIES,
    NO_MEMORIES,
    ROOT,
    VOTES,
    Case,
    Client,
    Column,
    Contender,
)

SIZES = (1, 10, 100, 1000)
KINDS = {"turns": SIZES, "observed": SIZES, "iterations": SIZES, "fresh": (100,)}
LOOPS, MODEL_CALLS, LATENCY_S = 1000, 20, 0.05
CHUNKS, LOOP_REQUESTS = 200, 5  # over HTTP: of a streamed reply; of one of the loops
CANDIDATES = 9  # of a vote

ONCE_ABOVE_S = 3.0  # a run that takes longer is made in the first round only
TIMEOUT_S = 300.0

ENVIRONMENT = {
    "OPENAI_API_KEY": "bench",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else its import asks the network, and may wait
    "NO_PROXY": "127.0.0.1",
}


C = TypeVar("C", bound=Column)


class Figures:
    """Samples by row and contender, and the reasons for those that are missing."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._missing: dict[tuple[str, str], str] = {}

    def add(self, row: str, contender: Column, value: float) -> None:
        """Keep one sample."""
        self._samples[row, contender.name].append(value)

    def lacks(self, row: str, contender: Column, reason: str) -> None:
        """Keep why there will be none."""
        self._missing[row, contender.name] = reason

    def median(self, row: str, contender: Column) -> float | None:
        """The figure to report."""
        samples = self._samples.get((row, contender.name))
        return statistics.median(samples) if samples else None

    def least(self, row: str, contender: Column) -> float | None:
        """The best sample: what the machine did when it was least disturbed."""
        return min(self._samples.get((row, contender.name), ()), default=None)

    def why_missing(self, row: str, contender: Column) -> str:
        """The reason, where there is no figure."""
        return self._missing.get((row, contender.name), "not measured")

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Every sample and every reason, by row and contender."""
        out: dict[str, dict[str, Any]] = defaultdict(dict)
        for (row, name), value in [*self._samples.items(), *self._missing.items()]:
            out[row][name] = value
        return out


class Rounds:
    """The measuring of one bench run; `interpreters` says which Python runs which contender."""

    def __init__(self, interpreters: Mapping[Contender, Path]) -> None:
        self.interpreters = interpreters
        self.clients = [client for client in CLIENTS if client.runs_in in interpreters]
        self.figures = Figures()
        self._sizes = {
            contender: {kind: list(sizes) for kind, sizes in KINDS.items()}
            for contender in interpreters
        }

    def imports(self, count: int) -> None:
        """Import cost in fresh processes, with asyncio's own apart."""
        for number, contender in self._turns_taken("imports", count, warm_up=True):
            statements = {"import.names": contender.names}
            if number:  # the warm-up round only writes byte code and fills the page cache
                statements["import.bare"] = contender.bare
                statements["import.asyncio"] = "import asyncio"
            for row, statement in statements.items():
                cost = self._ask(contender, "import_cost.py", statement)
                for unit in ("cpu_ms", "modules", "rss_mib") if number else ():
                    self.figures.add(f"{row}.{unit}", contender, cost[unit])

    def cpu(self, count: int, budget_s: float) -> None:
        """CPU per turn and per iteration at every size."""
        for _, contender in self._turns_taken("CPU", count):
            sizes = self._sizes[contender]
            found = self._ask(contender, contender.script, "cpu", json.dumps(sizes), str(budget_s))
            for kind, by_size in found.items():
                self._keep_cpu(contender, kind, by_size)

    def _keep_cpu(self, contender: Contender, kind: str, by_size: dict[str, Any]) -> None:
        if "missing" in by_size:
            for row in [*KINDS[kind], "growth"]:
                self.figures.lacks(f"{kind}.{row}", contender, by_size["missing"])
            return
        for size, micros in by_size.items():
            self.figures.add(f"{kind}.{size}", contender, micros)
            if int(size) * micros / 1e6 > ONCE_ABOVE_S:
                self._sizes[contender][kind].remove(int(size))
        if "1000" in by_size:
            self.figures.add(f"{kind}.growth", contender, by_size["1000"] / by_size["10"])

    def concurrent(self, count: int) -> None:
        """A thousand loops at once."""
        sizes = (str(LOOPS), str(MODEL_CALLS), str(LATENCY_S))
        slow: set[Contender] = set()
        for _, contender in self._turns_taken("1,000 loops at once", count):
            if contender in slow:
                continue
            found = self._ask(contender, contender.script, "concurrent", *sizes)
            for row, value in found.items():
                self.figures.add(f"concurrent.{row}", contender, value)
            if found["of_ideal"] * MODEL_CALLS * LATENCY_S > ONCE_ABOVE_S:
                slow.add(contender)

    def wire(self, count: int) -> None:
        """Over HTTP to a server on the loopback interface."""
        for _, contender in self._turns_taken("wire", count):
            found = self._ask(contender, contender.script, "wire", str(MODEL_CALLS))
            for row, value in found.items():
                self.figures.add(f"wire.{row}", contender, value)

    def chunks(self, count: int, *, requests: Mapping[str, int]) -> None:
        """CPU per chunk of a streamed reply, by how it is sent."""
        with _stream_server() as base_url:
            for _, client in self._rounds("streamed chunks", count, self.clients):
                for form, often in requests.items():
                    url = f"{base_url}/{form}"
                    found = self._ask(client, client.script, "chunks", url, str(CHUNKS), str(often))
                    self.figures.add(f"chunks.{form}", client, found["cpu_us"])

    def http_loops(self, count: int) -> None:
        """A thousand turn loops at once over HTTP, beside the same loop on plain aiohttp."""
        slow: set[Client] = set()
        plain: dict[str, float] = {}
        # aiohttp comes first in each round: the others are divided by what it took just then.
        columns = sorted(self.clients, key=lambda client: client is not AIOHTTP)
        with _stream_server() as base_url:
            for _, client in self._rounds("1,000 loops over HTTP", count, columns):
                if client in slow:
                    continue
                url = f"{base_url}/tool_turns"
                found = self._ask(client, client.script, "loops", url, str(LOOPS))
                if client is AIOHTTP:
                    plain = found
                for row, value in found.items():
                    self.figures.add(f"http_loops.{row}", client, value)
                    if plain:
                        over = f"http_loops.{row}_over_aiohttp"
                        self.figures.add(over, client, value / plain[row])
                if found["wall_s"] > ONCE_ABOVE_S and client is not AIOHTTP:
                    slow.add(client)

    def memories(self, count: int) -> None:
        """A thousand loops at once that share memories, in every place that can be reached."""
        self.figures.lacks("memories.lost", NO_MEMORIES, "nothing is kept")
        for _, case in self._rounds(f"{LOOPS:,} loops on shared memories", count, MEMORIES):
            found = self._run(case, str(LOOPS))
            if "missing" in found:
                for row in ("wall_s", "cpu_s", "lost", "strays"):
                    self.figures.lacks(f"memories.{row}", case, f"skipped: {found['missing']}")
                continue
            for row, value in found.items():
                self.figures.add(f"memories.{row}", case, value)

    def votes(self, trials: int) -> None:
        """How many candidates a vote asks until its winner is certain."""
        for _, case in self._rounds("votes", 1, VOTES):
            found = self._run(case, str(CANDIDATES), str(trials))
            for row, value in found.items():
                self.figures.add(f"votes.{row}", case, value)

    def _turns_taken(
        self, what: str, count: int, *, warm_up: bool = False
    ) -> Iterator[tuple[int, Contender]]:
        return self._rounds(what, count, self.interpreters, warm_up=warm_up)

    def _rounds(
        self, what: str, count: int, columns: Iterable[C], *, warm_up: bool = False
    ) -> Iterator[tuple[int, C]]:
        for number in range(0 if warm_up else 1, count + 1):
            print(f"{what}: round {number} of {count}", file=sys.stderr)
            for column in columns:
                yield number, column

    def _ask(self, contender: Contender | Client, script: str, *arguments: str) -> dict[str, Any]:
        """One fresh process; its last line of output is JSON."""
        home = contender.runs_in if isinstance(contender, Client) else contender
        command = [self.interpreters[home], HERE / "contenders" / script, *arguments]
        return _answer_of(contender, command)

    def _run(self, case: Case, *arguments: str) -> dict[str, Any]:
        """The same, of our own tree with all its extras."""
        return _answer_of(case, [sys.executable, "-m", case.module, case.argument, *arguments])


def _answer_of(column: Column, command: Sequence[str | Path]) -> dict[str, Any]:
    done = subprocess.run(
        command,
        env=os.environ | ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{column.name}: {' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def _stream_server() -> Generator[str]:
    """The scripted server for streams, in a process of its own."""
    arguments = [str(CHUNKS), str(LOOP_REQUESTS), str(LATENCY_S)]
    command = [sys.executable, HERE / "contenders" / "stream_server.py", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()
