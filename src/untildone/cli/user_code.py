"""Python files of the user: an agent by name, the tools of a file.

Loading one runs it, as ``python FILE.py`` would, with its directory on the path.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from untildone.agent import Agent
from untildone.assembly import collect
from untildone.domain.errors import ConfigError, describe
from untildone.tools.decorator import OPTIONS_MARK


def load_agent(where: str) -> Agent:
    """The agent that ``FILE.py:NAME`` names; NAME is an ``Agent`` or a function that makes one.

    Raises:
        ConfigError: There is no such file or name, or the file fails.
    """
    file, colon, name = where.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise ConfigError(f"--agent {where!r}: write FILE.py:NAME, such as agents.py:researcher")
    module = _loaded(Path(file), f"--agent {file}")
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, type):
        found = _made(found, where)
    if isinstance(found, Agent):
        return found
    agents = [key for key, value in vars(module).items() if isinstance(value, Agent)]
    known = f"it has {', '.join(agents)}" if agents else "it has none"
    problem = "there is no such name" if found is None else f"that is {_a(type(found).__name__)}"
    raise ConfigError(f"--agent {where!r}: {problem}; name an Agent of {file} ({known})")


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def load_tools(file: str) -> list[Any]:
    """The tools of a file: its list ``TOOLS``, else the functions in it marked with ``@tool``.

    Raises:
        ConfigError: There is no such file, it fails, or something in it is no tool.
    """
    module = _loaded(Path(file), f"--tools {file}")
    listed = getattr(module, "TOOLS", None)
    if listed is None:
        listed = _distinct(value for value in vars(module).values() if _is_marked(value))
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"--tools {file}: TOOLS is {listed!r:.80}; make it a list of functions")
    if not listed:
        raise ConfigError(
            f"--tools {file}: no tools in it; put @tool (from untildone import tool) above the"
            " functions that the model may call, or list them: TOOLS = [search]"
        )
    try:
        for tool in collect([*listed]).values():
            _ = tool.spec  # made on first use: a function that cannot be a tool is told of here
    except ConfigError as error:
        raise ConfigError(f"--tools {file}: {error}") from error
    return [*listed]


def _is_marked(value: object) -> bool:
    return not isinstance(value, type | ModuleType) and hasattr(value, OPTIONS_MARK)


def _distinct(values: Any) -> list[Any]:
    """Each once: a function may have two names in a module."""
    return list({id(value): value for value in values}.values())


def _made(factory: Any, where: str) -> object:
    try:
        return factory()
    except Exception as error:
        raise ConfigError(f"--agent {where!r}: calling it raised {describe(error)}") from error


def _loaded(path: Path, option: str) -> ModuleType:
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise ConfigError(f"{option}: {str(path)!r} {problem}; give a Python file")
    path = path.resolve()
    name = f"untildone_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{option}: {path.name!r} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[name] = module  # dataclasses and pickles look their module up
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ConfigError(
            f"{option}: the file could not be imported: {_told(error, path)}"
        ) from error
    return module


def _told(error: BaseException, path: Path) -> str:
    """What went wrong, with the last line of the user's file that had a part in it."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        # Its own text names file and line already, but not the folder of another file.
        where = "" if error.filename == str(path) else f"{error.filename}, "
        return f"{type(error).__name__}: {error.msg} ({where}line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{describe(error)} (line {lines[-1]})" if lines else describe(error)
