"""The training's entry point: ``mpirun … python -m training_job.train --manifest … --data … (see JobArguments)``.

Two ranks on two cores train scikit-learn's digits to 0.98 validation accuracy in about 15 s, most of it
TensorFlow's start and the export.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shared.exit_codes import ExitCode
from shared.job_arguments import JobArguments
from shared.output_files import OutputFileError, put_optional
from training_job import process_environment
from training_job.errors import TrainingError, end_job, print_error
from training_job.job import Job, prepare
from training_job.liveness.interruptions import StopRequest
from training_job.machines import announce, check_launch


def main(argv: Sequence[str]) -> int:
    """Run the training; return the exit code."""
    stop = StopRequest()
    stop.listen()
    try:
        arguments = JobArguments.from_argv(argv)
        announce()
        check_launch(arguments)
        job = prepare(arguments, process_environment.launched_world_size())
        if arguments.expected_device == "gpu":
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # if TensorFlow finds no GPU, its warnings say why
        _train(job, stop)
    except TrainingError as error:
        print_error(error, process_environment.launched_rank())
        return error.exit_code
    except OutputFileError as error:
        print_error(error, process_environment.launched_rank())
        return ExitCode.OUTPUT
    return ExitCode.SUCCESS


def _train(job: Job, stop: StopRequest) -> None:
    with tempfile.TemporaryDirectory(prefix="timeline-") as local:
        process_environment.set_for(job.arguments, Path(local))
        # Imported here because it loads TensorFlow, so that a mistake in the arguments is reported sooner.
        from training_job.attempt import run

        try:
            run(job, stop)
        finally:
            put_optional(Path(local), Path(job.arguments.report))  # after a failure, its last second may be missing


def end_process(code: int) -> None:
    """End this process; after a failure, at once and together with all other ranks."""
    if code:
        end_job(code)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
