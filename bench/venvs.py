"""A venv for every contender in `bench/.venvs`, made on demand and again when its pins change.

Ours gets a wheel built from the tree, because that is what a user imports: no editable hook, no
tests, no development tools beside it.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.roster import HERE, ROOT, Contender

VENVS = HERE / ".venvs"


class SetupError(Exception):
    """A venv or the wheel could not be made; the text is what the tool said."""


def interpreter(contender: Contender) -> Path:
    """The Python that runs this contender; makes its venv unless a fitting one is there."""
    if contender.constraints is None:
        return Path(sys.executable)
    requirements = [str(_wheel())] if contender.ours else list(contender.requirements)
    home = VENVS / Path(contender.script).stem
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = home / "bench-stamp"
    wanted = _fingerprint(contender.constraints, requirements)
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making a venv for {contender.name} (once) …", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    _run([*pip, "-c", str(contender.constraints), *requirements])
    stamp.write_text(wanted)
    return python


def _wheel() -> Path:
    """A wheel of the tree as it is now; the same tree gives the same bytes."""
    target = VENVS / "wheel"
    shutil.rmtree(target, ignore_errors=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    _run([*build, "--outdir", str(target), str(ROOT)])
    return next(target.glob("*.whl"))


def _fingerprint(constraints: Path, requirements: list[str]) -> str:
    digest = hashlib.sha256(f"{sys.version}\0{requirements}\0".encode())
    digest.update(constraints.read_bytes())
    for requirement in requirements:
        if requirement.endswith(".whl"):
            digest.update(Path(requirement).read_bytes())
    return digest.hexdigest()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
