"""One rank of a job: redirects its output to its own log, then becomes the job's command.

    main LOG_DIR DISTRIBUTION RANKS_PER_NODE COMMAND

Under mpirun the log is std_log_process_<rank>.txt, as in Azure ML, otherwise std_log.txt. The command sees its
outputs as Azure ML's mounts, and reaches MLflow at an address of its own node, from which a child process forwards
to the emulator's socket. mpirun starts the ranks of every distribution, because it ends all ranks after the first
failure. Ranks of PyTorch and TensorFlow see the variables of their distribution and none of mpirun's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path

from local_azure.azure_ml.mounts import LIBRARY_VARIABLE
from local_azure.guard import die_with_parent


def log_name(rank: str | None) -> str:
    """Name of the log with this rank's output."""
    return "std_log.txt" if rank is None else f"std_log_process_{int(rank):02d}.txt"


_OF_MPIRUN = ("OMPI_", "PMIX_", "PRTE_", "PRTERUN_")


def as_started_by(distribution: str, ranks_per_node: int, variables: MutableMapping[str, str]) -> None:
    """Replace mpirun's variables of this rank by those that Azure ML sets for a distribution."""
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


SOCKET_VARIABLE = "LANDFALL_TWIN_TRACKING"
"""Path of the socket at which the emulator answers MLflow's calls."""
_CHUNK_BYTES = 1 << 16


def reach_tracking(variables: MutableMapping[str, str]) -> None:
    """Listen on this node's loopback and complete MLFLOW_TRACKING_URI with the port; a child process forwards."""
    path = variables.pop(SOCKET_VARIABLE, None)
    if path is None:
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}/"
        variables["MLFLOW_TRACKING_URI"] = variables["MLFLOW_TRACKING_URI"].replace("127.0.0.1:0/", address, 1)
        if os.fork() == 0:
            try:
                die_with_parent()
                _keep_only(server)
                _pass_on(server, path)
            finally:
                os._exit(1)


def _keep_only(server: socket.socket) -> None:
    """Close descriptors of the rank, such as its connection to mpirun."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, server.fileno())
    os.closerange(server.fileno() + 1, os.sysconf("SC_OPEN_MAX"))


def _pass_on(server: socket.socket, path: str) -> None:
    while True:
        connection = server.accept()[0]
        emulator = socket.socket(socket.AF_UNIX)
        try:
            emulator.connect(path)
        except OSError:  # The emulator was stopped, and ends the job.
            connection.close()
            emulator.close()
            continue
        for pair in ((connection, emulator), (emulator, connection)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy data until one side closes; then close both, which also ends the other direction."""
    with contextlib.suppress(OSError):
        while block := source.recv(_CHUNK_BYTES):
            target.sendall(block)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    target.close()


def main() -> None:
    """Redirect, then exec, so that no process remains between mpirun and the command."""
    log_dir, distribution, ranks_per_node, command = sys.argv[1:]
    die_with_parent()
    path = Path(log_dir) / log_name(os.environ.get("OMPI_COMM_WORLD_RANK"))
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    as_started_by(distribution, int(ranks_per_node), os.environ)
    reach_tracking(os.environ)
    if library := os.environ.get(LIBRARY_VARIABLE):
        os.environ["LD_PRELOAD"] = library  # only here and not in mpirun, which has no outputs
    os.execv("/bin/bash", ["bash", "-c", command])  # noqa: S606 - the job's command is a shell command
