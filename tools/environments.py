"""The three environments of a clone: .venv, .venv-training and node_modules."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import horovod_wheel, stamps
from tools.logged import SetupError, run_logged, say

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".landfall" / "setup"
PIP_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
TRAINING = ROOT / "training_job" / "environment"

HOROVOD_LOADS = "import horovod.tensorflow as hvd; hvd.init(); assert hvd.size() == 1; hvd.shutdown()"
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One folder that make prepares: what it is made from, and how."""

    folder: Path
    files: tuple[Path, ...]
    """The files whose contents decide what is installed."""
    install: Callable[[Path], None]

    def prepare(self) -> None:
        """Install unless the stamp says that the same was installed before."""
        # A change to how an environment is made makes it anew, as a change to its requirements does.
        wanted = stamps.digest(self.folder, self.files, facts=[inspect.getsource(self.install)])
        if stamps.is_current(self.folder, wanted) and self._is_usable():
            return
        self._refuse_anothers()
        started = time.monotonic()
        stamps.clear(self.folder)
        (LOGS / f"{self.folder.name}.log").unlink(missing_ok=True)
        self.install(self.folder)
        stamps.write(self.folder, wanted)
        say(f"{self.folder.name} is ready ({time.monotonic() - started:.0f} s)")

    def _refuse_anothers(self) -> None:
        """Raise SetupError for a link to a folder in use: installing would empty it under whom it was made for."""
        if self.folder.is_symlink() and self.folder.is_dir() and any(self.folder.iterdir()):
            raise SetupError(
                f"{self.folder} is a link to {self.folder.resolve()}, which was made for another clone or from other "
                "requirements: remove the link, or empty that folder"
            )

    def _is_usable(self) -> bool:
        """Whether the interpreter that a virtual environment links to is still there."""
        python = self.folder / "bin" / "python"
        return python.exists() or not python.is_symlink()


def all_environments() -> list[Environment]:
    """In the order of what a user meets first."""
    common = ("requirements-common.txt", "requirements-local.txt", "requirements-build.txt")
    training = (*common, "requirements-horovod.txt", "constraints.txt")
    tools = ("requirements.txt", "requirements-dev.txt", "requirements-dev-host.txt", "constraints.txt")
    node = ("package.json", "package-lock.json", ".npmrc")
    return [
        Environment(folder=ROOT / "node_modules", files=_under(ROOT, node), install=install_node),
        Environment(folder=ROOT / ".venv", files=_under(ROOT, tools), install=install_tools),
        Environment(folder=ROOT / ".venv-training", files=_under(TRAINING, training), install=install_training),
    ]


def install_node(folder: Path) -> None:
    """Azurite, exactly as package-lock.json states it."""
    say(f"{folder.name}: installing Azurite")
    # Azurite 3.37 declares Node 22 and runs on 20: without engine-strict npm only warns, and the log keeps that.
    command = ["npm", "ci", "--loglevel=error", "--no-audit", "--no-fund", "--engine-strict=false"]
    _run(folder, command, {"CI": "1"})


def install_tools(folder: Path) -> None:
    """The function app, the twin, the command line, the tests and the linters."""
    make_venv(folder)
    say(f"{folder.name}: installing the function app, the twin and the tests")
    _pip(folder, "-r", "requirements-dev.txt")
    _pip(folder, "--no-deps", "--ignore-requires-python", "-r", "requirements-dev-host.txt")


def install_training(folder: Path) -> None:
    """TensorFlow for the CPU, Open MPI, and Horovod built against both."""
    make_venv(folder)
    say(f"{folder.name}: installing TensorFlow and Open MPI")
    _pip(folder, "-r", str(TRAINING / "requirements-build.txt"))
    _pip(folder, "-r", str(TRAINING / "requirements-local.txt"))
    wheel = horovod_wheel.cached_wheel(venv=folder, requirement=horovod_requirement(), cwd=ROOT)
    _pip(folder, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    try:
        _run(folder, [str(folder / "bin/python"), "-c", HOROVOD_LOADS], MPI_AS_ROOT)
    except SetupError as error:
        raise SetupError(f"{error}\nHorovod does not load. To have it built anew, remove {wheel.parent}") from error


def horovod_requirement() -> str:
    """The one line of requirements-horovod.txt that is no comment."""
    lines = (TRAINING / "requirements-horovod.txt").read_text().splitlines()
    return next(line for line in lines if line and not line.startswith("#"))


def make_venv(folder: Path) -> None:
    """A virtual environment of this Python at this place; one that fits already is kept."""
    if not _fits(folder):
        say(f"{folder.name}: creating a virtual environment of Python {sys.version.split()[0]}")
        _run(folder, [sys.executable, "-m", "venv", "--clear", str(folder)], {})


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
