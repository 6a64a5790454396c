"""How a job's processes are started, and why one ended badly."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from local_azure.azure_ml.launch import launch_of, missing_packages, process_failure, tail_of
from local_azure.azure_ml.nodes import Nodes
from local_azure.azure_ml.runs import Run, RunState
from local_azure.azure_ml.spec import job_spec
from local_azure.azure_ml.staging import RunDirectory, Staged

MPIRUN_SAYS = """prterun detected that one or more processes exited with non-zero status:
   Process name: [prterun-vm-1234@1,1] Exit code:    9
"""

A_RANK_SAYS = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"


@pytest.mark.parametrize(
    ("launcher", "logs", "expected"),
    [
        (A_RANK_SAYS, {"std_log_process_00.txt": "fine", "std_log_process_01.txt": "broke"}, ("process_01", "broke")),
        (MPIRUN_SAYS, {"std_log_process_00.txt": "fine", "std_log_process_01.txt": "broke"}, ("process_01", "broke")),
        ("", {"std_log_process_00.txt": "root", "std_log_process_01.txt": "other"}, ("process_00", "root")),
        (MPIRUN_SAYS, {"std_log_process_00.txt": "root"}, ("process_00", "root")),
        ("mpirun: not enough slots", {}, ("std_log", "mpirun: not enough slots")),
    ],
)
def test_the_log_that_tells_is_quoted(
    tmp_path: Path, launcher: str, logs: dict[str, str], expected: tuple[str, str]
) -> None:
    """The rank that failed first where mpirun names it, otherwise the root, otherwise the launcher."""
    (tmp_path / "launcher").write_text(launcher)
    (tmp_path / "logs").mkdir()
    for name, text in logs.items():
        (tmp_path / "logs" / name).write_text(text)
    message = process_failure(9, "python train.py --x", tmp_path / "launcher", tmp_path / "logs").message
    assert message.startswith("Execution failed. User process 'python' exited with status code 9. ")
    assert (True, True) == (f"{expected[0]}.txt'" in message, message.endswith(f"Error: {expected[1]}"))


def test_a_long_log_is_cut_at_a_line(tmp_path: Path) -> None:
    """Only complete lines of the end remain, whatever bytes are in them."""
    file = tmp_path / "log"
    file.write_bytes(b"first\n" + b"x" * 50 + b"\xff\nlast\n")
    assert ("last\n", "") == (tail_of(file, 20), tail_of(tmp_path / "absent"))


def test_ranks_are_started_on_the_nodes_that_the_launch_has(tmp_path: Path) -> None:
    """Here one rank, where two nodes with four processes were asked for; Azure ML's variables say nothing of it."""
    members = {"command": "echo", "environmentId": "/e", "computeId": "/c"}
    mpi = {"distributionType": "Mpi", "processCountPerInstance": 4}
    spec = job_spec({**members, "distribution": mpi, "resources": {"instanceCount": 2}})
    directory = RunDirectory(root=tmp_path, alias=tmp_path)
    staged = Staged(directory=directory, command="echo", inputs={}, outputs={}, mounts=[])
    workspace = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
    run = Run(name="r", workspace_id=workspace, properties={}, status=RunState.RUNNING, created_at="")
    nodes = Nodes(number=2, ranks=1, local_size=1, gpus=4, simulated_because="there is no ip(8)")
    launch = launch_of(run, spec, staged, tmp_path / "venv", nodes)
    stated = [launch.environment[f"LANDFALL_SIMULATED_{name}"] for name in ("LOCAL_SIZE", "GPUS")]
    assert (["-np", "1"], ["1", "4"], "2") == (
        launch.argv[1:3],
        stated,
        launch.environment["AZUREML_NODE_COUNT"],
    )


def test_packages_are_compared_with_those_of_the_virtual_environment() -> None:
    """The emulator installs nothing; Python and pip are its own."""
    version = importlib.metadata.version("PyYAML")
    sound = f"dependencies: [python=3.9, pip=1, conda-forge::pyyaml={version}, {{pip: ['pyyaml == {version} ; x']}}]"
    assert [] == missing_packages(sound, Path(sys.prefix)) == missing_packages(None, Path("/nowhere"))
    wrong = "dependencies: [{pip: ['nosuch[x]==1.0', pyyaml==0.1]}]"
    assert [
        "no matching distribution for nosuch[x]==1.0 (there is none)",
        f"no matching distribution for pyyaml==0.1 (there is {version})",
    ] == missing_packages(wrong, Path(sys.prefix))
