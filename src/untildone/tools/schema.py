"""What a function takes: as a JSON Schema for the model, and as a validator for what it sends.

All parameters together are one typed dict for pydantic, not a model: its keys may be any names
(``self``, ``json``, ``model_config``, ``_x``), its values come out as the keyword arguments they
are, and what was left out stays out, so that the function's own defaults apply.

pydantic is loaded by the first function that is read, never by importing this module.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter
from typing import Annotated, Any, Final, NotRequired, Required, TypeVar, cast
from weakref import WeakKeyDictionary

from untildone.domain.errors import ConfigError
from untildone.tools.arguments import Arguments
from untildone.tools.callables import unwrapped_partial
from untildone.tools.docstring import Docstring, read_docstring

_EMPTY: Final = Parameter.empty

Partial = functools.partial[Any]
Binder = Callable[[Mapping[str, Any]], tuple[list[Any], dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSchema:
    """What is known of a function once it was read.

    Attributes:
        description: From its docstring.
        json_schema: Of its arguments, an object.
        arguments: Reads what a model sends.
        bind: Turns arguments by name into positional and keyword ones; None where all of them can
            be given by keyword.
    """

    description: str
    json_schema: dict[str, Any]
    arguments: Arguments
    bind: Binder | None


_read: WeakKeyDictionary[Any, FunctionSchema] = WeakKeyDictionary()
_read_bound: WeakKeyDictionary[Any, FunctionSchema] = WeakKeyDictionary()


def function_schema(function: Callable[..., Any], label: str) -> FunctionSchema:
    """Reads a function, once: the same one gives the same schema for as long as it lives.

    Args:
        function: Any callable; for a bound method its instance is left out.
        label: How errors name it.

    Raises:
        ConfigError: A parameter's type is unknown at run time or has no JSON form.
    """
    kept, key = _place(function)
    if type(key).__hash__ is not object.__hash__ or not type(key).__weakrefoffset__:
        return _read_function(function, label)
    found = kept.get(key)
    if found is None:
        found = kept[key] = _read_function(function, label)
    return found


def _place(function: Any) -> tuple[WeakKeyDictionary[Any, FunctionSchema], Any]:
    """Where a function is kept; callable objects share what their class says of all of them."""
    if isinstance(function, types.MethodType):
        return _read_bound, function.__func__
    call: object = type(function).__call__
    speaks_for_itself = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    if isinstance(call, types.FunctionType) and not speaks_for_itself:
        return _read_bound, call
    return _read, function


def _read_function(function: Callable[..., Any], label: str) -> FunctionSchema:
    fixed = _fixed(function)
    parameters = _parameters(function, fixed, label)
    namespace = _namespace(function)
    hints = {name: _hint(one, namespace, label) for name, one in parameters.items()}
    docstring = read_docstring(_docstring(function))
    validator, schema = _compile(hints, parameters, label)
    _complete(schema, parameters, docstring)
    by_keyword = _all_by_keyword(parameters) and not _is_dispatching(function)
    var_keyword = [name for name, one in parameters.items() if one.kind is Parameter.VAR_KEYWORD]
    return FunctionSchema(
        description=docstring.description,
        json_schema=schema,
        arguments=Arguments(
            validator,
            schema,
            fills_in=any(map(_has_field_default, hints.values())),
            var_keyword=var_keyword[0] if var_keyword else None,
            fixed=fixed,
        ),
        bind=None if by_keyword else functools.partial(_bind, parameters),
    )


# ── Reading the signature ────────────────────────────────────────────────────────────────────────


def _fixed(function: Any) -> frozenset[str]:
    """What a partial was given by name: not the model's to choose, nor to see."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names.update(cast("Partial", function).keywords)
        function = cast("Partial", function).func
    return frozenset(names)


def _parameters(
    function: Callable[..., Any], fixed: frozenset[str], label: str
) -> dict[str, Parameter]:
    try:
        signature = inspect.signature(function)
    except NameError as error:  # Python 3.14 evaluates annotations here
        raise ConfigError(_undefined(label, error.name or str(error))) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tool {label}: its parameters cannot be read ({error});"
            " wrap it in a function with type hints"
        ) from error
    parameters = {name: one for name, one in signature.parameters.items() if name not in fixed}
    if isinstance(function, types.FunctionType):
        _refuse_unbound(function, parameters, label)
    return parameters


def _refuse_unbound(
    function: types.FunctionType, parameters: Mapping[str, Parameter], label: str
) -> None:
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if next(iter(parameters), "") in ("self", "cls") and owner not in ("", "<locals>"):
        raise ConfigError(
            f"tool {label} is a method without its object;"
            f" give the one of an object: {owner}(...).{function.__name__}"
        )


def _docstring(function: Any) -> str | None:
    function = unwrapped_partial(function)
    if hasattr(function, "__qualname__"):
        return inspect.getdoc(function)
    kind: type[Any] = function.__class__
    return inspect.getdoc(cast("Any", kind).__call__) or inspect.getdoc(kind)


def _namespace(function: Any) -> dict[str, Any]:
    """The globals that annotations were written in."""
    function = unwrapped_partial(function)
    if not hasattr(function, "__qualname__") and not hasattr(function, "__wrapped__"):
        function = type(function).__call__
    function = inspect.unwrap(getattr(function, "__func__", function))
    return getattr(unwrapped_partial(function), "__globals__", {})


def _hint(parameter: Parameter, namespace: dict[str, Any], label: str) -> Any:
    """The type of a parameter as pydantic is told it."""
    hint = _resolved(parameter, namespace, label)
    try:
        return _adapted(_with_members(_listed(hint)), parameter)
    except TypeError as error:  # a form that stands in no other, such as ClassVar
        raise ConfigError(_unreadable(label, parameter, error)) from error


def _adapted(hint: Any, parameter: Parameter) -> Any:
    default = parameter.default
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return list[hint]
    if parameter.kind is Parameter.VAR_KEYWORD:
        return dict[str, hint]
    if _is_field_info(default):
        return Annotated[hint, default]
    if default is None and not _accepts_none(hint):
        hint = typing.Optional[hint]  # noqa: UP045  not every hint takes `|`
    if default is not _EMPTY and _has_field_default(hint):
        return _with_field_default(hint, default)
    return hint


def _with_field_default(hint: Any, default: Any) -> Any:
    from pydantic import Field

    return Annotated[hint, Field(default=default)]


def _resolved(parameter: Parameter, namespace: dict[str, Any], label: str) -> Any:
    if parameter.annotation is _EMPTY:
        return Any

    def holder() -> None: ...

    holder.__annotations__ = {"hint": parameter.annotation}
    try:
        return typing.get_type_hints(holder, namespace, namespace, include_extras=True)["hint"]
    except NameError as error:
        name = error.name or str(parameter.annotation)
        raise ConfigError(_undefined(label, name, parameter.name)) from error
    except Exception as error:
        raise ConfigError(_unreadable(label, parameter, error)) from error


def _unreadable(label: str, parameter: Parameter, error: Exception) -> str:
    return (
        f"tool {label}: the type of parameter {parameter.name!r}, {parameter.annotation!r:.80},"
        f" cannot be read ({_first_line(error)}); write it as a type"
    )


def _undefined(label: str, name: str, parameter: str | None = None) -> str:
    where = f" in the type of parameter {parameter!r}" if parameter else ""
    return (
        f"tool {label}: the name {name!r}{where} is not defined at run time; define or import it"
        " at the top of the module, outside of functions and of `if TYPE_CHECKING:`"
    )


def _listed(hint: Any) -> Any:
    """The hint with lists for iterables, whose items pydantic would check while they are used."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _ITERABLES or origin in _ITERABLES:
        return list[arguments[0] if arguments else Any]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_listed, arguments))]  # noqa: UP007  made at run time
    return hint


_ITERABLES: Final = (collections.abc.Iterable, collections.abc.Iterator)


def _with_members(hint: Any) -> Any:
    """The hint, with enum members in a ``Literal`` taken by their values as whole enums are.

    The schema shows such a value, and pydantic reads it back only of enums that are texts or
    numbers themselves.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return _by_value(hint, arguments)
    inner = tuple(map(_with_members, arguments))
    if all(map(operator.is_, inner, arguments)):
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[inner]  # noqa: UP007  made at run time
    return Annotated[inner] if origin is Annotated else origin[inner]


def _by_value(hint: Any, choices: Sequence[Any]) -> Any:
    members = [one for one in choices if isinstance(one, Enum)]
    if not members or not all(type(one.value) in (str, int, bool) for one in members):
        return hint
    from pydantic import AfterValidator

    chosen: dict[tuple[type[Any], Any], Any] = {}
    for one in choices:
        value: Any = one.value if isinstance(one, Enum) else one
        chosen.setdefault((cast("type[Any]", type(value)), value), one)
    values = tuple(value for _, value in chosen)
    return Annotated[
        typing.Literal[values], AfterValidator(lambda value: chosen[type(value), value])
    ]


def _accepts_none(hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _accepts_none(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(map(_accepts_none, arguments))
    if origin is typing.Literal:
        return None in arguments
    if hasattr(hint, "__value__"):  # of `type Name = ...`
        return _accepts_none(hint.__value__)
    return hint in (Any, object, None, types.NoneType) or isinstance(hint, TypeVar)


def _is_field_info(value: object) -> bool:
    """Whether it is what pydantic's ``Field(...)`` gives; asked without loading pydantic."""
    kind = type(value)
    return kind.__name__ == "FieldInfo" and kind.__module__.partition(".")[0] == "pydantic"


def _has_field_default(hint: Any) -> bool:
    """Whether pydantic itself adds the argument where it is left out."""
    metadata = getattr(hint, "__metadata__", ())
    return any(_is_field_info(item) and not item.is_required() for item in metadata)


def _is_required(parameter: Parameter, hint: Any) -> bool:
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        return False
    if parameter.default is _EMPTY or _is_field_info(parameter.default):
        return not _has_field_default(hint)
    return False


# ── Making schema and validator ──────────────────────────────────────────────────────────────────


def _compile(
    hints: Mapping[str, Any], parameters: Mapping[str, Parameter], label: str
) -> tuple[Any, dict[str, Any]]:
    required = {name for name, hint in hints.items() if _is_required(parameters[name], hint)}
    try:
        return _validator_and_schema(hints, required)
    except Exception as error:
        raise _unfit(hints, label, error) from error


def _validator_and_schema(
    hints: Mapping[str, Any], required: AbstractSet[str]
) -> tuple[Any, dict[str, Any]]:
    import typing_extensions  # pydantic takes only this TypedDict before Python 3.12
    from pydantic import ConfigDict, TypeAdapter

    fields = {
        name: Required[hint] if name in required else NotRequired[hint]
        for name, hint in hints.items()
    }
    typed: Any = cast("Any", typing_extensions).TypedDict("Arguments", fields)
    typed.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    adapter = TypeAdapter[Any](typed)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    return adapter.validator, _untitled(adapter.json_schema())


def _unfit(hints: Mapping[str, Any], label: str, error: Exception) -> ConfigError:
    """Names the parameter that pydantic could not take, by giving it each alone."""
    for name, hint in hints.items():
        try:
            _validator_and_schema({name: hint}, set())
        except Exception as reason:
            return ConfigError(
                f"tool {label}: parameter {name!r} has the type {_type_name(hint)}, which cannot"
                f" be made from JSON ({_first_line(reason)}); use plain types, dataclasses or"
                " pydantic models, or fix the argument with functools.partial"
            )
    return ConfigError(f"tool {label}: no schema can be made of it ({_first_line(error)})")


def _type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else f"{hint!r:.80}"


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].partition(". Set `arbitrary_types_allowed")[0][:160].rstrip(" .")


_BY_NAME: Final = ("properties", "$defs", "patternProperties", "dependentSchemas")
_VERBATIM: Final = ("default", "const", "enum", "examples", "required", "mapping")


def _untitled(schema: Any) -> Any:
    """The schema without titles, which say nothing that names do not say."""
    if isinstance(schema, list):
        return [_untitled(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, part in cast("dict[str, Any]", schema).items():
        if key in _BY_NAME:
            kept[key] = {name: _untitled(inner) for name, inner in part.items()}
        elif key in _VERBATIM:
            kept[key] = part
        elif key != "title":
            kept[key] = _untitled(part)
    return kept


_FIRST: Final = ("type", "properties", "required", "additionalProperties")


def _complete(
    schema: dict[str, Any], parameters: Mapping[str, Parameter], docstring: Docstring
) -> None:
    """Adds what pydantic was not told: descriptions of the docstring, defaults of the signature."""
    made = {**schema}
    made.setdefault("properties", {})
    schema.clear()
    schema.update({key: made.pop(key) for key in _FIRST if key in made} | made)
    for name, parameter in parameters.items():
        known = schema["properties"].get(name)
        if known is None:  # it has an alias
            continue
        if description := docstring.parameters.get(name):
            known.setdefault("description", description)
        if parameter.default is not _EMPTY and not _is_field_info(parameter.default):
            _note_default(known, parameter.default)


def _note_default(known: dict[str, Any], default: Any) -> None:
    """Adds a default that has a form in JSON; the function knows all others itself."""
    from pydantic_core import to_jsonable_python

    try:
        if isinstance(default, set | frozenset):
            default = sorted(cast("set[Any]", default))  # the same text in every process
        value = to_jsonable_python(default)
        json.dumps(value, allow_nan=False)
    except Exception:  # a sentinel, or a user's own code
        return
    known["default"] = value


# ── Calling ──────────────────────────────────────────────────────────────────────────────────────


def _all_by_keyword(parameters: Mapping[str, Parameter]) -> bool:
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return all(parameter.kind in kinds for parameter in parameters.values())


def _is_dispatching(function: Any) -> bool:
    """Whether it is of ``functools.singledispatch``, which looks at positional arguments only."""
    function = unwrapped_partial(function)
    return hasattr(function, "dispatch") and hasattr(function, "registry")


def _bind(
    parameters: Mapping[str, Parameter], values: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by name as what a signature with ``/``, ``*args`` or ``**kwargs`` wants."""
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    rest: Sequence[Any] = ()
    for name, parameter in parameters.items():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            rest = values.get(name, ())
        elif parameter.kind is Parameter.VAR_KEYWORD:
            keyword.update(values.get(name, {}))
        elif parameter.kind is not Parameter.KEYWORD_ONLY:
            positional.append(values.get(name, parameter.default))
        elif name in values:
            keyword[name] = values[name]
    return [*positional, *rest], keyword
