"""Agents as data: what can stand in a file, a form or an API call. S3's types.

Data only: nothing here runs, imports or opens anything, and every value that could is a name for
something that code has registered. Field names are snake_case in Python and S3's camelCase in
JSON, YAML and TOML; both are read. Values compare by content and never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails

from untildone.app.definitions.checking import Checked, check_data, check_fields, check_json
from untildone.app.definitions.frozen_json import FrozenMapping
from untildone.app.definitions.kinds import built_in
from untildone.app.definitions.problems import DefinitionError
from untildone.app.definitions.rules import (
    check_binding,
    check_field,
    check_parameters,
    check_servers,
    check_tools,
    kind_not_allowed,
    known_kind,
    not_too_many,
    only_names,
)
from untildone.app.definitions.values import (
    OURS,
    CommandLine,
    Count,
    JsonObject,
    Listed,
    Outcome,
    Text,
    Words,
    wrong,
)
from untildone.domain.grading import LoopOutcome

_ONE_OR_MORE: Final = "must have at least one criterion, such as a completionMarker"


class DefinitionData(BaseModel, frozen=True):
    """The base of all of them: frozen, strict, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        revalidate_instances="always",
        allow_inf_nan=False,
    )

    def __init__(self, /, **data: Any) -> None:
        """Checks every value.

        Raises:
            DefinitionError: Something is wrong; the error has all of it.
        """
        checked = check_fields(type(self), data, self)
        if checked.value is None:
            raise DefinitionError(checked.problems, type(self).__name__)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Makes one of plain data, or of one of its own kind.

        Args:
            obj: The data.
            **options: See pydantic.

        Raises:
            DefinitionError: Something is wrong; the error has all of it.
        """
        return cls._found(check_data(cls, obj, **options))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Makes one of a JSON text.

        Args:
            json_data: The text; at most 1 MiB.
            **options: See pydantic.

        Raises:
            DefinitionError: Something is wrong; the error has all of it, with lines.
        """
        return cls._found(check_json(cls, json_data, **options))

    @classmethod
    def model_validate_strings(cls, obj: Any, **options: Any) -> Self:
        """Makes one of data in which numbers and switches are texts, as in a form.

        Args:
            obj: The data.
            **options: See pydantic.

        Raises:
            DefinitionError: Something is wrong; the error has all of it.
        """
        return cls._found(check_data(cls, obj, as_strings=True, **options))

    @classmethod
    def _found(cls, checked: Checked[Self]) -> Self:
        if checked.value is None:
            raise DefinitionError(checked.problems, cls.__name__)
        return checked.value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What is set; ``str`` shows the same."""
        return (shown for shown in super().__repr_args__() if shown[1] is not None)

    # Pydantic builds nested values without calling this: their problems keep their paths.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]


class ModelBinding(DefinitionData, frozen=True):
    """Which model an agent talks to.

    Attributes:
        provider: A provider of the table, such as ``openai``; where it is served and the key come
            from the environment of the process, never from a definition.
        model: The model's name there.
        parameters: What is sent with each request. ``build_agent`` lets pass what only shapes a
            reply (temperature, max_tokens, stop, seed …) and refuses the rest.
    """

    provider: Words
    model: Words
    parameters: JsonObject = Field(default={}, validate_default=True)

    @field_validator("provider", "model")
    @classmethod
    def _is_allowed(cls, value: str, info: ValidationInfo) -> str:
        return check_binding(value, info)

    @field_validator("parameters")
    @classmethod
    def _are_allowed(cls, value: FrozenMapping, info: ValidationInfo) -> FrozenMapping:
        check_parameters(value, info)
        return value


class LoopCriterion(DefinitionData, frozen=True):
    """One stop criterion. Which of the other fields mean something depends on ``kind``.

    Attributes:
        kind: ``completionMarker``, ``aiJudge``, ``todoCompletion``, ``backgroundTaskCompletion``,
            ``minScore``, ``jsonSchema``, ``regex``, ``command``, ``allOf``, ``anyOf``, ``not``, or
            one that was registered in code; in upper or lower case.
        marker: completionMarker: the text that the answer must contain.
        judge_criteria: aiJudge: what must hold.
        judge_instructions: aiJudge: how to judge; the criteria are always added.
        judge_model: aiJudge, minScore: who judges; default: ``build_agent``'s ``judge_model``, else
            the agent's own.
        modes: todoCompletion: the modes in which open items keep the loop going; default: all.
        wait_seconds: backgroundTaskCompletion: most seconds to wait in one evaluation, up to a
            day.
        min_score: minScore: the score, in [0, 1], from which an answer passes.
        rubric: minScore: what to judge by.
        confirmations: minScore: how often a pass is graded again.
        json_schema: jsonSchema: the schema that the answer must fit.
        pattern: regex: a regular expression in Rust's syntax.
        feedback: regex, not: what the agent is told.
        command: command: what must exit with status 0.
        working_directory: command: where it runs.
        timeout_seconds: command: most seconds it may take.
        criteria: allOf, anyOf, not: what they are made of.
        options: A registered kind: its settings.
    """

    model_config = ConfigDict(validate_default=True)

    kind: Words
    marker: Words | None = None
    judge_criteria: Listed[Words] | None = None
    judge_instructions: Words | None = None
    judge_model: ModelBinding | None = None
    modes: Listed[Words] | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    min_score: Annotated[float, Field(ge=0, le=1)] | None = None
    rubric: Words | None = None
    confirmations: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    json_schema: JsonObject | None = None
    pattern: Words | None = None
    feedback: Words | None = None
    command: CommandLine | None = None
    working_directory: Words | None = None
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    criteria: Listed[LoopCriterion] | None = None
    options: JsonObject | None = None

    @field_validator("kind")
    @classmethod
    def _is_known(cls, value: str, info: ValidationInfo) -> str:
        return known_kind(value, info)

    @field_validator("*")
    @classmethod
    def _fits_the_kind(cls, value: Any, info: ValidationInfo) -> Any:
        check_field(value, info)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _is_allowed(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """A kind that is not allowed here does not hide what else is wrong with it."""
        own = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else _fields_of(data)
        kind: object = own.get("kind")
        refused = kind_not_allowed(built_in(kind) if isinstance(kind, str) else None, info)
        try:
            made = handler(data)
        except ValidationError as error:
            if refused is None:
                raise
            known = [_again(details) for details in error.errors(include_url=False)]
        else:
            if refused is None:
                return made
            known = []
        details = InitErrorDetails(type=wrong(refused), loc=("kind",), input=kind)
        raise ValidationError.from_exception_data("definition", [details, *known])


class LoopSettings(DefinitionData, frozen=True):
    """Turns the loop on: the agent is run again until its criteria say that the work is done (S3).

    ``HarnessSettings.maximum_iterations_per_request`` bounds another loop, the one inside of a
    single run of the agent; see ``docs/definitions.md``.

    Attributes:
        criteria: Stop criteria in order, at least one, all of which must be satisfied; the first
            that asks for another iteration wins.
        max_iterations: The ceiling, 1 or more; None means ``DEFAULT_MAX_ITERATIONS``.
        fresh_context_per_iteration: Begin each iteration with the request and the feedback only.
        on_exhausted: What becomes of a run whose ceiling is reached unsatisfied.
        on_criterion_error: What becomes of a run whose criterion raised.
    """

    DEFAULT_MAX_ITERATIONS: ClassVar[int] = 10
    """The ceiling where ``max_iterations`` is None: there is always one."""

    criteria: Annotated[Listed[LoopCriterion], BeforeValidator(not_too_many)]
    max_iterations: Count | None = None
    fresh_context_per_iteration: bool = False
    on_exhausted: Outcome = LoopOutcome.RETURN_LAST_RESPONSE
    on_criterion_error: Outcome = LoopOutcome.RETURN_LAST_RESPONSE

    @field_validator("criteria")
    @classmethod
    def _are_some(cls, value: Sequence[LoopCriterion]) -> Sequence[LoopCriterion]:
        if not value:
            raise wrong(f"is empty; {_ONE_OR_MORE}")
        return value


class HarnessSettings(DefinitionData, frozen=True):
    """How an agent is driven.

    Attributes:
        loop: The loop around the agent; None, the default: it is off, and nothing turns it on.
        maximum_iterations_per_request: Most turns (model calls with the tools they ask for) inside
            one run of the agent, 1 or more; None means 10. It guards against running away and
            says nothing about the work being done.
    """

    loop: LoopSettings | None = None
    maximum_iterations_per_request: Count | None = None


def _harness(value: object) -> object:
    return HarnessSettings() if value is None else value


class AgentDefinition(DefinitionData, frozen=True):
    """A whole agent as data; ``build_agent`` makes an ``Agent`` of it.

    Attributes:
        name: How events, logs and results name it.
        model: The model.
        instructions: What the agent is told before the caller's messages.
        tools: Names of tools that ``build_agent`` is given.
        mcp_servers: Names of MCP servers that ``build_agent`` is given.
        harness: The loop around it, and the bound of one run.
    """

    name: Words
    model: ModelBinding
    instructions: Text = ""
    tools: Listed[Words] = ()
    mcp_servers: Annotated[Listed[Words], BeforeValidator(only_names)] = ()
    harness: Annotated[HarnessSettings, BeforeValidator(_harness)] = HarnessSettings()

    @field_validator("tools")
    @classmethod
    def _are_registered(cls, value: Sequence[str], info: ValidationInfo) -> Sequence[str]:
        check_tools(value, info)
        return value

    @field_validator("mcp_servers")
    @classmethod
    def _are_given(cls, value: Sequence[str], info: ValidationInfo) -> Sequence[str]:
        check_servers(value, info)
        return value


def _fields_of(data: object) -> Mapping[str, Any]:
    return dict(data) if isinstance(data, LoopCriterion) else {}


def _again(details: Any) -> InitErrorDetails:
    """An error that was taken out of its exception, to be put into another one."""
    kind = wrong(details["msg"]) if details["type"] == OURS else details["type"]
    return InitErrorDetails(
        type=kind, loc=details["loc"], input=details["input"], ctx=details.get("ctx", {})
    )
