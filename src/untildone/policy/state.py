"""What a run knows. Changed by ``fold.apply`` and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from untildone.domain.attempts import Attempt
from untildone.domain.exits import ExitReason
from untildone.domain.log import (
    CandidateDropped,
    ContextRecalled,
    CriterionJudged,
    Graded,
    IterationEnded,
    ModelCallReplied,
    PredicateJudged,
    RunEnded,
    RunStarted,
)
from untildone.domain.messages import Message, ToolCall
from untildone.policy.plateau import Plateau
from untildone.policy.rules import RunRules
from untildone.policy.stuck import StuckDetector, StuckSignal


@dataclass(slots=True)
class AgentRun:
    """One agent run: turns until an inner exit.

    Attributes:
        conversation: What the model is sent. It only ever grows, so a length is a snapshot.
        start: Where this run's own messages begin in it.
        detector: Made with the first tool call: a run without any cannot be stuck.
        grade: The candidate's grade, where candidates are graded.
        vote: The key of its answer, where candidates vote; None where it has none.
        has_voted: Whether it was asked for one.
        is_calling: Whether a model call of its own has neither a reply nor a failure.
        dropped: Why it is out, where it is one of several candidates.
        stopped: The word of a grader that ended the run with it (``LoopConvergedError``).
        merged_from: The candidates it was merged from; it made no turns of its own.
        output_problems: Replies that did not fit ``response_model``.
        output_fits: Whether the last one did.
        end: Its length when the run ended; 0 before.
        calls: The calls of the batch that is being answered; empty between batches.
        answers: Their answers so far, by position.
        begun: Positions whose tool was started.
        approvals: Decisions of people, by position; None while one is waited for.
    """

    conversation: list[Message]
    start: int
    detector: StuckDetector | None = None
    turns: int = 0
    text: str = ""
    model: str = ""
    finish_reason: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: list[Message | None] = field(default_factory=list[Message | None])
    unanswered: int = 0
    begun: set[int] = field(default_factory=set[int])
    approvals: dict[int, tuple[bool, str | None] | None] = field(
        default_factory=dict[int, tuple[bool, str | None] | None]
    )
    replied_without_calls: bool = False
    output_problems: int = 0
    output_fits: bool = False
    signal: StuckSignal | None = None
    nudged: bool = False
    exit: ExitReason | None = None
    end: int = 0
    grade: Graded | None = None
    vote: str | None = None
    has_voted: bool = False
    is_calling: bool = False
    dropped: CandidateDropped | None = None
    stopped: PredicateJudged | None = None
    merged_from: tuple[AgentRun, ...] = ()


@dataclass(slots=True)
class Finished:
    """A finished iteration, as far as a result may still be made of it."""

    iteration: int
    run: AgentRun
    score: float | None
    confidence: float | None


@dataclass(frozen=True, slots=True)
class GradedIteration:
    """A graded answer, as far as a playbook may learn from it."""

    iteration: int
    text: str
    grade: Graded


@dataclass(slots=True)
class RunState:
    """The state of one run. The last group is about the current iteration only.

    ``judge_replies`` are those of judges that have not come to a verdict yet: a run that is resumed
    in between uses them instead of asking again. ``first_passed`` is the candidate whose grade was
    the first to need no other.
    """

    rules: RunRules
    started: RunStarted | None = None
    base: tuple[Message, ...] = ()
    conversation: list[Message] = field(default_factory=list[Message])
    feedback_log: list[str] = field(default_factory=list[str])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    iteration: int = 0
    finished_iterations: int = 0
    scores: list[float] = field(default_factory=list[float])
    plateau: Plateau = field(default_factory=Plateau)
    best: Finished | None = None
    last: Finished | None = None
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    unknown_usage_calls: int = 0
    ended: RunEnded | None = None
    recalled: ContextRecalled | None = None
    graded: list[GradedIteration] = field(default_factory=list[GradedIteration])
    curated: bool = False
    distilled: bool = False

    runs: list[AgentRun] = field(default_factory=list[AgentRun])
    winner: int = 0
    selected: bool = False
    first_passed: int | None = None
    stop_verdict: bool | None = None
    grade: Graded | None = None
    gradings: int = 0
    convergence: bool | None = None
    verdicts: list[CriterionJudged] = field(default_factory=list[CriterionJudged])
    confidence: float | None = None
    judge_replies: list[ModelCallReplied] = field(default_factory=list[ModelCallReplied])
    closed: IterationEnded | None = None
    episode_recorded: bool = False

    @property
    def current(self) -> AgentRun:
        """The agent run whose answer the current iteration stands for."""
        return self.runs[self.winner]
