"""Real MPI jobs: several nodes and ranks under mpirun, with a log for each rank."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from local_azure.azurite import Azurite
from local_azure.processes import PATIENCE_S
from tests.support.azure_ml import WITHOUT_NETWORKS, AzureMl, mpi_job, start_with_cluster

pytestmark = [pytest.mark.azurite, pytest.mark.distributed, pytest.mark.xdist_group("azure_ml")]

SAY_WHO = (
    "import json, os; "
    "names = ['OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'AZUREML_RUN_ID', "
    "'AZUREML_ARM_WORKSPACE_NAME', 'COLOUR', 'IDENTITY_HEADER', 'LANDFALL_TWIN_STORAGE']; "
    "print(json.dumps([os.environ.get(name) for name in names]))"
)
ABOUT_NODE = (
    "import json, os, socket; "
    "names = ['AZ_BATCH_HOST_LIST', 'AZ_BATCH_MASTER_NODE', 'OMPI_COMM_WORLD_LOCAL_SIZE', "
    "'OMPI_COMM_WORLD_LOCAL_RANK', 'LANDFALL_SIMULATED_LOCAL_SIZE']; "
    "print(json.dumps([socket.gethostname(), *map(os.environ.get, names)]))"
)
ALLREDUCE = (
    "import horovod.tensorflow as hvd, tensorflow as tf; hvd.init(); "
    "print('sum', int(hvd.allreduce(tf.constant(hvd.rank() + 1), op=hvd.Sum)))"
)


def logs(emulator: AzureMl, job: str) -> dict[str, str]:
    """Return every user log of a job, read from storage by the URLs of the run history."""
    files = emulator.details(job)["logFiles"]
    return {
        name: httpx.get(url, timeout=PATIENCE_S).text for name, url in files.items() if name.startswith("user_logs/")
    }


def test_every_rank_runs_with_its_variables_and_its_own_log(emulator: AzureMl) -> None:
    """Two nodes with one process each have Open MPI's and Azure ML's variables, not the emulator's secrets."""
    body = mpi_job(f'python -c "{SAY_WHO}"', environmentVariables={"COLOUR": "blue"})
    emulator.put("jobs/two-ranks", body).raise_for_status()
    emulator.await_status("two-ranks", "Completed")
    said = {name: json.loads(text) for name, text in logs(emulator, "two-ranks").items()}
    common = ["2", "two-ranks", "landfall", "blue", None, None]
    expected = {f"user_logs/std_log_process_0{rank}.txt": [str(rank), *common] for rank in range(2)}
    assert expected == said


def about_nodes(emulator: AzureMl, job: str) -> list[list[str | None]]:
    """Run a job on two nodes of two processes; return what each rank reports about its node, by rank."""
    emulator.put(f"jobs/{job}", mpi_job(f'python -c "{ABOUT_NODE}"', processes=2)).raise_for_status()
    emulator.await_status(job, "Completed")
    logs = emulator.state / "runs" / job / "logs" / "user_logs"
    return [json.loads((logs / f"std_log_process_{rank:02d}.txt").read_text()) for rank in range(4)]


def launchers_words(emulator: AzureMl, job: str) -> str:
    """Return the first line of the launcher's log."""
    log = emulator.state / "runs" / job / "logs" / "system_logs" / "launcher.txt"
    return log.read_text().partition("\n")[0]


def test_each_node_is_a_host(emulator: AzureMl) -> None:
    """Names, addresses and local ranks are those that the launcher found."""
    if because := emulator.twin("GET", "cluster")["simulated_because"]:
        pytest.skip(because)
    listed = ["10.77.0.4,10.77.0.5", "10.77.0.4:6000", "2"]
    expected = [[f"node-{rank // 2}", *listed, str(rank % 2), None] for rank in range(4)]
    assert expected == about_nodes(emulator, "two-hosts")
    words = "The nodes are hosts on this machine: node-0 (10.77.0.4), node-1 (10.77.0.5)."
    assert words == launchers_words(emulator, "two-hosts")


def test_nodes_are_simulated_where_no_host_can_be_made(tmp_path: Path, azurite: Azurite) -> None:
    """Four ranks on this machine know how many each node has; the emulator and the job's log say why."""
    if subprocess.run([*WITHOUT_NETWORKS, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces either")
    emulator = start_with_cluster(tmp_path, azurite, within=WITHOUT_NETWORKS)
    listed = ["127.0.0.1,127.0.0.1", "127.0.0.1:6000", "4"]
    expected = [[socket.gethostname(), *listed, str(rank), "2"] for rank in range(4)]
    assert expected == about_nodes(emulator, "simulated")
    why = emulator.twin("GET", "cluster")["simulated_because"]
    assert f"The nodes are simulated and share this machine: {why}." == launchers_words(emulator, "simulated")
    assert why.startswith("network namespaces cannot be used: ")
    emulator.process.stop()


def test_a_rank_that_fails_ends_the_job_and_its_log_is_shown(emulator: AzureMl) -> None:
    """Mpirun ends the others, and the error quotes the rank that failed first."""
    command = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo rank one broke; exit 9; fi; sleep 300'
    emulator.put("jobs/one-breaks", mpi_job(command)).raise_for_status()
    emulator.await_status("one-breaks", "Failed")
    message = emulator.details("one-breaks")["error"]["error"]["message"]
    expected = "status code 9. Please check log file 'user_logs/std_log_process_01.txt' for error details. Error: "
    assert f"{expected}rank one broke\n" == message.partition("exited with ")[2]


@pytest.mark.slow
def test_horovod_reduces_over_the_ranks(emulator: AzureMl) -> None:
    """The training environment really communicates: 1 + 2 on both ranks."""
    body = mpi_job(f'python -W ignore -c "{ALLREDUCE}"', environmentVariables={"TF_CPP_MIN_LOG_LEVEL": "3"})
    emulator.put("jobs/allreduce", body).raise_for_status()
    emulator.await_status("allreduce", "Completed", timeout_s=240)
    sums = [text.splitlines()[-1] for text in logs(emulator, "allreduce").values()]
    assert ["sum 3", "sum 3"] == sums
