"""What a function takes: as a JSON Schema for the model, and as a validator for what it sends.

All parameters together are one TypedDict for pydantic, not a model: its keys may be any names
(``self``, ``json``, ``model_config``, ``_x``), its values come out as the keyword arguments they
are, and what was left out stays out, so that the function's own defaults apply.

pydantic is loaded by the first function that is read, never by importing this module.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from untildone.domain.errors import ConfigError
from untildone.tools.arguments import Arguments
from untildone.tools.docstring import Docstring, read_docstring

_EMPTY: Final = Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSchema:
    """What is known of a function once it was read.

    Attributes:
        description: From its docstring.
        json_schema: Of its arguments, an object.
        arguments: Reads what a model sends.
        bind: Turns the arguments, by name, into positional and keyword ones; None where all can be
            given by keyword.
    """

    description: str
    json_schema: dict[str, Any]
    arguments: Arguments
    bind: Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]] | None


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
    known, key = _place(function)
    try:
        found = known.get(key)
    except TypeError:  # no weak references to it: read it again each time
        return _read_function(function, label)
    if found is None:
        found = known[key] = _read_function(function, label)
    return found


def _place(function: Callable[..., Any]) -> tuple[WeakKeyDictionary[Any, FunctionSchema], Any]:
    """Where a function is kept. Methods and callable objects share what their class says."""
    if isinstance(function, types.MethodType):
        return _read_bound, function.__func__
    if isinstance(function, types.FunctionType | types.BuiltinFunctionType | partial):
        return _read, function
    return _read_bound, type(function).__call__


def _read_function(function: Callable[..., Any], label: str) -> FunctionSchema:
    parameters = _parameters(function, label)
    namespace = _namespace(function)
    hints = {name: _hint(parameter, namespace, label) for name, parameter in parameters.items()}
    docstring = read_docstring(_docstring(function))
    validator, schema = _compile(hints, parameters, label)
    _complete(schema, parameters, docstring)
    var_keyword = _first_of(parameters, Parameter.VAR_KEYWORD)
    return FunctionSchema(
        description=docstring.description,
        json_schema=schema,
        arguments=Arguments(
            validator,
            schema,
            always_check=any(_has_field_default(hint) for hint in hints.values()),
            var_keyword=var_keyword,
        ),
        bind=None if _all_by_keyword(parameters) else partial(_bind, parameters),
    )


# ── Reading the signature ────────────────────────────────────────────────────────────────────────


def _parameters(function: Callable[..., Any], label: str) -> dict[str, Parameter]:
    try:
        signature = inspect.signature(function)
    except NameError as error:  # Python 3.14 evaluates annotations here
        raise ConfigError(_undefined(label, error.name or str(error))) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tool {label}: its parameters cannot be read ({error});"
            " wrap it in a function with type hints"
        ) from error
    parameters = dict(signature.parameters)
    if isinstance(function, partial):
        for name in function.keywords:  # fixed by the caller: not the model's to choose or to see
            parameters.pop(name, None)
    if inspect.isfunction(function):
        _refuse_unbound(function, parameters, label)
    return parameters


def _refuse_unbound(
    function: types.FunctionType, parameters: Mapping[str, Parameter], label: str
) -> None:
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    first = next(iter(parameters), "")
    if first in ("self", "cls") and owner not in ("", "<locals>"):
        raise ConfigError(
            f"tool {label} is the plain function of a method; give the bound method of an object:"
            f" {owner}(...).{function.__name__}"
        )


def _docstring(function: Callable[..., Any]) -> str | None:
    if isinstance(function, partial):
        return _docstring(cast("partial[Any]", function).func)
    if isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return inspect.getdoc(function)
    return inspect.getdoc(type(function).__call__) or inspect.getdoc(type(function))


def _namespace(function: Any) -> dict[str, Any]:
    """The globals that annotations were written in."""
    while True:
        if isinstance(function, partial):
            function = cast("partial[Any]", function).func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__globals__"):
            return function.__globals__
        elif isinstance(function, types.BuiltinFunctionType):
            return {}
        else:
            call: Any = type(function).__call__
            if not hasattr(call, "__globals__") and not hasattr(call, "__wrapped__"):
                return {}
            function = call


def _hint(parameter: Parameter, namespace: dict[str, Any], label: str) -> Any:
    """The type of a parameter as pydantic is told it."""
    hint = _resolved(parameter, namespace, label)
    default = parameter.default
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return list[hint]
    if parameter.kind is Parameter.VAR_KEYWORD:
        return dict[str, hint]
    if _is_field_info(default):
        return typing.Annotated[hint, default]
    if typing.get_origin(hint) in (collections.abc.Iterable, collections.abc.Iterator):
        return list[typing.get_args(hint)[0]]  # pydantic would check the items when they are used
    if default is None and not _accepts_none(hint):
        return typing.Optional[hint]  # noqa: UP045  a string in it would not take `|`
    return hint


def _resolved(parameter: Parameter, namespace: dict[str, Any], label: str) -> Any:
    annotation = parameter.annotation
    if annotation is _EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={"hint": annotation})
    try:
        return typing.get_type_hints(holder, namespace, namespace, include_extras=True)["hint"]
    except NameError as error:
        name = error.name or str(annotation)
        raise ConfigError(_undefined(label, name, parameter.name)) from error
    except Exception as error:
        raise ConfigError(
            f"tool {label}: the type of parameter {parameter.name!r}, {annotation!r:.80}, cannot"
            f" be read ({type(error).__name__}: {error!s:.80}); write it as a type"
        ) from error


def _undefined(label: str, name: str, parameter: str | None = None) -> str:
    where = f" in the type of parameter {parameter!r}" if parameter else ""
    return (
        f"tool {label}: the name {name!r}{where} is not defined at run time; define or import it"
        " at the top of the module, outside of functions and of `if TYPE_CHECKING:`"
    )


def _accepts_none(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        return _accepts_none(typing.get_args(hint)[0])
    if hasattr(hint, "__value__"):  # type X = ...
        return _accepts_none(hint.__value__)
    if hint in (Any, object, None, types.NoneType) or isinstance(hint, TypeVar):
        return True
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_accepts_none, arguments))
    return typing.get_origin(hint) is typing.Literal and None in arguments


def _is_field_info(value: object) -> bool:
    """Whether it is what pydantic's ``Field(...)`` returns; asked without loading pydantic."""
    return type(value).__module__.startswith("pydantic.") and type(value).__name__ == "FieldInfo"


def _has_field_default(hint: Any) -> bool:
    """Whether pydantic itself would fill the argument in: ``Field(default=...)``."""
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
    fields = {name: (hint, _is_required(parameters[name], hint)) for name, hint in hints.items()}
    try:
        return _validator_and_schema(fields)
    except Exception as error:
        raise _unfit(fields, label, error) from error


def _validator_and_schema(fields: Mapping[str, tuple[Any, bool]]) -> tuple[Any, dict[str, Any]]:
    from pydantic import ConfigDict, TypeAdapter
    from typing_extensions import NotRequired, Required, TypedDict

    typed: Any = TypedDict(
        "Arguments",
        {
            name: Required[hint] if required else NotRequired[hint]
            for name, (hint, required) in fields.items()
        },
    )
    typed.__pydantic_config__ = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=False
    )
    adapter: TypeAdapter[Any] = TypeAdapter(typed)
    return adapter.validator, _untitled(adapter.json_schema())


def _unfit(fields: Mapping[str, tuple[Any, bool]], label: str, error: Exception) -> ConfigError:
    """Names the parameter that pydantic could not take, by giving it each alone."""
    for name, field in fields.items():
        try:
            _validator_and_schema({name: field})
        except Exception as reason:  # noqa: BLE001  whatever it is, it is about this type
            return ConfigError(
                f"tool {label}: parameter {name!r} has the type {_type_name(field[0])}, which a"
                f" model cannot send as JSON ({_first_line(reason)}); use plain types, dataclasses"
                " or pydantic models, or bind the argument with functools.partial"
            )
    return ConfigError(f"tool {label}: no schema could be made of it ({_first_line(error)})")


def _type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else f"{hint!r:.80}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160].rstrip(" .")


_BY_NAME: Final = ("properties", "$defs", "patternProperties", "dependentSchemas")
_AS_IT_IS: Final = ("default", "const", "enum", "examples", "required", "mapping")


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
        elif key in _AS_IT_IS:
            kept[key] = part
        elif key != "title":
            kept[key] = _untitled(part)
    return kept


def _complete(
    schema: dict[str, Any], parameters: Mapping[str, Parameter], docstring: Docstring
) -> None:
    """Adds what the docstring and the signature say and pydantic was not told."""
    properties = cast("dict[str, dict[str, Any]]", schema.setdefault("properties", {}))
    for name, parameter in parameters.items():
        known = properties.get(name)
        if known is None:  # it has an alias
            continue
        description = docstring.parameters.get(name)
        if description:
            known.setdefault("description", description)
        if parameter.default is not _EMPTY and not _is_field_info(parameter.default):
            _note_default(known, parameter.default)


def _note_default(known: dict[str, Any], default: object) -> None:
    """Adds a default that has a JSON form; the function knows it anyway."""
    import json

    from pydantic_core import to_jsonable_python

    try:
        value = to_jsonable_python(default)
        json.dumps(value, allow_nan=False)
    except Exception:  # noqa: BLE001  a sentinel, or a user's own code
        return
    known["default"] = value


# ── Calling ──────────────────────────────────────────────────────────────────────────────────────


def _first_of(parameters: Mapping[str, Parameter], kind: Any) -> str | None:
    return next((name for name, one in parameters.items() if one.kind is kind), None)


def _all_by_keyword(parameters: Mapping[str, Parameter]) -> bool:
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return all(parameter.kind in kinds for parameter in parameters.values())


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
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            if name in values:
                keyword[name] = values[name]
        else:
            positional.append(values[name] if name in values else parameter.default)
    return [*positional, *rest], keyword
