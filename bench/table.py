"""The rows of the table, what untildone aims at in them, and the printing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.roster import (
    HAND,
    MEMORIES,
    NO_MEMORIES,
    OURS,
    SOCKET,
    VOTES,
    Case,
    Client,
    Column,
    version,
)
from bench.rounds import (
    CANDIDATES,
    CHUNKS,
    LATENCY_S,
    LOOP_REQUESTS,
    LOOPS,
    MODEL_CALLS,
    SIZES,
    Figures,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        label: What is measured, with its unit.
        key: The figure.
        aim: What untildone's own figures should not exceed.
        less: A figure to take off, of the same contender.
        compare: Whether a ratio to the hand loop says anything.
        best: Report the best round, not the median.
    """

    label: str
    key: str
    aim: float | None = None
    less: str | None = None
    compare: bool = True
    best: bool = False

    def value(self, figures: Figures, contender: Column) -> float | None:
        """The figure of this contender, if there is one."""
        report = figures.least if self.best else figures.median
        value = report(self.key, contender)
        if value is None or self.less is None:
            return value
        return value - (figures.median(self.less, contender) or 0.0)


def _import(what: str, key: str, *, compare: bool = True, **aims: float) -> Iterator[Row]:
    yield Row(f"{what}: CPU ms", f"import.{key}.cpu_ms", aims.get("cpu"), compare=compare)
    if "beyond_asyncio" in aims:
        label, asyncio_alone = "  of that beyond asyncio, ms", "import.asyncio.cpu_ms"
        aim = aims["beyond_asyncio"]
        yield Row(label, f"import.{key}.cpu_ms", aim, asyncio_alone, compare=False)
    yield Row("  modules loaded", f"import.{key}.modules", compare=compare)
    yield Row("  resident memory, MiB", f"import.{key}.rss_mib", compare=compare)


def _per_unit(kind: str, aim: float) -> Iterator[Row]:
    for size in SIZES:
        yield Row(f"N = {size}", f"{kind}.{size}", aim if size == AIM_AT else None)
    yield Row("N = 1000 over N = 10", f"{kind}.growth", 1.3, compare=False)


AIM_AT = 100
IDEAL_S = MODEL_CALLS * LATENCY_S
Section = tuple[str, tuple[Row, ...]]
SECTIONS: tuple[Section, ...] = (
    (
        "Import in a fresh process",
        (
            *_import("the package", "bare", cpu=30),
            *_import("the names a script uses", "names", beyond_asyncio=40),
            *_import("asyncio alone", "asyncio", compare=False),
        ),
    ),
    ("CPU µs a turn, one async tool, nobody listening", tuple(_per_unit("turns", 40))),
    ("CPU µs a turn with queue, time-out and retry", tuple(_per_unit("observed", 80))),
    (
        "CPU µs a refine iteration",
        (*_per_unit("iterations", 25), Row("N = 100, fresh context each time", "fresh.100")),
    ),
    (
        f"{LOOPS:,} loops at once, {MODEL_CALLS} model calls of {LATENCY_S * 1000:.0f} ms each",
        (
            Row(f"wall time over the ideal {IDEAL_S:g} s", "concurrent.of_ideal", 1.3),
            Row("  in the best round", "concurrent.of_ideal", best=True),
            Row("CPU s", "concurrent.cpu_s"),
            Row("peak resident memory, MiB", "concurrent.peak_rss_mib"),
            Row("  growth a loop, KiB", "concurrent.kib_per_loop"),
        ),
    ),
    (
        f"A run of {MODEL_CALLS} model calls over HTTP",
        (
            Row("request bodies, KiB", "wire.kib"),
            Row("CPU µs a turn, client side", "wire.cpu_us"),
        ),
    ),
)

CLIENT_SECTIONS: tuple[Section, ...] = (
    (
        f"CPU µs a chunk of a streamed reply of {CHUNKS}",
        (
            Row("all in one body", "chunks.one_body"),
            Row("a packet for each chunk", "chunks.packets"),
        ),
    ),
    (
        f"{LOOPS:,} loops over HTTP at once, {LOOP_REQUESTS} requests of {LATENCY_S * 1000:.0f} ms",
        (
            Row("wall time s", "http_loops.wall_s"),
            Row("  over plain aiohttp", "http_loops.wall_s_over_aiohttp", 1.5, compare=False),
            Row("CPU s", "http_loops.cpu_s"),
            Row("  over plain aiohttp", "http_loops.cpu_s_over_aiohttp", compare=False),
        ),
    ),
)
"""What HTTP costs: untildone beside clients used by hand, each reading to its own end."""

MEMORY_SECTIONS: tuple[Section, ...] = (
    (
        f"{LOOPS:,} loops at once, two iterations, a recall and a lesson each, on shared memories",
        (
            Row("wall time s", "memories.wall_s"),
            Row("CPU s of the process", "memories.cpu_s"),
            Row("episodes and lessons lost", "memories.lost", 0, compare=False),
            Row("anything of another loop", "memories.strays", 0, compare=False),
        ),
    ),
)
VOTE_SECTIONS: tuple[Section, ...] = (
    (
        f"A vote of {CANDIDATES} candidates, by how likely the answers are, in per cent",
        (
            Row("candidates asked, mean", "votes.asked", compare=False),
            Row("  fewer than all, %", "votes.saved", compare=False),
            Row("trials with another winner", "votes.others_won", 0, compare=False),
        ),
    ),
)

NOTES = """\
x: ratio to the hand loop, the 25 lines anyone writes; in the second table to the raw socket, in the
  third to the same loops without memories.
Figures are medians of interleaved rounds.
Per turn: N turns with a tool call and a closing answer, divided by N; so N = 1 pays for the whole
  run, and the aim is judged at N = 100. Every turn has other arguments, or the run would be stuck.
Models are scripted in the process, their replies prepared outside the clock. deepcrew-ai: stands
  on litellm.acompletion, which is replaced; litellm's own work shows under import and HTTP only.
  agent-framework: a BaseChatClient, not streamed, which is its default and the cheaper way.
With queue, time-out and retry: deepcrew-ai has no time-out, it gets the caller's asyncio.timeout.
Refine: agent-framework keeps the conversation over iterations only with a session, so it gets one;
  with a fresh context it needs none.
1,000 loops: wall time suffers from whatever else the machine does; the best round shows how much.
What takes a contender over 3 s a run is run once.
HTTP: an OpenAI-compatible server on the loopback interface; agent-framework by way of
  agent-framework-openai, the hand loop by http.client. CPU is that of the thread with the loop.
Second table: one scripted server in a process of its own. A chunk costs the whole process of the
  client, with the waking up for its packet. The loops: run_agent beside a hand loop on each client,
  streamed, connections included, divided by what aiohttp took in the same round. openai: with the
  HTTP client that it makes by default.
Third table: one playbook and one namespace of episodes for all loops, with room for everything, so
  that each loop reads and writes a playbook of up to 1,000 entries (the default is 30). What they
  left is compared entry by entry with what each must have left. Servers are those at
  BENCH_POSTGRES and BENCH_REDIS, or the usual ports of this machine; their own CPU is not counted.
Fourth table: what asking all candidates would give is worked out by itself for every trial.
litellm is kept from fetching its price list at import (LITELLM_LOCAL_MODEL_COST_MAP)."""


def lines(figures: Figures, contenders: Sequence[Column]) -> Iterator[str]:
    """A table, line by line: of contenders, of clients, of places for memories, or of votes."""
    sections = _sections_of(contenders)
    heads = [f"{contender.name} {version(contender)}".rstrip() for contender in contenders]
    label_width = max(len(row.label) for _, rows in sections for row in rows) + 4
    least = 16 if sections in (MEMORY_SECTIONS, VOTE_SECTIONS) else 21
    width = max(least, *(len(head) for head in heads)) + 2
    yield " " * label_width + "".join(f"{head:>{width}}" for head in heads) + "   aim of untildone"
    for title, rows in sections:
        yield ""
        yield title
        for row in rows:
            cells = "".join(f"{_cell(figures, row, who):>{width}}" for who in contenders)
            yield f"  {row.label:<{label_width - 2}}{cells}{_aim(figures, row)}".rstrip()
    yield from _reasons(figures, contenders, sections)


def shortfalls(figures: Figures) -> list[str]:
    """Where untildone misses its aims, in words."""
    found: list[str] = []
    for title, rows in (*SECTIONS, *CLIENT_SECTIONS, *MEMORY_SECTIONS, *VOTE_SECTIONS):
        for row in rows:
            for column in (OURS, *MEMORIES, *VOTES):
                value = row.value(figures, column)
                if row.aim is not None and value is not None and value > row.aim:
                    place = f", {column.name}" if isinstance(column, Case) else ""
                    label = f"{row.label.strip()}{place}"
                    found.append(f"{title}, {label}: {_number(value)}, aim ≤ {row.aim:g}")
    return found


def _sections_of(columns: Sequence[Column]) -> tuple[Section, ...]:
    first = columns[0] if columns else OURS
    if isinstance(first, Case):
        return MEMORY_SECTIONS if first in MEMORIES else VOTE_SECTIONS
    return CLIENT_SECTIONS if isinstance(first, Client) else SECTIONS


def _standard_of(column: Column) -> Column:
    """What a column is compared with."""
    if isinstance(column, Case):
        return NO_MEMORIES
    return SOCKET if isinstance(column, Client) else HAND


def _cell(figures: Figures, row: Row, contender: Column) -> str:
    value = row.value(figures, contender)
    if value is None:
        return "n/a      "
    standard = _standard_of(contender)
    hand = row.value(figures, standard)
    if not row.compare or not hand or contender is standard:
        return f"{_number(value)}        "
    return f"{_number(value)} x{_number(value / hand):<6}"


def _aim(figures: Figures, row: Row) -> str:
    values = [row.value(figures, column) for column in (OURS, *MEMORIES, *VOTES)]
    value = max((value for value in values if value is not None), default=None)
    if row.aim is None or value is None:
        return ""
    return f"   ≤ {row.aim:g} {'met' if value <= row.aim else 'MISSED'}"


def _reasons(
    figures: Figures, contenders: Sequence[Column], sections: Sequence[Section]
) -> Iterator[str]:
    reasons = {
        (title, contender.name, figures.why_missing(row.key, contender))
        for title, rows in sections
        for row in rows
        for contender in contenders
        if row.value(figures, contender) is None
    }
    if reasons:
        yield ""
    for title, name, reason in sorted(reasons):
        yield f"n/a: {title}: {name}: {reason}"


def _number(value: float) -> str:
    """Three figures, no more: the rest is noise."""
    for limit, digits in ((10, 2), (100, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"
