"""One rank of a job: writes its output to a log of its own, then becomes the job's command.

    main LOG_DIR COMMAND

Under mpirun the log is std_log_process_<rank>.txt as Azure ML names it, otherwise std_log.txt. The command sees
its outputs as Azure ML mounts them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from local_azure.azure_ml.mounts import LIBRARY_VARIABLE
from local_azure.guard import die_with_parent


def log_name(rank: str | None) -> str:
    """Name of the log that holds this rank's output."""
    return "std_log.txt" if rank is None else f"std_log_process_{int(rank):02d}.txt"


def main() -> None:
    """Redirect, then exec: no process stays between mpirun and the command."""
    log_dir, command = sys.argv[1:]
    die_with_parent()
    path = Path(log_dir) / log_name(os.environ.get("OMPI_COMM_WORLD_RANK"))
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if library := os.environ.get(LIBRARY_VARIABLE):
        os.environ["LD_PRELOAD"] = library  # outputs as a mount; not in mpirun, which has none
    os.execv("/bin/bash", ["bash", "-c", command])  # noqa: S606 - the job's command is a shell command
