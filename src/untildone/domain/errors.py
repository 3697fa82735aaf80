"""The exception tree.

    UntildoneError
    ├── ConfigError (also ValueError)      the caller must change something before anything runs
    │   └── ResumeError                    a log that does not fit the agent it is resumed with
    ├── RunError                           a run ended by raising; carries ``.result``
    │   ├── MaxTurnsError                  the cap, with ``on_max_turns="raise"``
    │   ├── LoopConvergedError             ``stop_condition``: a success that unwinds the stack
    │   ├── LoopUnsatisfiedError           nothing accepted the work, with ``FAIL_RUN``
    │   └── CriterionFailedError           a resumed run's failed criterion, whose exception is gone
    ├── ModelError                         the outside world: the model's provider
    │   ├── AuthenticationError            401, 403: never retried
    │   ├── BadRequestError                other 4xx: never retried
    │   ├── RateLimitError                 429
    │   ├── ServerError                    5xx
    │   ├── ConnectionFailedError          no connection, or it broke
    │   ├── ModelTimeoutError (also TimeoutError)
    │   └── BadReplyError                  the reply cannot be read, or was cut
    ├── GradingError                       a grader gave no usable score or verdict
    ├── OutputParseError                   ``response_model`` did not fit, after one repair
    ├── ToolError                          raise it in a tool to tell the model what went wrong
    ├── SkillError
    ├── MCPError
    └── MemoryProviderError

Warnings: ``LoopConfigWarning`` for a setting that has no effect as configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from untildone.domain.results import AgentResult
    from untildone.domain.usage import Usage


class UntildoneError(Exception):
    """The base of every error that this library raises."""


class LoopConfigWarning(UserWarning):
    """A setting has no effect as configured; the text names what is missing."""


class ConfigError(UntildoneError, ValueError):
    """A value that cannot work, found when the object was built or before the run began."""


class ResumeError(ConfigError):
    """A log cannot be resumed as asked: another agent, or no beginning."""


class RunError(UntildoneError):
    """A run ended by raising.

    Attributes:
        result: The best result so far, or None where the run had none yet.
    """

    def __init__(self, message: str, result: AgentResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class MaxTurnsError(RunError):
    """The turn loop used its last turn and the agent has ``on_max_turns="raise"``."""


class LoopConvergedError(RunError):
    """``stop_condition`` was met; a success that unwinds the caller's stack (S1).

    A predicate may raise it itself: ``raise LoopConvergedError(result)``, or without a result for
    the current one.

    Attributes:
        run_id: The run that ended with it; None until one has.
    """

    def __init__(
        self, result: AgentResult | None = None, message: str = "the stop condition was met"
    ) -> None:
        super().__init__(message, result)
        self.run_id: str | None = None

    @property
    def answer(self) -> str:
        """What the run that ended with it gave: where it leaves a tool, the call's result."""
        given: object = self.result
        if given is None:
            return str(self)
        text = getattr(given, "text", given)  # a plain text in its place is what was meant
        return text if isinstance(text, str) else str(given)


class LoopUnsatisfiedError(RunError):
    """No iteration was accepted and ``on_exhausted`` is ``LoopOutcome.FAIL_RUN`` (S3)."""

    error_type: Final = "loop_unsatisfied"


class CriterionFailedError(RunError):
    """A criterion had raised under ``FAIL_RUN`` before the run was resumed.

    The exception object itself does not outlive its process; its type and text stand here.
    """


class ModelError(UntildoneError):
    """A model call failed.

    Attributes:
        status: HTTP status, or None where there was no response.
        request_id: The provider's id of the request, where it gave one.
        retry_after_s: How long the provider asked to wait, in seconds.
        usage: What the failed call cost: ``Usage()`` where it was refused before any token, None
            where nobody said (a cut stream, a time-out).
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.usage = usage


class AuthenticationError(ModelError):
    """The provider refused the key (401, 403)."""


class BadRequestError(ModelError):
    """The provider refused the request (4xx): sending it again cannot help."""


class RateLimitError(ModelError):
    """The provider asked to slow down (429)."""


class ServerError(ModelError):
    """The provider failed (5xx)."""


class ConnectionFailedError(ModelError):
    """No connection could be made, or it broke before the reply was whole."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The model did not answer in time."""


class BadReplyError(ModelError):
    """The reply is cut, is not what the protocol says, or has no finish reason."""


class GradingError(UntildoneError):
    """A grader or criterion gave no usable score or verdict."""


class OutputParseError(UntildoneError):
    """A reply does not fit ``response_model``, also after one repair.

    Attributes:
        raw_text: The reply as it came.
    """

    def __init__(self, message: str, raw_text: str = "") -> None:
        super().__init__(message)
        self.raw_text = raw_text


class ToolError(UntildoneError):
    """A tool failed; raised inside a tool, its text is what the model reads."""


class SkillError(UntildoneError):
    """A skill failed."""


class MCPError(UntildoneError):
    """An MCP server failed."""


class MemoryProviderError(UntildoneError):
    """A memory provider failed."""


_RESULT_ATTRIBUTE: Final = "__untildone_result__"
_MOST_CAUSES: Final = 10


def attach_partial_result(error: BaseException, result: AgentResult | None) -> None:
    """Notes the best result so far on an exception without changing its type or text."""
    if result is None:
        return
    error.__dict__[_RESULT_ATTRIBUTE] = result
    if isinstance(error, RunError) and error.result is None:
        error.result = result


def partial_result(error: BaseException) -> AgentResult | None:
    """The best result a run had when it raised ``error``, or None.

    Works for any exception that left one of the doors: this library's, anybody else's,
    ``CancelledError``, and what ``asyncio`` makes of that: ``TimeoutError`` and, on Ctrl-C,
    ``KeyboardInterrupt``. Where an error of a run inside another one leaves that one too, the outer
    run's result is given;
    ``.result`` of this library's errors stays the inner one's.
    """
    seen: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if seen is None:
            break
        noted = seen.__dict__.get(_RESULT_ATTRIBUTE)
        if noted is not None:
            return noted
        made_of_it = isinstance(seen, KeyboardInterrupt | TimeoutError)
        seen = seen.__cause__ or (seen.__context__ if made_of_it else None)
    return error.result if isinstance(error, RunError) else None


def describe(error: BaseException) -> str:
    """An exception as ``"Type: text"``, one line, also where its text cannot be made."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
