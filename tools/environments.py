"""The environments of a clone (.venv, .venv-training, node_modules), its launcher and its constraints files."""

from __future__ import annotations

import hashlib
import inspect
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools import horovod_wheel
from tools.logged import SetupError, run_logged, say

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".landfall" / "setup"
PIP_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
TRAINING = ROOT / "training_job" / "environment"
STAMP_NAME = ".landfall-stamp"

HOROVOD_LOADS = "import horovod.tensorflow as hvd; hvd.init(); assert hvd.size() == 1; hvd.shutdown()"
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

LAUNCHER = "import sys; sys.path.insert(0, {root!r}); import cli.__main__"
NOT_CONSTRAINED = ("horovod", "azure-functions-runtime", "azurefunctions-extensions-base")
"""Packages that are installed in separate steps, from other files."""
CONSTRAINTS_HEADER = """\
# The whole closure of {of} on Python 3.11, Linux x86-64.
# Written by: make constraints
"""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One folder that make prepares: the files that determine its content, and how it is installed."""

    folder: Path
    files: tuple[Path, ...]
    """Files whose contents determine what is installed."""
    install: Callable[[Path], None]

    def prepare(self) -> None:
        """Install, unless the stamp shows that the same content is already installed."""
        # The installing function's source is part of the stamp: after a change of it, everything is installed again.
        wanted = digest(self.folder, self.files, facts=[inspect.getsource(self.install)])
        if is_current(self.folder, wanted) and self._is_usable():
            return
        self._refuse_link()
        started = time.monotonic()
        clear_stamp(self.folder)
        (LOGS / f"{self.folder.name}.log").unlink(missing_ok=True)
        self.install(self.folder)
        write_stamp(self.folder, wanted)
        say(f"{self.folder.name} is ready ({time.monotonic() - started:.0f} s)")

    def _refuse_link(self) -> None:
        """Raise SetupError for a link to a folder in use: installing would empty the environment of another clone."""
        if self.folder.is_symlink() and self.folder.is_dir() and any(self.folder.iterdir()):
            raise SetupError(
                f"{self.folder} is a link to {self.folder.resolve()}, which was made for another clone or from other "
                "requirements: remove the link, or empty that folder"
            )

    def _is_usable(self) -> bool:
        """Whether the interpreter that a virtual environment links to still exists."""
        python = self.folder / "bin" / "python"
        return python.exists() or not python.is_symlink()


def all_environments() -> list[Environment]:
    """Return the environments in the order in which they are prepared."""
    common = ("requirements-common.txt", "requirements-local.txt", "requirements-build.txt")
    training = (*common, "requirements-horovod.txt", "requirements-bench.txt", "constraints.txt")
    tools = ("requirements.txt", "requirements-dev.txt", "requirements-dev-host.txt", "constraints.txt")
    node = ("package.json", "package-lock.json", ".npmrc")
    return [
        Environment(folder=ROOT / "node_modules", files=_under(ROOT, node), install=install_node),
        Environment(folder=ROOT / ".venv", files=_under(ROOT, tools), install=install_tools),
        Environment(folder=ROOT / ".venv-training", files=_under(TRAINING, training), install=install_training),
    ]


def install_node(folder: Path) -> None:
    """Install Azurite, and axe for tests of the pages, in the versions of package-lock.json."""
    say(f"{folder.name}: installing Azurite")
    # Azurite 3.37 declares Node 22 but runs on 20. Without engine-strict, npm only writes a warning to the log.
    command = ["npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", "--engine-strict=false"]
    _run(folder, command, {"CI": "1"})


def install_tools(folder: Path) -> None:
    """Install the requirements of the function app, the twin, the command line, the tests and the linters."""
    make_venv(folder)
    say(f"{folder.name}: installing the function app, the twin and the tests")
    _pip(folder, "-r", "requirements-dev.txt")
    _pip(folder, "--no-deps", "--ignore-requires-python", "-r", "requirements-dev-host.txt")


def install_training(folder: Path) -> None:
    """Install TensorFlow for the CPU, Open MPI, and Horovod built against both."""
    make_venv(folder)
    say(f"{folder.name}: installing TensorFlow and Open MPI")
    _pip(folder, "-r", str(TRAINING / "requirements-build.txt"))
    _pip(folder, "-r", str(TRAINING / "requirements-local.txt"))
    _pip(folder, "--no-deps", "-r", str(TRAINING / "requirements-bench.txt"))
    wheel = horovod_wheel.cached_wheel(venv=folder, requirement=horovod_requirement(), cwd=ROOT)
    _pip(folder, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    try:
        _run(folder, [str(folder / "bin/python"), "-c", HOROVOD_LOADS], MPI_AS_ROOT)
    except SetupError as error:
        raise SetupError(f"{error}\nHorovod does not load. To build it again, remove {wheel.parent}") from error


def horovod_requirement() -> str:
    """Return the only requirement in requirements-horovod.txt."""
    lines = (TRAINING / "requirements-horovod.txt").read_text().splitlines()
    return next(line for line in lines if line and not line.startswith("#"))


def make_venv(folder: Path) -> None:
    """Create a virtual environment of this Python, unless the folder already is one."""
    if not _fits(folder):
        say(f"{folder.name}: creating a virtual environment of Python {sys.version.split()[0]}")
        _run(folder, [sys.executable, "-m", "venv", "--clear", str(folder)], {})


def digest(folder: Path, files: Iterable[Path], facts: Iterable[str] = ()) -> str:
    """Return a SHA-256 in hex over the files' contents, this Python's version, the folder's path and ``facts``.

    The path is included because a virtual environment's scripts contain it: a moved clone needs new ones.
    """
    sha = hashlib.sha256()
    for fact in (sys.version, str(folder), *facts):
        sha.update(fact.encode() + b"\0")
    for path in files:
        sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def is_current(folder: Path, wanted: str) -> bool:
    """Whether `folder` has the expected stamp."""
    stamp = folder / STAMP_NAME
    return stamp.is_file() and stamp.read_text().strip() == wanted


def clear_stamp(folder: Path) -> None:
    """Remove the stamp before an installation starts, so that an interrupted one never counts as complete."""
    (folder / STAMP_NAME).unlink(missing_ok=True)


def write_stamp(folder: Path, wanted: str) -> None:
    """Stamp `folder` atomically."""
    aside = folder / f"{STAMP_NAME}.new"
    aside.write_text(wanted + "\n")
    aside.replace(folder / STAMP_NAME)


def write_launcher(root: Path, venv: Path) -> Path:
    """Write `venv`/bin/landfall unless it is up to date; return its path.

    Landfall is not an installed package, because a `shared` or `tests` in site-packages would shadow this clone's.
    """
    launcher = venv / "bin" / "landfall"
    script = LAUNCHER.format(root=str(root))
    # A shell script, because a "#!" line allows neither long paths nor spaces; -P ignores the working directory.
    words = ["exec", shlex.quote(str(venv / "bin" / "python")), "-P", "-c", shlex.quote(script), '"$@"']
    text = "#!/bin/sh\n" + " ".join(words) + "\n"
    if not launcher.is_file() or launcher.read_text() != text:
        launcher.write_text(text)
        launcher.chmod(0o755)
    return launcher


def write_constraints() -> None:
    """Write the installed versions into both constraints.txt, after a change of the direct requirements."""
    training = "the training environment (TensorFlow for the CPU)"
    _freeze(ROOT / ".venv", ROOT / "constraints.txt", of="requirements.txt and requirements-dev.txt")
    _freeze(ROOT / ".venv-training", TRAINING / "constraints.txt", of=training)


def _freeze(venv: Path, target: Path, *, of: str) -> None:
    command = [str(venv / "bin/python"), "-m", "pip", "freeze"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **PIP_QUIET})
    lines = (line for line in listing.stdout.splitlines() if "==" in line)
    kept = [line for line in lines if line.split("==")[0].lower() not in NOT_CONSTRAINED]
    target.write_text(CONSTRAINTS_HEADER.format(of=of) + "\n".join(kept) + "\n")


def _fits(folder: Path) -> bool:
    python, pip = folder / "bin" / "python", folder / "bin" / "pip"
    if not (python.exists() and pip.exists()) or str(folder) not in pip.read_text()[:512]:
        return False
    question = [str(python), "-c", "import sys; print(sys.version)"]
    return subprocess.run(question, capture_output=True, text=True, check=False).stdout.strip() == sys.version.strip()


def _pip(folder: Path, *arguments: str) -> None:
    _run(folder, [str(folder / "bin/python"), "-m", "pip", "install", *arguments], PIP_QUIET)


def _run(folder: Path, command: list[str], extra: dict[str, str]) -> None:
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONHOME", "PYTHONPATH"}}
    log = LOGS / f"{folder.name}.log"
    run_logged(f"installing {folder.name}", command, log=log, cwd=ROOT, env={**env, **extra})


def _under(folder: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(folder / name for name in names)
