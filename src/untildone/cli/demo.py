"""``untildone demo``: both loops at work on this machine, offline, told as it is.

First a job for a real, very small model: each sentence is one run of the refine loop, through the
public API. Then a turn loop that gets stuck and recovers. What is shown comes from the runs' own
events; nothing is recorded beforehand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from untildone.agent import Agent, LoopConfig
from untildone.cli import extraction
from untildone.cli.demo_view import DemoView, Tally
from untildone.cli.exit_status import STATUS_OF
from untildone.cli.extraction import Sentence
from untildone.cli.interrupts import Interrupts
from untildone.cli.stuck_example import TASK, stuck_agent
from untildone.domain.exits import ExitReason
from untildone.domain.grading import CriterionContext
from untildone.domain.log import CriterionJudged, IterationStarted, LogEvent, ModelCallReplied
from untildone.models.local import local_base_url, local_weights
from untildone.run import aclose, run_agent

MODEL: Final = "smollm2"
MAX_ITERATIONS: Final = 4


def stands_in_the_sentence(ctx: CriterionContext) -> bool:
    """The check: done when every value of the answer stands in the sentence.

    It gives no feedback: told of its mistakes, this model gets worse; a fresh try helps it.
    """
    return extraction.fault_in(ctx.query, ctx.result.text) is None


def extracting_agent() -> Agent:
    """One agent for all sentences: fresh tries at a temperature, without a seed."""
    return Agent(
        "extractor",
        f"local/{MODEL}",
        temperature=extraction.TEMPERATURE,
        max_tokens=extraction.MAX_TOKENS,
        extra_params={"response_format": extraction.RESPONSE_FORMAT},
        loop_config=LoopConfig(
            max_iterations=MAX_ITERATIONS,
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
    chosen = extraction.SENTENCES[:sentences]
    with Interrupts(view.say) as interrupts, view:
        return asyncio.run(_watched(_both(view, chosen), view, interrupts))


async def _watched(work: Coroutine[Any, Any, None], view: DemoView, interrupts: Interrupts) -> int:
    task = asyncio.create_task(work)
    interrupts.watch(task)
    try:
        await task
    except asyncio.CancelledError:
        view.stopped()
        return STATUS_OF[ExitReason.CANCELLED]
    finally:
        await aclose()
    return 0


async def _both(view: DemoView, sentences: Sequence[Sentence]) -> None:
    tally = Tally()
    view.begins_refining(len(sentences), MAX_ITERATIONS)
    try:
        await _extract(view, sentences, tally)
    finally:
        if tally.sentences:
            view.summed_up(tally)
    view.begins_turns(TASK)
    result = await run_agent(
        stuck_agent(), [{"role": "user", "content": TASK}], log=view.turn_log()
    )
    view.turns_ended(result)


async def _extract(view: DemoView, sentences: Sequence[Sentence], tally: Tally) -> None:
    agent = extracting_agent()
    began = time.monotonic()
    await local_base_url(MODEL)
    view.model_started(time.monotonic() - began)
    began = time.monotonic()
    for number, sentence in enumerate(sentences, 1):
        view.sentence(number, sentence.text)
        tries = _Tries(view, sentence)
        run_began = time.monotonic()
        result = await run_agent(agent, extraction.messages_for(sentence.text), log=tries)
        now = time.monotonic()
        mistake = extraction.mistake_in(sentence, result.text)
        tally.add(
            right_at_first=extraction.mistake_in(sentence, tries.texts[0]) is None,
            right=mistake is None,
            accepted=result.exit_reason is ExitReason.CONVERGED,
            tokens=result.total_tokens,
        )
        tally.seconds = now - began
        view.sentence_ended(result, now - run_began, mistake)


@dataclass(slots=True)
class _Tries:
    """Takes the log of one run, and shows each try once it is judged."""

    view: DemoView
    sentence: Sentence
    texts: list[str] = field(default_factory=list[str])

    def write(self, event: LogEvent) -> None:
        match event:
            case IterationStarted():
                self.view.trying(event.at.iteration)
            case ModelCallReplied():
                self.texts.append(event.message.text)
                self.view.spent(event.usage)
            case CriterionJudged():
                text = self.texts[-1]
                fault = extraction.fault_in(self.sentence.text, text)
                self.view.tried(event.at.iteration, extraction.in_words(text), fault)
            case _:
                return
