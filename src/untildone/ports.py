"""The seams: what the engine needs of the outside, as Protocols.

An implementation needs no base class and no registration, only the shape.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from untildone.domain.episodes import Episode
from untildone.domain.grading import VerifierFeedback
from untildone.domain.log import LogEvent
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.domain.results import AgentResult
from untildone.domain.tools import ToolOutput, ToolSpec


@runtime_checkable
class Model(Protocol):
    """A language model, or a wrapper around one.

    ``generate`` sends one request and gives the whole reply; on the way it hands pieces to
    ``on_delta``, where one is given. It raises ``ModelError`` for what went wrong outside, and is
    cancelled like any coroutine. One object serves many runs at once.
    """

    @property
    def name(self) -> str:
        """How logs and results name the model."""
        ...

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Sends one request and gives the whole reply."""
        ...


class RunModel(Model, Protocol):
    """A model as a run reaches it: metered, with the run's retries."""

    def using(self, model: str | Model) -> RunModel:
        """The same path to another model, so that its calls count for the run too."""
        ...


class Tool(Protocol):
    """Something a model may call."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        ...

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as values.

        Raises:
            ToolError: They are no JSON object or do not fit; the text tells the model what would.
        """
        ...

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """Runs one call with parsed arguments and gives what the model gets: text, mostly."""
        ...


class OutputReader(Protocol):
    """Reads a reply as the agent's ``response_model``."""

    @property
    def name(self) -> str:
        """What the output is called."""
        ...

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema a reply must fit."""
        ...

    def read(self, text: str) -> Any:
        """The reply as an object.

        Raises:
            OutputParseError: It does not fit; the text says what and where.
        """
        ...


Offload = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function in a worker thread of the run's pool."""


class Grader(Protocol):
    """What stands in ``LoopConfig.verifier``."""

    @property
    def threshold(self) -> float:
        """The score from which an answer passes, where the feedback does not say itself."""
        ...

    @property
    def confirmations(self) -> int:
        """How often a pass is graded again before it counts."""
        ...

    async def evaluate(
        self, query: str, result: AgentResult, *, default_model: Any
    ) -> VerifierFeedback:
        """Grades one answer."""
        ...


class Synthesizer(Protocol):
    """Merges several answers to one request into one.

    One whose ``synthesize`` has a keyword ``model`` is given a ``RunModel`` there: what it asks
    through that, or through ``model.using(...)``, has the run's retries and counts in its usage.
    One that has a keyword ``output`` is given the ``OutputReader`` of the agent's
    ``response_model`` there, or None; a merged answer that it refuses does not go forward.
    """

    async def synthesize(
        self, original_query: str, results: Sequence[AgentResult], queue: Any = None, /
    ) -> AgentResult:
        """One result whose ``text`` is the merged answer; ``confidence`` None where unknown."""
        ...


class Playbook(Protocol):
    """What stands in ``procedural_memory``: strategies that worked and ones that did not (S1)."""

    async def load(self, task_tag: str) -> Sequence[Any]:
        """The entries under a tag."""
        ...

    def render(self, entries: Sequence[Any]) -> str:
        """Entries as text for the instructions, ``""`` if there are none."""
        ...

    async def curate(
        self,
        task_tag: str,
        feedback: VerifierFeedback,
        trajectory: Sequence[AgentResult],
        *,
        model: Any = None,
    ) -> int:
        """Learns from a run's graded iterations; gives the number of entries it then has."""
        ...


class Episodes(Protocol):
    """What stands in ``episodic_memory`` (S1)."""

    async def recall(self, query: str, *, top_k: int | None = None) -> Sequence[Episode]:
        """Past episodes that matter for a query, the most relevant first."""
        ...

    async def record(self, episode: Episode) -> None:
        """Keeps an episode; one with the same ``id`` is replaced."""
        ...


class MemoryProvider(Protocol):
    """A place for remembered text, by key (S1)."""

    async def store(self, key: str, value: str) -> None:
        """Keeps a value; what the key had before is replaced."""
        ...

    async def retrieve(self, key: str) -> str | None:
        """The value of a key, or None."""
        ...

    async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
        """The ``(key, value)`` pairs that fit a query best, best first."""
        ...

    async def clear(self) -> None:
        """Forgets everything."""
        ...


class EventSink(Protocol):
    """Takes the log events of a run: a store, a tracer, a list. Called in order, must not block."""

    def write(self, event: LogEvent) -> None:
        """Takes one event."""
        ...


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        ...


Predicate = Callable[[AgentResult], "bool | Awaitable[bool]"]
"""``convergence_fn`` and ``stop_condition``: sync (quick, run inline) or async."""

Tools = Mapping[str, Tool]
