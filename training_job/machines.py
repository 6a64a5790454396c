"""Compare the machines that a job requested with those that it has: ranks, nodes, and a GPU for each rank.

A launcher may start fewer ranks than were asked for, or all of them on one node, and TensorFlow computes on the CPU
if it finds no GPU. Neither fails by itself, and both cost the full price. As a program it checks before a user's own
script: ``python -m training_job.machines scripts/mine.py --data … (see ScriptArguments)``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from shared.exit_codes import ExitCode
from shared.job_arguments import SIMULATED_GPUS, SIMULATED_LOCAL_SIZE, JobArguments, ScriptArguments
from shared.progress import MAX_HOSTS, RankPlace
from training_job.errors import MissingResourcesError, TrainingError, print_error
from training_job.process_environment import launched, launched_rank

SIMULATED_DEVICE = "simulated"
"""The device of a local twin's rank instead of a GPU: the cores of this machine."""
LOOK_WITHIN_S = 300.0
NODES = "AZ_BATCH_HOST_LIST"
"""Variable in which Azure ML names the addresses of the job's nodes, separated by commas."""
_COUNT_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


Expected = JobArguments | ScriptArguments
"""The arguments with which a job was submitted."""


def launched_local_size() -> int:
    """Return the number of ranks on this node as the launcher states it, 1 without a launcher.

    Simulated nodes of the local twin share one machine, so that the launcher cannot count the ranks of each.
    """
    simulated = os.environ.get(SIMULATED_LOCAL_SIZE)
    return int(simulated or launched().local_size)


def nodes_are_simulated() -> bool:
    """Return whether this is a rank of a local twin whose nodes share a machine."""
    return SIMULATED_LOCAL_SIZE in os.environ


def nodes_in_use(world_size: int, connected: int) -> int:
    """Return the number of nodes: those that Horovod connected, or the simulated ones of the local twin."""
    simulated = os.environ.get(SIMULATED_LOCAL_SIZE)
    return -(-world_size // int(simulated)) if simulated else connected


def simulated_device() -> str | None:
    """Return the device of a rank of the local twin whose node has a simulated GPU for each rank, otherwise None."""
    return SIMULATED_DEVICE if int(os.environ.get(SIMULATED_GPUS, "0")) >= launched_local_size() else None


def announce(met: Sequence[str] = ()) -> None:
    """Print this rank's host, and the hosts of the ranks that it is connected to."""
    rank, local_size = launched_rank(), launched_local_size()
    nodes = tuple(dict.fromkeys(filter(None, os.environ.get(NODES, "").split(","))))
    place = RankPlace(
        rank=rank,
        world_size=launched().world_size,
        node=rank // max(1, local_size),
        host=socket.gethostname(),
        nodes=nodes[:MAX_HOSTS],
        met=tuple(dict.fromkeys(met))[:MAX_HOSTS],
    )
    print(place.to_line(), flush=True)


def check_launch(arguments: Expected) -> None:
    """Compare the launcher's variables with what the job requested, before TensorFlow or MPI is loaded.

    Raises MissingResourcesError.
    """
    size, on_this_node = launched().world_size, launched_local_size()
    wanted, nodes = arguments.expected_world_size, arguments.expected_nodes
    too_few = wanted and size != wanted
    elsewhere = wanted and nodes and on_this_node * nodes != wanted
    if too_few or elsewhere:
        seen = f"the launcher started {size}, {on_this_node} of them on this node"
        if launched().by is None:
            seen = "this process was started without mpirun, as the only rank"
        raise MissingResourcesError(f"Expected {_expected(arguments)}; {seen}.")


def check_world(arguments: Expected, world_size: int, num_nodes: int) -> None:
    """Compare the connected ranks with what the job requested. Raises MissingResourcesError."""
    wanted, nodes = arguments.expected_world_size, arguments.expected_nodes
    if (wanted and world_size != wanted) or (nodes and num_nodes != nodes):
        seen = f"Horovod connected {_count(world_size, 'rank')} on {_count(num_nodes, 'node')}"
        raise MissingResourcesError(f"Expected {_expected(arguments)}; {seen}.")


def check_devices(arguments: Expected, with_gpu: int, world_size: int) -> None:
    """Compare the number of ranks that have a GPU with what the job requested. Raises MissingResourcesError."""
    if arguments.expected_device == "gpu" and with_gpu != world_size:
        raise MissingResourcesError(
            f"Expected a GPU for each of {_count(world_size, 'rank')}; TensorFlow has one on {with_gpu}. "
            "Ranks without a GPU say why in their logs; often the driver or a CUDA library is missing."
        )


def _expected(arguments: Expected) -> str:
    ranks, nodes = _count(arguments.expected_world_size, "rank"), arguments.expected_nodes
    return f"{ranks} on {_count(nodes, 'node')}" if nodes else ranks


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- before a user's own script ------------------------------------------------------------------------------
def main(argv: Sequence[str]) -> int:
    """Check, then become the script with its own flags; return the exit code if a check fails."""
    script, *words = argv
    try:
        arguments = ScriptArguments.from_argv(words)
        announce()
        check_launch(arguments)
        if arguments.expected_device == "gpu" and simulated_device() is None and _is_first_of_node():
            check_devices_of_node(launched_local_size())
    except TrainingError as error:
        print_error(error, launched_rank())
        return error.exit_code
    return become(script, arguments)


def become(script: str, arguments: ScriptArguments) -> NoReturn:
    """Run the script in this very process, so that signals, exit code and rank are its own."""
    sys.stdout.flush()
    own = written_by(launched_rank(), arguments)
    environment = {**os.environ, **own.environment()}
    os.execve(sys.executable, [sys.executable, script, *own.to_script()], environment)  # noqa: S606 (the pipeline's)


def written_by(rank: int, arguments: ScriptArguments) -> ScriptArguments:
    """Return the paths of a rank: only rank 0 writes the model and the report, with any launcher.

    Others get a folder on their node's disk. Frameworks such as TensorFlow's strategies have every rank save, since
    saving is a collective operation; several writers of one output would leave a mixture.
    """
    if rank == 0:
        return arguments
    folder = Path(tempfile.mkdtemp(prefix=f"landfall-rank-{rank}-"))
    (folder / "model").mkdir()
    return replace(arguments, output=str(folder / "model"), report=str(folder / Path(arguments.report).name))


def check_devices_of_node(num_ranks: int) -> None:
    """Let TensorFlow count this node's GPUs, in a process that ends. Raises MissingResourcesError.

    A script may set TensorFlow up as it likes, so TensorFlow must not be loaded in the script's own process.
    TensorFlow writes to this rank's log why it finds no GPU. If it cannot be loaded at all, the script reports that
    itself.
    """
    expected = f"Expected a GPU for each of {_count(num_ranks, 'rank')} of this node"
    try:
        looking = subprocess.run(  # noqa: S603 (this interpreter)
            [sys.executable, "-c", _COUNT_GPUS],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=LOOK_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        seen = f"TensorFlow did not count them within {LOOK_WITHIN_S:g} s"
        raise MissingResourcesError(f"{expected}; {seen}.") from error
    if looking.returncode == ExitCode.SUCCESS and (found := int(looking.stdout.split()[-1])) < num_ranks:
        raise MissingResourcesError(f"{expected}; TensorFlow finds {_count(found, 'GPU')}.")


def _is_first_of_node() -> bool:
    return launched().local_rank == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
