"""Measure untildone beside its peers: `make bench`, or `python -m bench --help`."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.roster import CONTENDERS, HAND, MEMORIES, OURS, VOTES, Contender
from bench.rounds import Rounds
from bench.table import NOTES, lines, shortfalls
from bench.venvs import SetupError, interpreter


def main() -> int:
    """Run the bench and print its table. The exit code tells whether it ran, not who won."""
    options = _options()
    wanted = [c for c in CONTENDERS if c is HAND or not options.only or c.name in options.only]
    interpreters = _set_up(wanted)
    if OURS in wanted and OURS not in interpreters:
        return 1
    chosen = list(interpreters)
    rounds = Rounds(interpreters)
    machine, started = _machine(), time.monotonic()
    scale = 1 if options.quick else 3
    rounds.imports(1 if options.quick else 5)
    rounds.cpu(scale, budget_s=0.2 if options.quick else 1.0)
    rounds.concurrent(1 if options.quick else 5)
    rounds.wire(1 if options.quick else 2)
    rounds.chunks(scale, requests={"one_body": 20, "packets": 5})
    rounds.http_loops(scale)
    tables = [chosen, rounds.clients]
    if OURS in chosen:
        rounds.memories(1 if options.quick else 2)
        rounds.votes(100 if options.quick else 1000)
        tables += [MEMORIES, VOTES]
    print(f"{machine}; measured in {time.monotonic() - started:.0f} s\n")
    for columns in tables:
        print(*lines(rounds.figures, columns), "", sep="\n")
    print(f"{NOTES}\n")
    if OURS in chosen:
        missed = shortfalls(rounds.figures)
        print(*(["untildone falls short:", *missed] if missed else ["All aims met."]), sep="\n  ")
    if options.json:
        options.json.write_text(json.dumps(rounds.figures.as_json(), indent=1))
    return 0


def _set_up(contenders: Sequence[Contender]) -> dict[Contender, Path]:
    """A Python for each; a contender that cannot be installed is named and left out."""
    ready: dict[Contender, Path] = {}
    for contender in contenders:
        try:
            ready[contender] = interpreter(contender)
        except SetupError as error:
            print(f"bench: {contender.name} is left out, no venv for it.\n{error}", file=sys.stderr)
    return ready


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round each: a look, not a figure")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=[contender.name for contender in CONTENDERS],
        help="measure only this contender and the hand loop; may be repeated",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    return parser.parse_args()


def _machine() -> str:
    load = f", load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else ""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{load}"
    return f"{where}, {python}"


if __name__ == "__main__":
    sys.exit(main())
