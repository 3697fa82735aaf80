"""From a definition to a text that reads back as the same definition."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from typing import Any, Final, cast

from untildone.app.definitions.problems import Path, path_text
from untildone.app.definitions.reading import Format, check_data, usable
from untildone.app.definitions.types import AgentDefinition
from untildone.app.definitions.yaml_text import plain_value, yaml_library
from untildone.domain.errors import ConfigError

# Lines as they are, where nothing at their ends or between them could be lost.
_BLOCK: Final = re.compile(r"(?:[^\s\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff](?:[^\n]*\S)?\n+)+")
_UNPRINTABLE: Final = re.compile(
    r"[^\n\x20-\x7e\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]"
)


def dump_definition(definition: AgentDefinition, format: Format = "yaml") -> str:  # noqa: A002
    """A definition as a text, without what has its default; reading it gives an equal one.

    Args:
        definition: The definition.
        format: How it is written; YAML needs the package pyyaml, TOML needs tomli-w.

    Raises:
        DefinitionError: It holds what no definition can, as after ``model_copy(update=...)``.
        ConfigError: The format is unknown, its package is missing, or it cannot say something.
    """
    if not isinstance(definition, AgentDefinition):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"dump_definition takes an AgentDefinition, not {definition!r:.80}")
    data = plain_data(usable(check_data(definition, None), None))
    match format:
        case "json":
            return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        case "yaml":
            return _yaml(data)
        case "toml":
            return _toml(data)
        case _:
            raise ConfigError(f"format is {format!r}; use one of yaml, json, toml")


def plain_data(definition: AgentDefinition) -> dict[str, Any]:
    """A definition as dicts and lists in S3's spelling, without what has its default."""
    return definition.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _yaml(data: dict[str, Any]) -> str:
    yaml = yaml_library()

    class Dumper(yaml.SafeDumper):
        """Quotes what would read back as something else than text."""

        def represent_text(self, text: str) -> Any:
            """A text, as lines where it has several, in quotes where it could be misread."""
            style = None
            if _UNPRINTABLE.search(text) or plain_value(text) != text:
                style = '"'
            elif "\n" in text:
                style = "|" if _BLOCK.fullmatch(text) else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    return yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=sys.maxsize)


def _toml(data: dict[str, Any]) -> str:
    _refuse_null(data, ())
    try:
        library = import_module("tomli_w")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "writing TOML needs the package tomli-w: pip install tomli-w (reading it needs none)"
        ) from error
    return library.dumps(data)


def _refuse_null(value: object, path: Path) -> None:
    match value:
        case None:
            text = f"{path_text(path)} is null, which TOML cannot say; use yaml or json"
            raise ConfigError(text)
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                _refuse_null(item, (*path, key))
        case list():
            for index, item in enumerate(cast("list[Any]", value)):
                _refuse_null(item, (*path, index))
        case _:
            return
