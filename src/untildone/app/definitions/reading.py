"""From a file, a text or plain data to a checked definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from untildone.app.definitions import checking
from untildone.app.definitions.checking import LARGEST, Checked, check_parsed, unusable
from untildone.app.definitions.json_text import parse_json
from untildone.app.definitions.problems import DefinitionError
from untildone.app.definitions.surroundings import Surroundings
from untildone.app.definitions.toml_text import parse_toml
from untildone.app.definitions.types import AgentDefinition
from untildone.app.definitions.yaml_text import parse_yaml
from untildone.domain.errors import ConfigError

Format = Literal["yaml", "json", "toml"]
"""How a definition is written down."""

FORMATS: Final[Mapping[str, Format]] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
}
"""The format by the end of a file's name."""


def load_definition(path: str | Path) -> AgentDefinition:
    """Reads a definition from a YAML, JSON or TOML file, by the end of its name.

    What it may reach is only known when an agent is built of it: ``build_agent(Path(...), ...)``
    tells the problems of the file and those in one pass.

    Args:
        path: The file; at most 1 MiB.

    Raises:
        DefinitionError: It cannot be read or used; the error has every problem at once.
        ConfigError: YAML is read and the package for it is missing.
    """
    return usable(check_file(Path(path), None), str(path))


def parse_definition(text: str, format: Format = "yaml") -> AgentDefinition:  # noqa: A002
    """Reads a definition from a text.

    Args:
        text: The text; at most 1 MiB.
        format: How it is written.

    Raises:
        DefinitionError: It cannot be used; the error has every problem at once.
        ConfigError: The format is unknown, or the package for YAML is missing.
    """
    return usable(check_text(text, format, None), None)


def usable(checked: Checked[AgentDefinition], source: str | None) -> AgentDefinition:
    """The definition that was found to be one.

    Raises:
        DefinitionError: None was.
    """
    if checked.value is None:
        raise DefinitionError(checked.problems, source)
    return checked.value


def check_file(path: Path, around: Surroundings | None) -> Checked[AgentDefinition]:
    """Looks at a file; with ``around``, also whether an agent could be built there."""
    written = FORMATS.get(path.suffix.lower())
    if written is None:
        known = ", ".join(FORMATS)
        return unusable(f"its name ends in {path.suffix!r}; a definition ends in {known}")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        return unusable(f"cannot be read: {error.strerror or error}")
    except ValueError as error:  # a name with a null byte
        return unusable(f"cannot be read: {error}")
    text = checking.check_bytes(content)
    return text if isinstance(text, Checked) else check_text(text, written, around)


def check_text(text: str, written: Format, around: Surroundings | None) -> Checked[AgentDefinition]:
    """Looks at a text; see ``check_file``.

    Raises:
        ConfigError: The format is unknown, or the package for YAML is missing.
    """
    parse = _PARSERS.get(written)
    if parse is None:
        raise ConfigError(f"format is {written!r}; use one of {', '.join(_PARSERS)}")
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"text must be a string, not a {type(text).__name__}")
    found = checking.check_text(text)
    if found is not None:
        return found
    parsed = parse(text.removeprefix("\ufeff"))
    return check_parsed(AgentDefinition, parsed, "camel", context=around)


def check_data(data: object, around: Surroundings | None) -> Checked[AgentDefinition]:
    """Looks at plain data, or at a definition; see ``check_file``."""
    if isinstance(data, str):
        return unusable("is a text; parse_definition(text) reads one, load_definition(path) a file")
    return checking.check_data(AgentDefinition, data, context=around)


_PARSERS: Final = {"yaml": parse_yaml, "json": parse_json, "toml": parse_toml}
