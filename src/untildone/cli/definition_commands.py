"""Definitions on the command line: ``check``, ``schema``, and ``run`` with a file of one."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource

from untildone.cli.exit_status import USAGE
from untildone.cli.failures import Failure
from untildone.cli.given import chosen_view, read_task

if TYPE_CHECKING:
    from untildone.agent import Agent
    from untildone.app.definitions import AgentDefinition, LoopCriterion, Problem
    from untildone.app.definitions.surroundings import Surroundings

_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
_TRUST: Final = click.option(
    "--trust",
    is_flag=True,
    help="Treat FILE like a program: it may run commands, name any provider and set any parameter"
    " of a model.",
)
_FILE_HELP: Final = (
    "FILE is an agent as data (YAML, JSON or TOML), as in: untildone run agent.yaml TASK. It may"
    " name the tools of --tools and --workspace, and nothing else of this machine."
)
_OWN_CONDITIONS: Final = ("until", "fresh", "agent")


def register(group: click.Group) -> None:
    """Adds ``check`` and ``schema``, and lets ``run`` take a definition before the task."""
    group.add_command(check)
    group.add_command(schema)
    group.add_command(_with_definitions(group.commands["run"]))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--tools",
    multiple=True,
    metavar="FILE.py",
    help="Tools of a Python file, which the definition may name. Repeatable.",
)
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Let the definition name the tools for files in DIR.",
)
@_TRUST
@click.pass_context
def check(
    ctx: click.Context, file: Path, *, tools: Sequence[str], workspace: Path | None, trust: bool
) -> None:
    """Say everything that is wrong with the definition in FILE (YAML, JSON or TOML).

    One problem a line, with its line and column where the format tells them. The exit status is 0
    if an agent can be built from it.
    """
    from untildone.app.definitions.reading import check_file

    offered = [*_load_tools(tools), *_workspace_tools(workspace)]
    problems = check_file(file, _around(file, offered, judge_model=None, trust=trust)).problems
    if not problems:
        click.echo(f"{file}: no problems", err=True)
        return
    for line in _lines(file, problems):
        click.echo(line)
    click.echo(_counted(problems), err=True)
    ctx.exit(USAGE)


def _lines(file: Path, problems: Sequence[Problem]) -> Iterator[str]:
    return (problem.in_line(str(file)) for problem in problems)


def _counted(problems: Sequence[Problem]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


@click.command()
def schema() -> None:
    """Print the JSON Schema of definitions, for editors.

    \b
    untildone schema > agent.schema.json
    and as the first line of a YAML file:
    # yaml-language-server: $schema=agent.schema.json
    """  # noqa: D301  the \b is click's mark for lines to leave alone
    from untildone.app.definitions import definition_schema

    click.echo(json.dumps(definition_schema(), indent=2, ensure_ascii=False))


def _with_definitions(run: click.Command) -> click.Command:
    """The command ``run``, which then takes ``FILE TASK`` as well as ``TASK``."""
    run_task = cast("Callable[..., Any]", run.callback)
    rest = [parameter for parameter in run.params if parameter.name != "task"]
    words = click.Argument(["words"], nargs=-1, metavar="[FILE] [TASK]")

    @click.pass_context
    def run_either(
        ctx: click.Context, /, *, words: tuple[str, ...], trust: bool, **options: Any
    ) -> None:
        file, task = _split(words)
        if file is None:
            if trust:
                raise click.UsageError("--trust has no effect without a definition before TASK")
            run_task(task=task, **options)
        else:
            _run_definition(ctx, file, task, trust=trust, **options)

    _TRUST(run_either)
    trust = cast("list[click.Parameter]", cast("Any", run_either).__click_params__)
    return click.Command(
        "run",
        callback=run_either,
        params=[words, *rest, *trust],
        help=f"{inspect.cleandoc(run.help or '')}\n\n{_FILE_HELP}",
        epilog=run.epilog,
        no_args_is_help=False,
    )


def _split(words: Sequence[str]) -> tuple[Path | None, str | None]:
    """The file of a definition, if there is one, and the task."""
    file = Path(words[0]) if words and _is_file(words[0], alone=len(words) == 1) else None
    rest = words if file is None else words[1:]
    if len(rest) > 1:
        raise click.UsageError(f"TASK is {len(rest)} words; put it in quotes")
    return file, rest[0] if rest else None


def _is_file(word: str, *, alone: bool) -> bool:
    """Whether a word names a definition; alone and with spaces, a task may well end in a name."""
    if not word.lower().endswith(_ENDINGS):
        return False
    return not alone or not any(mark.isspace() for mark in word) or os.path.isfile(word)  # noqa: PTH113  it takes any text


def _run_definition(
    ctx: click.Context,
    file: Path,
    task: str | None,
    *,
    trust: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    from untildone.cli.plan import Plan
    from untildone.cli.running import run_plan

    for name in _OWN_CONDITIONS:
        if options[name]:
            raise click.UsageError(
                f"--{name} cannot be given with a definition, which has its own loop; write it"
                f" into {file}"
            )
    view = chosen_view(as_json=as_json, quiet=quiet)
    if ctx.get_parameter_source("model") is ParameterSource.ENVIRONMENT:
        options["model"] = None  # a default for all runs is no wish to change this agent
    agent = _agent(file, trust=trust, **options)
    ctx.exit(run_plan(Plan(agent=agent, untils=()), read_task(task), view))


def _agent(
    file: Path,
    *,
    trust: bool,
    model: str | None,
    tools: Sequence[str],
    workspace: Path | None,
    judge_model: str | None,
    max_iterations: int | None,
    max_turns: int | None,
    max_tokens: int | None,
    **_: Any,
) -> Agent:
    """The agent of a definition, with what the command line says otherwise.

    The last iteration is evaluated, as always on the command line: the exit status tells whether
    the work is done.
    """
    from untildone.agent import RetryPolicy
    from untildone.app.definitions.building import agent_of
    from untildone.app.definitions.reading import check_file
    from untildone.assembly import resolve

    offered = [*_load_tools(tools), *_workspace_tools(workspace)]
    around = _around(file, offered, judge_model=judge_model, trust=trust, workspace=workspace)
    checked = check_file(file, around)
    if checked.value is None:
        told = "\n  ".join(_lines(file, checked.problems))
        raise Failure(f"{_counted(checked.problems)}; nothing was run:\n  {told}")
    agent = agent_of(checked.value, around)
    loop = agent.loop_config
    if loop is None and max_iterations is not None:
        raise click.UsageError(f"--max-iterations has no effect: {file} has no harness.loop")
    if judge_model is not None and not _leaves_judging_open(checked.value):
        raise click.UsageError(
            f"--judge-model has no effect: no criterion of {file} asks a judge without naming one"
        )
    if loop is not None:
        most = max_iterations or loop.max_iterations
        loop = replace(loop, max_iterations=most, evaluate_final=True)
    for named in (model or agent.model, judge_model):
        if named is not None:
            resolve(named)  # wrong strings and missing keys are told before anything runs
    return replace(
        agent,
        model=model or agent.model,
        max_turns=max_turns or agent.max_turns,
        max_tokens=max_tokens or agent.max_tokens,
        retry_policy=RetryPolicy(max_retries=2),
        loop_config=loop,
    )


def _around(
    file: Path,
    offered: Sequence[Any],
    *,
    judge_model: str | None,
    trust: bool,
    workspace: Path | None = None,
) -> Surroundings:
    """What a definition may reach on the command line.

    That is the tools named there, to call or to start in the background, a todo list, and the kinds
    of criteria of installed packages. What is offered beyond the tools gives way to their names.
    """
    from untildone.app.definitions.surroundings import Advice, names_of, surroundings
    from untildone.criteria.registry import CriterionRegistry
    from untildone.models.providers import PROVIDERS
    from untildone.tools.background import BackgroundTasks
    from untildone.tools.todo import TodoList

    known = _readable(file)
    names = names_of(offered)
    groups: list[Any] = [TodoList(modes=_MODES if known is None or _uses_modes(known) else ())]
    startable = [tool for tool in offered if _can_be_started(tool, names)]
    groups += [BackgroundTasks(startable)] if startable else []
    advice = dict(_ADVICE)
    for group in [*groups]:
        taken = sorted(names & names_of([group]))
        if taken:
            groups.remove(group)
            advice[_GROUPS[group.name]] = f"another tool is named {taken[0]!r}; rename that one"
    around = surroundings(
        tools=[*offered, *groups],
        registry=CriterionRegistry.installed(),
        judge_model=judge_model,
        allow_commands=trust,
        command_directory=None if workspace is None else str(workspace),
        providers=PROVIDERS if trust else None,
    )
    parameters = None if trust else around.parameters
    return replace(around, parameters=parameters, advice=Advice(**advice))


def _can_be_started(tool: Any, names: AbstractSet[str]) -> bool:
    """Whether a tool can also be offered to be started in the background, under a name of its own.

    An agent as a tool cannot, nor can one whose name has no room for more or stands there already.
    """
    from untildone.app.definitions.surroundings import names_of
    from untildone.domain.errors import ConfigError
    from untildone.tools.background import BackgroundTasks

    try:
        return not names_of(BackgroundTasks([tool]).tools[:1]) & names
    except ConfigError:
        return False


_MODES: Final = ("plan", "execute")
_GROUPS: Final = {"todo": "todos", "background": "background"}
_TRUSTED: Final = "add --trust, which treats FILE like a program"
_ADVICE: Final = {
    "tools": "Tools come with --tools FILE.py and, for files, with --workspace DIR",
    "background": "--tools FILE.py and --workspace DIR give what can be started",
    "kinds": "install a package that has it as an entry point of 'untildone.criteria'",
    "servers": "Write the agent in Python, where it can have one: --agent FILE.py:NAME",
    "commands": _TRUSTED,
    "provider": _TRUSTED,
    "parameter": _TRUSTED,
}
"""What helps on the command line against what ``Advice`` is about."""


def _readable(file: Path) -> AgentDefinition | None:
    from untildone.app.definitions.reading import check_file

    return check_file(file, None).value


def _uses_modes(definition: AgentDefinition) -> bool:
    return any(criterion.modes for criterion in _criteria_of(definition))


def _leaves_judging_open(definition: AgentDefinition) -> bool:
    return any(
        criterion.kind in ("aiJudge", "minScore") and criterion.judge_model is None
        for criterion in _criteria_of(definition)
    )


def _criteria_of(definition: AgentDefinition) -> Iterator[LoopCriterion]:
    loop = definition.harness.loop
    return _all(() if loop is None else loop.criteria)


def _all(criteria: Sequence[LoopCriterion]) -> Iterator[LoopCriterion]:
    for criterion in criteria:
        yield criterion
        yield from _all(criterion.criteria or ())


def _load_tools(files: Sequence[str]) -> list[Any]:
    from untildone.cli.user_code import load_tools

    return [tool for file in files for tool in load_tools(file)]


def _workspace_tools(folder: Path | None) -> list[Any]:
    if folder is None:
        return []
    from untildone.tools.workspace import Workspace

    return [*Workspace(folder).tools]
