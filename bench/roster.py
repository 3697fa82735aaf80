"""Who is measured: each with a script, a venv and the two import statements a user would write."""

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One column of the table.

    Attributes:
        name: Heading of the column.
        script: File in `bench/contenders` that does the work.
        constraints: Exact versions of its venv. `None`: no venv, the standard library is enough.
        requirements: What pip installs there; the wheel of this tree is added for ours.
        bare: The import statement alone.
        names: The import statement of a script that uses the loop.
        ours: Whether it is this tree.
    """

    name: str
    script: str
    constraints: Path | None = None
    requirements: tuple[str, ...] = ()
    bare: str
    names: str
    ours: bool = False


OURS = Contender(
    name="untildone",
    script="untildone_wheel.py",
    constraints=ROOT / "constraints.txt",
    bare="import untildone",
    names="from untildone import Agent, run_agent, LoopConfig, tool",
    ours=True,
)
HAND = Contender(
    name="hand loop",
    script="hand_loop.py",
    bare="import asyncio, json",
    names="import asyncio, json",
)
PEERS = (
    Contender(
        name="deepcrew-ai",
        script="deepcrew_ai.py",
        constraints=HERE / "constraints-deepcrew-ai.txt",
        requirements=("deepcrew-ai",),
        bare="import deepcrew",
        names="from deepcrew import Agent, run_agent, LoopConfig, tool",
    ),
    Contender(
        name="agent-framework",
        script="agent_framework_core.py",
        constraints=HERE / "constraints-agent-framework-core.txt",
        requirements=("agent-framework-core", "agent-framework-openai"),
        bare="import agent_framework",
        names="from agent_framework import Agent, AgentLoopMiddleware, tool",
    ),
)
CONTENDERS = (OURS, HAND, *PEERS)
"""In the order of the columns. The hand loop is what the others are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One column of the second table, which is about HTTP alone.

    Attributes:
        name: Heading of the column.
        script: File in `bench/contenders` that does the work.
        runs_in: The contender whose venv has what it needs.
        package: What is measured, as its pins name it; empty: what `runs_in` is.
    """

    name: str
    script: str
    runs_in: Contender
    package: str = ""


SOCKET = Client(name="raw socket", script="socket_client.py", runs_in=HAND)
AIOHTTP = Client(name="aiohttp", script="aiohttp_client.py", runs_in=OURS, package="aiohttp")
CLIENTS = (
    Client(name=OURS.name, script="untildone_client.py", runs_in=OURS),
    SOCKET,
    AIOHTTP,
    Client(name="openai", script="openai_client.py", runs_in=PEERS[1], package="openai"),
)
"""In the order of the columns. The raw socket is what the others are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One column of a table about untildone alone: the same work in another place or form.

    Attributes:
        name: Heading of the column.
        module: What is run, in the Python that runs the bench.
        argument: What it is told.
    """

    name: str
    module: str
    argument: str


NO_MEMORIES = Case(name="no memories", module="bench.shared_memories", argument="none")
MEMORIES = (
    NO_MEMORIES,
    *(
        Case(name=name, module="bench.shared_memories", argument=argument)
        for name, argument in (
            ("in memory", "memory"),
            ("file", "file"),
            ("SQLite", "sqlite"),
            ("PostgreSQL", "postgresql"),
            ("Redis", "redis"),
        )
    ),
)
"""In the order of the columns. Loops without memories are what the others are compared with."""
VOTES = tuple(
    Case(name=shares, module="bench.votes", argument=shares)
    for shares in ("97/3", "80/10/10", "60/20/20", "50/50", "25/25/25/25")
)
"""How likely the different answers are, in per cent."""

Column = Contender | Client | Case


def version(column: Column) -> str:
    """The pinned version, or what stands in its place."""
    if isinstance(column, Case):
        return ""
    contender = column.runs_in if isinstance(column, Client) else column
    package = column.package if isinstance(column, Client) else ""
    if contender.ours and not package:
        return "this tree"
    if contender.constraints is None:
        return f"Python {sys.version.split()[0]}"
    lines = contender.constraints.read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    return pins[package or contender.requirements[0]]
