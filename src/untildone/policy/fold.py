"""``apply``: the one place where a run's state changes, live and on resume.

Deterministic and free of effects outside the state it is given: folding a log always gives the
same state. It changes that state in place, since copying a long conversation every turn would make
a run's cost quadratic; a fold owns its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from untildone.domain.attempts import Attempt
from untildone.domain.exits import ExitReason
from untildone.domain.log import (
    AgentRunEnded,
    ApprovalDecided,
    ApprovalRequested,
    BranchSelected,
    CandidateDropped,
    ContextRecalled,
    CriterionJudged,
    EpisodeRecorded,
    Graded,
    IterationEnded,
    IterationStarted,
    LogEvent,
    ModelCallFailed,
    ModelCallReplied,
    ModelCallStarted,
    NestedRunEnded,
    Nudged,
    OutputJudged,
    PlaybookCurated,
    PredicateJudged,
    Refined,
    RunEnded,
    RunStarted,
    SkillDistilled,
    ToolFinished,
    ToolStarted,
    Voted,
)
from untildone.domain.messages import Message, tool_message, user_message
from untildone.domain.usage import UNKNOWN_USAGE, Usage
from untildone.policy.branches import has_passed
from untildone.policy.rules import RunRules
from untildone.policy.state import AgentRun, Finished, GradedIteration, RunState
from untildone.policy.stuck import StuckDetector


def fold(rules: RunRules, log: Iterable[LogEvent]) -> RunState:
    """The state after a log, or after any prefix of one."""
    state = RunState(rules)
    for event in log:
        apply(state, event)
    return state


def apply(state: RunState, event: LogEvent) -> None:  # noqa: C901, PLR0912, PLR0915  one flat case an event
    """Changes ``state`` by one event. The cases stand in the order of how often they come."""
    match event:
        case ModelCallStarted():
            _note_call(state, event.at.branch, is_open=True)
        case ModelCallReplied():
            _note_call(state, event.at.branch, is_open=False)
            _spend(state, event.usage)
            if event.purpose == "worker":
                _reply(state, state.runs[event.at.branch], event)
            else:
                state.judge_replies.append(event)
        case ToolStarted():
            state.runs[event.at.branch].begun.add(event.index)
        case ToolFinished():
            message = tool_message(
                event.call_id, event.text, is_error=event.is_error, attachments=event.attachments
            )
            _answer(state.runs[event.at.branch], event.index, message)
        case IterationStarted():
            _start_iteration(state, event)
        case AgentRunEnded():
            run = state.runs[event.at.branch]
            run.exit = event.reason
            run.end = len(run.conversation)
        case Graded():
            _grade(state, event)
        case PredicateJudged():
            _note_predicate(state, event)
        case CriterionJudged():
            state.judge_replies.clear()
            state.verdicts.append(event)
        case Voted():
            run = state.runs[event.at.branch]
            run.vote, run.has_voted = event.key, True
        case CandidateDropped():
            _drop_candidate(state, event)
        case BranchSelected():
            _select(state, event)
        case IterationEnded():
            _finish_iteration(state, event)
        case Refined():
            _refine(state, event)
        case ModelCallFailed():
            _note_call(state, event.at.branch, is_open=False)
            _spend(state, event.usage)
        case NestedRunEnded():
            _spend(state, event.usage)
        case Nudged():
            _nudge(state.runs[event.at.branch], event)
        case OutputJudged():
            _judge_output(state.runs[event.at.branch], event)
        case RunStarted():
            _start_run(state, event)
        case ContextRecalled():
            state.recalled = event
            _set_base(state)
        case EpisodeRecorded():
            state.judge_replies.clear()
            state.episode_recorded = True
        case PlaybookCurated():
            state.judge_replies.clear()
            state.curated = True
        case SkillDistilled():
            state.distilled = True
        case RunEnded():
            state.ended = event
        case ApprovalRequested():
            state.runs[event.at.branch].approvals[event.index] = None
        case ApprovalDecided():
            _decide_approval(state, event)
        case _:
            assert_never(event)


def _start_run(state: RunState, event: RunStarted) -> None:
    state.started = event
    _set_base(state)


def _set_base(state: RunState) -> None:
    """What every iteration begins with: instructions, what memories added, the caller's messages.

    Memories stand in the one system message, since not every model takes two.
    """
    started = state.started
    if started is None:
        return
    recalled = "" if state.recalled is None else state.recalled.text
    instructions = "\n\n".join(text for text in (started.system_prompt, recalled) if text)
    system = (Message("system", instructions),) if instructions else ()
    state.base = (*system, *started.messages)
    state.conversation = list(state.base)
    if state.rules.loop is None:
        state.runs = [_new_agent_run(state)]


def _start_iteration(state: RunState, event: IterationStarted) -> None:
    state.iteration = event.at.iteration
    loop = state.rules.loop
    state.runs = (
        [_new_agent_run(state)]
        if loop is None or loop.branches == 1
        else [_new_candidate(state) for _ in range(loop.branches)]
    )
    state.winner = 0
    state.selected = False
    state.first_passed = None
    state.stop_verdict = state.grade = state.convergence = state.confidence = None
    state.gradings = 0
    state.verdicts = []
    state.closed = None
    state.episode_recorded = False


def _new_agent_run(state: RunState) -> AgentRun:
    return AgentRun(state.conversation, len(state.conversation))


def _new_candidate(state: RunState) -> AgentRun:
    """One of several: what they add must not meet in one list."""
    return AgentRun(list(state.conversation), len(state.conversation))


def _note_call(state: RunState, branch: int, *, is_open: bool) -> None:
    if branch < len(state.runs):
        state.runs[branch].is_calling = is_open


def _spend(state: RunState, usage: Usage) -> None:
    state.input_tokens += usage.input_tokens
    state.output_tokens += usage.output_tokens
    state.cached_tokens += usage.cached_tokens
    state.unknown_usage_calls += usage.unknown_calls


def _reply(state: RunState, run: AgentRun, event: ModelCallReplied) -> None:
    """One turn's reply. An empty one is counted, but never becomes part of the conversation."""
    message = event.message
    run.turns += 1
    state.turns += 1
    run.finish_reason = event.finish_reason
    run.model = event.model
    if not message.is_empty:
        run.conversation.append(message)
    text = message.text
    if message.tool_calls:
        run.text = text or run.text
        run.calls = message.tool_calls
        run.unanswered = len(run.calls)
        run.answers = [None] * run.unanswered
        run.begun.clear()
        run.approvals.clear()
        if run.detector is None and state.rules.stuck.action != "off":
            run.detector = StuckDetector(state.rules.stuck, state.rules.traits)
        if run.detector is not None:
            run.detector.note_assistant(text, message.tool_calls)
    else:
        run.text = text
        run.replied_without_calls = True


def _answer(run: AgentRun, index: int, message: Message) -> None:
    """One call's answer; the last one closes the batch, in call order whatever came first."""
    run.answers[index] = message
    run.unanswered -= 1
    if run.unanswered:
        return
    detector = run.detector
    for answer in run.answers:
        if answer is not None:
            run.conversation.append(answer)
            if detector is not None:
                run.signal = detector.note_result(answer.text, is_error=answer.is_error)
    run.calls = ()
    if run.exit is not None:  # it had paused for a person, and was cancelled then
        run.end = len(run.conversation)


def _nudge(run: AgentRun, event: Nudged) -> None:
    run.conversation.append(user_message(event.text))
    run.nudged = True
    run.signal = None
    if run.detector is not None:
        run.detector.note_user()


def _judge_output(run: AgentRun, event: OutputJudged) -> None:
    run.output_fits = event.problem is None
    if event.problem is not None:
        run.output_problems += 1
    if event.complaint is not None:
        run.replied_without_calls = False
        run.conversation.append(user_message(event.complaint))


def _grade(state: RunState, event: Graded) -> None:
    """A grade, or the confirmation of one: a refusal wins, with the lower score."""
    _use_up_replies(state, event.at.branch)
    if len(state.runs) > 1 and not state.selected:
        state.runs[event.at.branch].grade = event
        _note_pass(state, event.at.branch)
        return
    state.gradings += 1
    state.confidence = event.confidence
    first = state.grade
    if first is None:
        state.grade = event
    elif not event.converged:
        score = min(first.score, event.score)
        state.grade = Graded(event.at, score, event.issues, event.suggestion, converged=False)


def _note_predicate(state: RunState, event: PredicateJudged) -> None:
    """What a predicate said; of a candidate, while none is selected, that the run ends with it."""
    if len(state.runs) > 1 and not state.selected:
        _use_up_replies(state, event.at.branch)
        state.runs[event.at.branch].stopped = event
        _note_pass(state, event.at.branch)
        return
    state.judge_replies.clear()
    state.confidence = event.confidence
    if event.name == "stop_condition":
        state.stop_verdict = event.verdict
    else:
        state.convergence = event.verdict


def _note_pass(state: RunState, branch: int) -> None:
    if state.first_passed is None and has_passed(state.runs[branch]):
        state.first_passed = branch


def _use_up_replies(state: RunState, branch: int) -> None:
    """A verdict on a candidate uses up what its judge had said; those of others still wait."""
    state.judge_replies = [reply for reply in state.judge_replies if reply.at.branch != branch]


def _drop_candidate(state: RunState, event: CandidateDropped) -> None:
    """Where none is left, the first one that has an answer stands for the iteration."""
    _use_up_replies(state, event.at.branch)
    run = state.runs[event.at.branch]
    run.dropped = event
    if run.is_calling:  # cut off with an earlier process, and not made again: nobody knows its cost
        _spend(state, UNKNOWN_USAGE)
    if all(run.dropped is not None for run in state.runs):
        answered = [
            index
            for index, run in enumerate(state.runs)
            if run.dropped is not None and run.dropped.in_grading
        ]
        state.winner = answered[0] if answered else 0


def _select(state: RunState, event: BranchSelected) -> None:
    state.selected = True
    state.judge_replies.clear()
    if event.winner is None:
        state.runs.append(_merged(state, event))
    state.winner = len(state.runs) - 1 if event.winner is None else event.winner
    winner = state.current
    state.confidence = event.confidence
    if winner.grade is not None:
        state.grade = winner.grade
        state.gradings = 1
        state.confidence = winner.grade.confidence
    if winner.stopped is not None:
        state.stop_verdict = True
        state.confidence = winner.stopped.confidence


def _merged(state: RunState, event: BranchSelected) -> AgentRun:
    """A merge goes forward as one assistant message after what all candidates were sent."""
    candidates = tuple(run for run in state.runs if run.dropped is None)
    message = event.merged or Message("assistant", "")
    conversation = [*state.conversation, *(() if message.is_empty else (message,))]
    return AgentRun(
        conversation,
        len(state.conversation),
        text=message.text,
        model=event.model or candidates[0].model,
        finish_reason=event.finish_reason,
        exit=ExitReason.SATISFIED,
        end=len(conversation),
        merged_from=candidates,
    )


def _finish_iteration(state: RunState, event: IterationEnded) -> None:
    state.closed = event
    state.judge_replies.clear()
    state.finished_iterations = event.at.iteration
    done = Finished(event.at.iteration, state.current, event.score, state.confidence)
    state.last = done
    if state.grade is not None:
        state.graded.append(GradedIteration(done.iteration, done.run.text, state.grade))
    if event.score is None:
        return
    state.scores.append(event.score)
    loop = state.rules.loop
    if loop is not None:
        state.plateau = state.plateau.add(event.score, loop.min_improvement)
    best = state.best
    if best is None or best.score is None or event.score >= best.score:
        state.best = done


def _refine(state: RunState, event: Refined) -> None:
    _keep_calls(state)
    if event.feedback:
        state.feedback_log.append(event.feedback)
    loop = state.rules.loop
    if loop is not None and loop.fresh_context:
        state.conversation = [*state.base, *event.messages]
    else:
        state.conversation = state.current.conversation
        state.conversation.extend(event.messages)
    state.runs = []


def _keep_calls(state: RunState) -> None:
    """The tool calls of the iteration that is over: its messages need not go forward."""
    candidates = state.current.merged_from
    calls = tuple(
        message
        for run in candidates or (state.current,)
        for message in run.conversation[run.start : run.end]
        if message.tool_calls or message.role == "tool"
    )
    if calls:
        state.attempts.append(Attempt(calls, is_merge=bool(candidates)))


def _decide_approval(state: RunState, event: ApprovalDecided) -> None:
    """A decision reopens what had paused for it."""
    run = state.runs[event.at.branch]
    run.approvals[event.index] = (event.approved, event.reason)
    if run.exit is ExitReason.AWAITING_APPROVAL:
        run.exit = None
        run.end = 0
    if state.ended is not None and state.ended.reason is ExitReason.AWAITING_APPROVAL:
        state.ended = None
