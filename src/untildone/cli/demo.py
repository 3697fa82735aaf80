"""``untildone demo``: both loops at work on this machine, offline, told as it is.

First a job for a real, very small model: each sentence is one run of the refine loop, through the
public API, a few at once. Then a turn loop that gets stuck and recovers. What is shown comes from
the runs' own events; nothing is recorded beforehand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from untildone.agent import Agent, LoopConfig
from untildone.cli import extraction
from untildone.cli.demo_view import DemoView, SentenceView
from untildone.cli.exit_status import STATUS_OF
from untildone.cli.extraction import Example
from untildone.cli.interrupts import Interrupts
from untildone.cli.stuck_example import TASK, stuck_agent
from untildone.domain.exits import ExitReason
from untildone.domain.grading import CriterionContext
from untildone.domain.log import CriterionJudged, IterationStarted, LogEvent, ModelCallReplied
from untildone.models.local import local_base_url, local_weights
from untildone.run import aclose, run_agent

MODEL: Final = "smollm2"


def stands_in_the_sentence(ctx: CriterionContext) -> bool:
    """The check: done when every value of the answer stands in the sentence.

    It gives no feedback: told of its mistakes, this model gets worse; a fresh try helps it.
    """
    return not extraction.grounding_problems(ctx.query, ctx.result.text)


def extracting_agent() -> Agent:
    """One agent for all sentences: fresh tries at a temperature, without a seed."""
    schema = {"name": "person", "schema": extraction.REPLY_SCHEMA}
    return Agent(
        "extractor",
        f"local/{MODEL}",
        temperature=extraction.TEMPERATURE,
        max_tokens=extraction.MAX_TOKENS,
        extra_params={"response_format": {"type": "json_schema", "json_schema": schema}},
        loop_config=LoopConfig(
            max_iterations=extraction.MAX_ROUNDS,
            criteria=[stands_in_the_sentence],
            fresh_context=True,
            refine_prompt="",
            evaluate_final=True,
        ),
    )


def run_demo(view: DemoView, *, sentences: int | None = None) -> int:
    """Runs and shows both parts; gives the exit status.

    Args:
        view: Where it is shown.
        sentences: How many of the sentences to take; all by default.

    Raises:
        ConfigError: The extra or the weights are missing; the text says what to install.
    """
    local_weights(MODEL)
    examples = extraction.EXAMPLES[:sentences]
    with Interrupts(view.say) as interrupts, view:
        return asyncio.run(_watched(_both_parts(view, examples), view, interrupts))


async def _watched(work: Coroutine[Any, Any, None], view: DemoView, interrupts: Interrupts) -> int:
    task = asyncio.create_task(work)
    interrupts.watch(task)
    try:
        await task
    except asyncio.CancelledError:
        interrupts.settle()
        view.stopped()
        return STATUS_OF[ExitReason.CANCELLED]
    finally:
        await aclose()
    return 0


async def _both_parts(view: DemoView, examples: Sequence[Example]) -> None:
    view.begins_refining(len(examples), extraction.MAX_ROUNDS)
    began = time.monotonic()
    await local_base_url(MODEL)
    view.model_started(time.monotonic() - began)
    await _extract_all(view, examples)
    view.begins_turns(TASK)
    messages = [{"role": "user", "content": TASK}]
    view.turns_ended(await run_agent(stuck_agent(), messages, log=view.turn_log()))


async def _extract_all(view: DemoView, examples: Sequence[Example]) -> None:
    agent = extracting_agent()
    slots = asyncio.Semaphore(extraction.CONCURRENCY)
    outcomes: list[extraction.Outcome] = []

    async def extract(number: int, example: Example) -> None:
        async with slots:
            outcomes.append(await _extract(agent, example, view.sentence(number, example.sentence)))

    began = time.monotonic()
    try:
        async with asyncio.TaskGroup() as group:
            for number, example in enumerate(examples, 1):
                group.create_task(extract(number, example))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        if outcomes:
            view.summed_up(extraction.tally(outcomes), time.monotonic() - began)


async def _extract(agent: Agent, example: Example, shown: SentenceView) -> extraction.Outcome:
    """One run of the refine loop, for one sentence."""
    tries = _Tries(example, shown)
    result = await run_agent(agent, extraction.messages_for(example.sentence), log=tries)
    outcome = extraction.Outcome(example=example, replies=tuple(tries.replies))
    shown.ended(result, _mistake_in(example, result.text))
    return outcome


@dataclass(slots=True)
class _Tries:
    """Takes the log of one run, and shows each try once it is judged."""

    example: Example
    shown: SentenceView
    replies: list[str] = field(default_factory=list[str])

    def write(self, event: LogEvent) -> None:
        match event:
            case IterationStarted():
                self.shown.trying(event.at.iteration)
            case ModelCallReplied():
                self.replies.append(event.message.text)
                self.shown.spent(event.usage)
            case CriterionJudged():
                reply = self.replies[-1]
                problems = extraction.grounding_problems(self.example.sentence, reply)
                self.shown.tried(
                    event.at.iteration,
                    _in_words(reply),
                    problems,
                    is_right=self.example.is_right(reply),
                )
            case _:
                return


def _in_words(reply: str) -> str:
    person = extraction.person_in(reply)
    return reply if person is None else f"{person.name} · {person.city} · {person.age}"


def _mistake_in(example: Example, reply: str) -> str:
    """How a reply differs from the truth; ``""`` where it is right."""
    if example.is_right(reply):
        return ""
    person, truth = extraction.person_in(reply), example.truth
    if person is None:
        return "it is no answer"
    return "; ".join(
        f"the {name} is {getattr(truth, name)}, not {getattr(person, name)}"
        for name in ("name", "city", "age")
        if getattr(person, name) != getattr(truth, name)
    )
