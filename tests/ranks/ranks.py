"""Trainings as real processes: ``mpirun`` and the training environment's interpreter, with a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from local_azure.azure_ml.mounts import MountRules, build_library, mount_variables
from local_azure.processes import Process, wait_until
from shared.job_arguments import JobArguments
from shared.progress import Progress, parse_progress
from shared.training_report import FILE_NAME, TrainingReport
from tests.support.processes import REPOSITORY, child_environment, start_process

PROGRAMS = REPOSITORY / ".venv-training" / "bin"
DEADLINE_S = 600.0
LIBRARIES = REPOSITORY / ".landfall"
RULES = MountRules()
"""The rules of the local twin."""
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def program(name: str) -> str:
    """Return the path of one of the tests' programs, relative to the repository."""
    return f"tests/ranks/programs/{name}.py"


def variables(**values: object) -> tuple[str, ...]:
    """Return mpirun's options that set variables for every rank."""
    return tuple(word for name, value in values.items() for word in ("-x", f"{name}={value}"))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A training that has ended."""

    exit_code: int
    log: str
    output: Path

    @property
    def progress(self) -> list[Progress]:
        """The root's progress lines."""
        return [progress for line in self.log.splitlines() if (progress := parse_progress(line))]

    @property
    def report(self) -> TrainingReport:
        """The training report."""
        return TrainingReport.from_json((self.output / "report" / FILE_NAME).read_bytes())

    @property
    def pointer(self) -> dict[str, Any]:
        """The pointer to the newest checkpoint."""
        newest = max((self.output / "checkpoints").glob("pointer-*.json"))
        members: dict[str, Any] = json.loads(newest.read_bytes())
        return members

    @property
    def variables(self) -> dict[str, NDArray[Any]]:
        """The variables of the current checkpoint."""
        with np.load(self.output / "checkpoints" / self.pointer["file"]) as stored:
            return {name: stored[name] for name in stored.files}


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A training that has ended, and what each rank recorded (``programs/observed.py``)."""

    outcome: Outcome
    ranks: int

    @property
    def notes(self) -> list[dict[str, Any]]:
        """The labels, averaged shapes and trained shapes of each rank."""
        folder = self.outcome.output
        return [json.loads((folder / f"observed-{rank}.json").read_text()) for rank in range(self.ranks)]

    @property
    def weights(self) -> list[dict[str, NDArray[Any]]]:
        """The weights of each rank, by epoch."""
        found = []
        for rank in range(self.ranks):
            with np.load(self.outcome.output / f"observed-{rank}.npz") as stored:
                found.append({epoch: stored[epoch] for epoch in stored.files})
        return found


def observed(ranks: int, arguments: JobArguments) -> Observed:
    """Train to the end while every rank records what it does."""
    folder = Path(arguments.report).parent
    outcome = train(ranks, arguments, instead=[program("observed")], launcher=variables(NOTES_FOLDER=folder))
    assert 0 == outcome.exit_code, outcome.log
    return Observed(outcome=outcome, ranks=ranks)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A training in progress."""

    process: Process
    output: Path

    def wait_for_epoch(self, epoch: int) -> None:
        """Wait until the root has reported the end of an epoch."""
        self.process.await_line(f'LANDFALL_PROGRESS {{"epoch": {epoch},', timeout_s=DEADLINE_S)

    def send(self, number: signal.Signals, rank: int) -> None:
        """Send a signal to one rank."""
        self.rank(rank).send_signal(number)

    def rank(self, rank: int) -> psutil.Process:
        """Return the process of one rank, found by its environment variables."""
        children = psutil.Process(self.process.popen.pid).children(recursive=True)
        return next(c for c in children if c.environ().get("OMPI_COMM_WORLD_RANK") == str(rank))

    def ended(self, timeout_s: float = DEADLINE_S) -> Outcome:
        """Wait for the end of the training."""
        wait_until(lambda: self.process.popen.poll() is not None, what="the training ends", timeout_s=timeout_s)
        code = self.process.popen.returncode
        return Outcome(exit_code=code, log=self.process.output(), output=self.output)


def start(
    ranks: int | None,
    arguments: JobArguments,
    *,
    launcher: Sequence[str] = (),
    instead: Sequence[str] = (),
    within: Sequence[str] = (),
    rules: MountRules = RULES,
) -> Running:
    """Start a training with a number of ranks; None means without mpirun.

    ``launcher`` are options of mpirun, ``instead`` is what python runs, ``within`` goes before everything, ``rules``
    are those of the mounted outputs.
    """
    if not (PROGRAMS / "mpirun").exists():
        pytest.skip(".venv-training is not there: run `make setup`")
    output = Path(arguments.report).parent
    output.mkdir(parents=True, exist_ok=True)
    mpirun = [] if ranks is None else [str(PROGRAMS / "mpirun"), "-n", str(ranks), "--oversubscribe", *launcher]
    what = instead or ["-m", "training_job.train"]
    return Running(
        process=start_process(
            [*within, *mpirun, str(PROGRAMS / "python"), *what, *arguments.to_argv()],
            log=output / f"log-{len(list(output.glob('log-*')))}",
            environment=child_environment(**ENVIRONMENT, **mounted(output, rules), PYTHONPATH=str(REPOSITORY)),
        ),
        output=output,
    )


def mounted(output: Path, rules: MountRules) -> dict[str, str]:
    """Return the variables with which every rank, as on its own node, writes outputs through an Azure ML mount."""
    library = build_library(LIBRARIES)
    if library is None:
        return {}
    roots = [output / name for name in ("report", "model", "checkpoints")]
    mount = mount_variables(library, roots, output / "mount", rules)
    return {**mount, "LD_PRELOAD": str(library)}


def train(ranks: int | None, arguments: JobArguments, **how: Any) -> Outcome:
    """Train and wait for the end."""
    running = start(ranks, arguments, **how)
    try:
        return running.ended()
    finally:
        end_all(running)


def end_all(running: Running) -> None:
    """End all processes, including stopped ones."""
    if running.process.popen.poll() is None:
        for child in psutil.Process(running.process.popen.pid).children(recursive=True):
            os.kill(child.pid, signal.SIGKILL)
        running.process.kill()


def score(model: Path, shards: Path, scratch: Path) -> dict[str, Any]:
    """Score a folder's validation shards with the script in docs/serving.md, as both kinds of endpoints call it."""
    page = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    (scratch / "score.py").write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    said = subprocess.run(
        [str(PROGRAMS / "python"), program("served"), str(shards), str(scratch)],
        cwd=REPOSITORY,
        env={
            **child_environment(),
            "PYTHONPATH": f"{REPOSITORY}:{scratch}",
            "AZUREML_MODEL_DIR": str(model),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert 0 == said.returncode, said.stderr
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found
