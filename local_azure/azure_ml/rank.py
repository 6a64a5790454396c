"""One rank of a job: writes its output to a log of its own, then becomes the job's command.

    main LOG_DIR DISTRIBUTION RANKS_PER_NODE COMMAND

Under mpirun the log is std_log_process_<rank>.txt as Azure ML names it, otherwise std_log.txt. The command sees
its outputs as Azure ML mounts them. mpirun starts the ranks of every distribution here, because it ends them all with
the first that fails; those of PyTorch and TensorFlow see their own variables and none of mpirun's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from local_azure.azure_ml.mounts import LIBRARY_VARIABLE
from local_azure.guard import die_with_parent


def log_name(rank: str | None) -> str:
    """Name of the log that holds this rank's output."""
    return "std_log.txt" if rank is None else f"std_log_process_{int(rank):02d}.txt"


_OF_MPIRUN = ("OMPI_", "PMIX_", "PRTE_", "PRTERUN_")


def as_started_by(distribution: str, ranks_per_node: int, variables: MutableMapping[str, str]) -> None:
    """Turn mpirun's variables of this rank into those that Azure ML sets for a distribution."""
    if distribution in ("", "Mpi"):
        return
    rank = int(variables["OMPI_COMM_WORLD_RANK"])
    variables["LANDFALL_MOUNT_RANK"] = str(rank)
    for name in [name for name in variables if name.startswith(_OF_MPIRUN)]:
        del variables[name]
    if distribution == "TensorFlow":
        task = {"task": {"type": "worker", "index": rank}}
        variables["TF_CONFIG"] = json.dumps({**json.loads(variables["TF_CONFIG"]), **task})
        return
    node, local_rank = divmod(rank, ranks_per_node)
    variables.update(RANK=str(rank), LOCAL_RANK=str(local_rank), NODE_RANK=str(node))


def main() -> None:
    """Redirect, then exec: no process stays between mpirun and the command."""
    log_dir, distribution, ranks_per_node, command = sys.argv[1:]
    die_with_parent()
    path = Path(log_dir) / log_name(os.environ.get("OMPI_COMM_WORLD_RANK"))
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    as_started_by(distribution, int(ranks_per_node), os.environ)
    if library := os.environ.get(LIBRARY_VARIABLE):
        os.environ["LD_PRELOAD"] = library  # outputs as a mount; not in mpirun, which has none
    os.execv("/bin/bash", ["bash", "-c", command])  # noqa: S606 - the job's command is a shell command
