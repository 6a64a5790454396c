"""Trainings as real processes: ``mpirun`` and the training's own interpreter, with a deadline."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.job_arguments import JobArguments
from shared.progress import Progress, parse_progress
from shared.training_report import FILE_NAME, TrainingReport
from tests.distributed.landed import Landed
from tests.support.processes import REPOSITORY, child_environment, die_with_parent

PROGRAMS = REPOSITORY / ".venv-training" / "bin"
DEADLINE_S = 150.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A training that has ended."""

    exit_code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def progress(self) -> list[Progress]:
        """What the root told on its way."""
        return [told for line in self.stdout.splitlines() if (told := parse_progress(line))]

    @property
    def report(self) -> TrainingReport:
        """What the root wrote at the end."""
        return TrainingReport.from_json((self.output / "report" / FILE_NAME).read_bytes())


def job_arguments(landed: Landed, output: Path, **options: object) -> JobArguments:
    """The arguments of a training of what has landed, with its outputs under one folder."""
    where = {
        "manifest": str(landed.manifest),
        "data": str(landed.folder),
        "report": str(output / "report"),
        "model": str(output / "model"),
        "checkpoints": str(output / "checkpoints"),
    }
    return JobArguments(**{**where, **options})  # type: ignore[arg-type]


def train(ranks: int | None, arguments: JobArguments) -> Outcome:
    """Train with so many ranks and wait for the end; None means without mpirun."""
    if not (PROGRAMS / "mpirun").exists():
        pytest.skip(".venv-training is not there: run `make setup`")
    launcher = [] if ranks is None else [str(PROGRAMS / "mpirun"), "-n", str(ranks), "--oversubscribe"]
    command = [*launcher, str(PROGRAMS / "python"), "-m", "training_job.train", *arguments.to_argv()]
    ended = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=child_environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        preexec_fn=die_with_parent,
    )
    return Outcome(
        exit_code=ended.returncode,
        stdout=ended.stdout,
        stderr=ended.stderr,
        output=Path(arguments.report).parent,
    )
