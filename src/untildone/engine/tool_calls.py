"""One batch of tool calls: run at once, each answered exactly once, whatever happens.

Nothing in here raises because a tool failed: the model gets a short error it can act on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from untildone.cancellation import is_being_cancelled, stop_if_cancelled, together
from untildone.domain.call_site import CALL_SITE, CallSite
from untildone.domain.errors import LoopConvergedError, ToolError, describe
from untildone.domain.log import ApprovalRequested, At, ToolFinished, ToolStarted
from untildone.domain.messages import ToolCall
from untildone.domain.tools import ToolOutput, output_text
from untildone.engine.context import Run
from untildone.engine.hooks import call_hook
from untildone.policy.cutting import cut_text, encodable
from untildone.policy.state import AgentRun
from untildone.ports import Tool

_log = logging.getLogger("untildone")

_CANCELLED = "The run was cancelled before this call was finished."
_INTERRUPTED = (
    "The run was interrupted while this call was running. It is not known whether it took effect;"
    " check before you repeat it."
)
_CUT_OFF = (
    "The reply was cut off by the token limit before the arguments were complete, so the tool was"
    " not run. Make the call again with shorter arguments."
)
_FILTERED = (
    "The provider's content filter stopped the reply before the arguments were complete, so the"
    " tool was not run."
)
_CUT_SHORT = {"length": _CUT_OFF, "content_filter": _FILTERED}
_DENIED = "This call was denied by the user. Do not repeat it; go on without it."
_LONGEST_NAME = 80


async def answer_calls(run: Run, agent_run: AgentRun, at: At) -> None:
    """Answers the open calls of a batch; one alone is awaited here, since a group costs 30 µs."""
    is_open = [index for index in range(len(agent_run.calls)) if _is_open(agent_run, index)]
    try:
        if len(is_open) == 1:
            await _answer(run, agent_run, at, is_open[0])
        else:
            await together(_answer(run, agent_run, at, index) for index in is_open)
    except BaseException:
        answer_the_rest(run, agent_run, at)
        raise


def answer_the_rest(run: Run, agent_run: AgentRun, at: At) -> None:
    """Answers the calls that an agent run which ends in the middle leaves open."""
    answers = agent_run.answers
    for index, call in enumerate(agent_run.calls):
        if answers[index] is None:
            run.record.note(ToolFinished(at, index, call.id, call.name, _CANCELLED, is_error=True))


def _is_open(agent_run: AgentRun, index: int) -> bool:
    """Whether a call has no answer and waits for nobody."""
    return agent_run.answers[index] is None and agent_run.approvals.get(index, True) is not None


async def _answer(run: Run, agent_run: AgentRun, at: At, index: int) -> None:
    """One call, from its arguments to its answer."""
    call = agent_run.calls[index]
    tool = run.tools.get(call.name)
    if tool is None:
        await _finish(run, at, index, call, _unknown_tool(run, call), is_error=True)
        return
    if index in agent_run.begun and not tool.spec.traits.idempotent:
        await _finish(run, at, index, call, _INTERRUPTED, is_error=True)
        return
    try:
        arguments = _parse(tool, call, agent_run.finish_reason)
    except ToolError as error:
        await _finish(run, at, index, call, _told(str(error)), is_error=True)
        return
    if run.agent.hooks is not None:
        decision = await _approval(run, agent_run, index, call, arguments)
        if decision is None:
            await run.record(ApprovalRequested(at, index, call.id, call.name, call.arguments))
            return
        approved, reason = decision
        if not approved:
            told = _told(reason or _DENIED)
            await _finish(run, at, index, call, told, is_error=True, denied=True)
            return
    await run.record(ToolStarted(at, index, call.id, call.name))
    await call_hook(run, "on_tool_start", call.name, arguments)
    given = len(run.state.base)
    site = CALL_SITE.set(
        CallSite(
            at.run,
            agent_run.conversation,
            given,
            agent_run.calls,
            index,
            run.closers,
            start=agent_run.start,
            attempts=run.state.attempts,
        )
    )
    try:
        output, is_error = await _run(run, tool, arguments)
    finally:
        CALL_SITE.reset(site)
    if is_being_cancelled():
        # The tool kept the cancellation to itself; its answer is noted, but the run ends here.
        run.record.note(_finished(at, index, call, output, is_error=is_error))
        raise asyncio.CancelledError
    await _finish(run, at, index, call, output, is_error=is_error)
    await call_hook(run, "on_tool_end", call.name, output_text(output))


def _parse(tool: Tool, call: ToolCall, finish_reason: str | None) -> dict[str, Any]:
    """The arguments; a reply that was cut off may not run a tool with what is left of them."""
    cut_short = _CUT_SHORT.get(finish_reason or "")
    if cut_short is not None and not call.arguments.strip():
        raise ToolError(cut_short)
    try:
        return tool.parse(call.arguments)
    except ToolError as error:
        if cut_short is not None:
            raise ToolError(cut_short) from error
        raise
    except Exception as error:
        _log.warning("tool %r could not read its arguments", call.name, exc_info=True)
        msg = f"The arguments could not be read: {error}"
        raise ToolError(msg) from error


async def _approval(
    run: Run, agent_run: AgentRun, index: int, call: ToolCall, arguments: dict[str, Any]
) -> tuple[bool, str | None] | None:
    """Whether a call may run, and why not; None where a person has to decide."""
    decided = agent_run.approvals.get(index)
    if decided is not None:
        return decided
    hooks = run.agent.hooks
    if hooks is None or hooks.approve_tool is None:
        return True, None
    try:
        answer = hooks.approve_tool(call.name, arguments)
        if inspect.isawaitable(answer):
            answer = await answer
    except (Exception, asyncio.CancelledError):
        stop_if_cancelled()
        _log.warning("approve_tool raised for %r: the call is denied", call.name, exc_info=True)
        return False, None
    stop_if_cancelled()
    if answer is None:
        return None
    if isinstance(answer, str):
        return False, answer or None
    return answer is True, None


async def _run(run: Run, tool: Tool, arguments: dict[str, Any]) -> tuple[str | ToolOutput, bool]:
    """What the model gets, and whether it reports a failure. Errors are cut like results."""
    try:
        return await tool.run(arguments, run.offload), False
    except LoopConvergedError as error:
        # It belongs to the run that raised it; here it is that run's success.
        return _told(error.answer), False
    except ToolError as error:
        return _told(f"Error: {error}"), True
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        return _told(f"Error: the tool was cancelled ({error!r})"), True
    except (Exception, SystemExit) as error:
        # SystemExit is how command line parsers say that arguments are wrong.
        _log.info("tool %r raised", tool.spec.name, exc_info=True)
        return _told(f"Error: {describe(error)}"), True


async def _finish(
    run: Run,
    at: At,
    index: int,
    call: ToolCall,
    output: str | ToolOutput,
    *,
    is_error: bool,
    denied: bool = False,
) -> None:
    await run.record(_finished(at, index, call, output, is_error=is_error, denied=denied))


def _finished(
    at: At,
    index: int,
    call: ToolCall,
    output: str | ToolOutput,
    *,
    is_error: bool,
    denied: bool = False,
) -> ToolFinished:
    if isinstance(output, str):
        return ToolFinished(at, index, call.id, call.name, output, is_error, denied)
    return ToolFinished(
        at, index, call.id, call.name, output.text, is_error, denied, output.attachments
    )


def _unknown_tool(run: Run, call: ToolCall) -> str:
    known = ", ".join(sorted(run.tools)) or "none"
    name = call.name if len(call.name) <= _LONGEST_NAME else f"{call.name[:_LONGEST_NAME]}…"
    return _told(f"Error: there is no tool {name!r}. Tools you can call: {known}.")


def _told(text: str) -> str:
    """A text that is not a tool's result, fit to be sent like one."""
    return cut_text(encodable(text))
