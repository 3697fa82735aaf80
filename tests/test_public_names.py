"""What ``import untildone`` promises: its names, their docstrings, and how little it loads."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import untildone

SOURCE = Path(untildone.__file__).read_text("utf-8")

LAZY_PACKAGES = ["untildone", "untildone.criteria", "untildone.memory", "untildone.tools"]
"""Packages that load their names on first use."""

PUBLIC_MODULES = [
    "untildone",
    "untildone.criteria",
    "untildone.memory",
    "untildone.ports",
    "untildone.skills",
    "untildone.testing",
    "untildone.types",
    "untildone.verify",
]
"""Modules whose names users import."""


def for_type_checkers(module: ModuleType) -> dict[str, str]:
    """The names that a module imports under ``TYPE_CHECKING``, and where from."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    guarded = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname or alias.name: str(statement.module)
        for node in guarded
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("name", LAZY_PACKAGES)
def test_the_lists_of_names_agree(name: str):
    module: Any = importlib.import_module(name)
    # Two spellings of the list: names by module, or module by name.
    listed: dict[str, str] = untildone._MODULE_OF if module is untildone else module._WHERE
    typed = for_type_checkers(module)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(typed) == set(listed) == set(module.__all__) - {"__version__"}
    for each, where in typed.items():
        assert getattr(module, each) is getattr(importlib.import_module(where), each), each
    assert set(module.__all__) <= set(dir(module))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = untildone.no_such_name


def test_the_types_under_the_other_module_name_are_the_same():
    types = importlib.import_module("untildone.types")
    for name in types.__all__:
        assert getattr(types, name) is getattr(untildone, name), name


# ── What is loaded ───────────────────────────────────────────────────────────────────────────────

NEVER_AT_IMPORT = {
    *("aiohttp", "click", "mcp", "pydantic", "redis", "rich", "sqlalchemy", "xllamacpp", "yaml")
}


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    program = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_bare_import_loads_nothing_but_itself():
    loaded = loaded_after("import untildone")
    assert not loaded & {*NEVER_AT_IMPORT, "asyncio", "json", "untildone.agent"}


def test_the_names_of_a_script_load_no_http_client_no_pydantic_and_no_click():
    names = "Agent, LoopConfig, Verifier, run_agent, stream_agent, tool, StuckPolicy, EventType"
    loaded = loaded_after(
        f"from untildone import {names}\nfrom untildone.testing import ScriptedModel\n"
        "Agent('a', ScriptedModel(['hi']), loop_config=LoopConfig(verifier=Verifier()))"
    )
    assert "untildone.agent" in loaded
    assert not loaded & NEVER_AT_IMPORT


def test_a_run_on_a_model_of_ones_own_loads_none_of_them_either():
    loaded = loaded_after(
        "from untildone import Agent, run_agent_sync\n"
        "from untildone.testing import ScriptedModel\n"
        "run_agent_sync(Agent('a', ScriptedModel(['hi'])), [{'role': 'user', 'content': 'x'}])"
    )
    assert not loaded & NEVER_AT_IMPORT


# ── Docstrings ───────────────────────────────────────────────────────────────────────────────────


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public class and function, once."""
    seen: set[int] = set()
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module_name and not name.startswith("_")
        ]
        for name in names:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
                seen.add(id(value))
                yield f"{module_name}.{name}", value


def own_doc(value: Any) -> str:
    """The docstring, unless the language made it."""
    doc = inspect.getdoc(value) or ""
    is_made = inspect.isclass(value) and doc.startswith(f"{value.__name__}(")
    return "" if is_made else doc


def callables() -> Iterator[tuple[str, Any]]:
    """Public functions, and public methods that public classes define themselves."""
    for where, value in public_objects():
        if inspect.isfunction(value):
            yield where, value
            continue
        for name, member in vars(value).items():
            function = getattr(member, "__func__", member)
            if isinstance(function, property):
                function = function.fget
            if inspect.isfunction(function) and not name.startswith("_"):
                yield f"{where}.{name}", function


def test_every_public_name_says_what_it_is():
    silent = [where for where, value in public_objects() if not own_doc(value)]
    silent += [where for where, function in callables() if not own_doc(function)]
    assert not silent


def test_a_docstring_begins_with_one_sentence():
    wrong = [
        where
        for where, value in [*public_objects(), *callables()]
        if not re.match(r"[^\n]+[.:?](\n|$)", own_doc(value))
    ]
    assert not wrong


def is_short_enough_to_need_no_list(function: Any) -> bool:
    """One or two parameters may be told in the sentence itself."""
    return len(inspect.signature(function).parameters) <= 3  # self included


def refers_elsewhere(doc: str) -> bool:
    return "see there for the arguments" in doc


def is_protocol(value: Any) -> bool:
    return getattr(value, "_is_protocol", False)


def is_made_by_us(doc: str) -> bool:
    """Whether users get it and never make it."""
    return "made by ``" in doc


def test_functions_with_several_parameters_list_them():
    seams = {where for where, value in public_objects() if is_protocol(value)}
    missing: list[str] = []
    for where, function in callables():
        doc = own_doc(function)
        parameters = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name not in {"self", "cls"} and not parameter.name.startswith("__")
        ]
        if refers_elsewhere(doc) or is_short_enough_to_need_no_list(function):
            continue
        if where.rpartition(".")[0] in seams:
            continue  # its names and types say it, and what implements it says more
        listed = section(doc, "Args")
        missing += [f"{where}({name})" for name in parameters if not names(listed, name)]
    assert not missing


def section(doc: str, title: str) -> str:
    found = re.search(rf"^{title}:\n((?:[ ]+.*\n?|\n)*)", doc, re.MULTILINE)
    return found[1] if found else ""


def names(text: str, name: str) -> bool:
    return re.search(rf"(^|\s)\**{re.escape(name)}[:,]", text) is not None


def test_classes_list_their_fields_and_what_they_are_made_with():
    missing: list[str] = []
    for where, value in public_objects():
        doc = own_doc(value)
        if not inspect.isclass(value) or issubclass(value, Enum) or is_protocol(value):
            continue
        if is_made_by_us(doc):
            continue
        listed = section(doc, "Attributes") + section(doc, "Args")
        if dataclasses.is_dataclass(value):
            wanted = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
            if len(wanted) == 1:
                continue  # its sentence says it
        elif "__init__" in vars(value) and not issubclass(value, Exception):
            parameters = inspect.signature(value.__init__).parameters
            wanted = [name for name in parameters if name != "self"]
            if len(wanted) < 2:
                continue
        else:
            continue
        missing += [f"{where}({name})" for name in wanted if not names(listed, name)]
    assert not missing


def raised_in(function: Any) -> set[str]:
    """The types of our errors that a function raises itself."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func)
            # What a tool raises is for the model to read, not for callers.
            if name in untildone.__all__ and name not in {"LoopConvergedError", "ToolError"}:
                found.add(name)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"check_count", "check_number"}:
            found.add("ConfigError")
    return found


def test_docstrings_say_what_is_raised():
    silent: list[str] = []
    for where, function in callables():
        doc = own_doc(function)
        if not refers_elsewhere(doc):
            raises = section(doc, "Raises")
            silent += [f"{where}: {name}" for name in raised_in(function) if name not in raises]
    for where, value in public_objects():
        if inspect.isclass(value) and not issubclass(value, Exception):
            for name in ("__init__", "__post_init__"):
                if name in vars(value):
                    raises = section(own_doc(value), "Raises")
                    silent += [
                        f"{where}: {error}"
                        for error in raised_in(vars(value)[name])
                        if error not in raises
                    ]
    assert not silent
