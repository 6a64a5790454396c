"""The training's entry point: ``mpirun … python -m training_job.train --manifest … --data … (see JobArguments)``.

Two ranks on two cores train scikit-learn's digits to 0.98 validation accuracy in about 15 s, most of it
TensorFlow's start and the export.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from shared.job_arguments import JobArguments
from training_job import process_environment
from training_job.errors import TrainingError
from training_job.exit_codes import ExitCode
from training_job.job import prepare
from training_job.last_words import say
from training_job.survival.stop_request import StopRequest


def main(argv: Sequence[str]) -> int:
    """Train; return the exit code."""
    stop = StopRequest()
    stop.listen()
    try:
        arguments = JobArguments.from_argv(argv)
        job = prepare(arguments, process_environment.launched_world_size())
        process_environment.set_for(arguments, Path(arguments.report))
        # Here and not above: this loads TensorFlow, and a mistake in the arguments should cost no time.
        from training_job.attempt import run

        run(job, stop)
    except TrainingError as error:
        say(error)
        return error.exit_code
    return ExitCode.SUCCESS


def _leave(code: int) -> None:
    """End at once where it failed: leaving in good order would wait for ranks that still expect this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
