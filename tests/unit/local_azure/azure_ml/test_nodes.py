"""The nodes of a launch, sound and faulty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_azure.azure_ml import nodes
from local_azure.azure_ml.faults import LaunchFault
from local_azure.azure_ml.nodes import Nodes, meeting_variables
from local_azure.azure_ml.rank import as_started_by
from local_azure.azure_ml.spec import job_spec
from local_azure.azure_ml.workspace import COMPUTES, Store


def nodes_of(folder: Path, vm_size: str | None, fault: LaunchFault | None, because: str | None = None) -> Nodes:
    """The nodes of a job of two nodes with four processes each, on a cluster of some size."""
    store = Store(folder / "state.sqlite3")
    if vm_size is not None:
        store.put(COMPUTES, "/computes/gpu", {"properties": {"properties": {"vmSize": vm_size}}})
    mpi = {"distributionType": "Mpi", "processCountPerInstance": 4}
    members: dict[str, Any] = {"command": "echo", "environmentId": "/e", "computeId": "/computes/gpu"}
    spec = job_spec({**members, "distribution": mpi, "resources": {"instanceCount": 2}})
    try:
        return nodes.nodes_of(spec, store, fault, because)
    finally:
        store.close()


@pytest.mark.parametrize(
    ("vm_size", "fault", "expected"),
    [
        ("STANDARD_NC24RS_V3", None, (8, 4, 4)),
        ("Standard_D4s_v5", None, (8, 4, 0)),
        (None, None, (8, 4, 0)),
        ("Standard_NC24rs_v3", LaunchFault.ONE_RANK, (1, 1, 4)),
        ("Standard_NC24rs_v3", LaunchFault.ONE_NODE, (8, 8, 4)),
        ("Standard_NC24rs_v3", LaunchFault.NO_GPU, (8, 4, 0)),
    ],
)
def test_nodes_have_what_their_cluster_has_unless_the_launch_is_faulty(
    tmp_path: Path, vm_size: str | None, fault: LaunchFault | None, expected: tuple[int, int, int]
) -> None:
    """Ranks, ranks on each node, GPUs of each node: those of the cluster, whatever the pipeline says."""
    found = nodes_of(tmp_path, vm_size, fault)
    assert (2, *expected) == (found.number, found.ranks, found.local_size, found.gpus)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (None, ["-np", "8", "--host", "10.77.0.4:4,10.77.0.5:4"]),
        (LaunchFault.ONE_RANK, ["-np", "1", "--host", "10.77.0.4:1"]),
        (LaunchFault.ONE_NODE, ["-np", "8", "--host", "10.77.0.4:8"]),
    ],
)
def test_the_launcher_gets_a_list_of_hosts(tmp_path: Path, fault: LaunchFault | None, expected: list[str]) -> None:
    """A faulty one uses less of it; nothing else tells the ranks how many there are on each node."""
    found = nodes_of(tmp_path, None, fault)
    assert (expected, ["10.77.0.4", "10.77.0.5"]) == (found.mpirun_options(), found.addresses)
    assert {"LANDFALL_SIMULATED_GPUS", "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"} == set(
        found.variables(tmp_path)
    )


def test_simulated_nodes_share_this_machine(tmp_path: Path) -> None:
    """No command enters another node; a variable says how many ranks each has."""
    found = nodes_of(tmp_path, None, None, because="there is no ip(8)")
    assert (["-np", "8", "--oversubscribe"], ["127.0.0.1"] * 2, ["true"]) == (
        found.mpirun_options(),
        found.addresses,
        found.placed(["true"], tmp_path),
    )
    assert {"LANDFALL_SIMULATED_GPUS": "0", "LANDFALL_SIMULATED_LOCAL_SIZE": "4"} == found.variables(tmp_path)
    assert "The nodes are simulated and share this machine: there is no ip(8)." == found.in_words()
    assert "node-0 (10.77.0.4), node-1 (10.77.0.5)." in nodes_of(tmp_path, None, None).in_words()


def test_ranks_of_other_launchers_meet_where_azure_ml_says() -> None:
    """Hosts use the usual port; simulated nodes share this machine, so each gets a free port."""
    hosts, simulated = (
        Nodes(number=2, ranks=ranks, local_size=ranks // 2, gpus=0, simulated_because=because)
        for ranks, because in ((4, None), (2, "there is no ip(8)"))
    )
    assert {"MASTER_ADDR": "10.77.0.4", "MASTER_PORT": "6105", "WORLD_SIZE": "4"} == meeting_variables(
        "PyTorch", hosts
    )
    config = json.loads(meeting_variables("TensorFlow", simulated)["TF_CONFIG"])
    first, second = config["cluster"]["worker"]
    assert ("cloud", True, True) == (config["environment"], first.startswith("127.0.0.1:"), first != second)
    assert {} == meeting_variables("Mpi", hosts) == meeting_variables(None, hosts)


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        ("PyTorch", {"RANK": "3", "LOCAL_RANK": "1", "NODE_RANK": "1"}),
        ("TensorFlow", {"TF_CONFIG": '{"cluster": {}, "task": {"type": "worker", "index": 3}}'}),
    ],
)
def test_a_rank_of_another_launcher_sees_nothing_of_mpirun(distribution: str, expected: dict[str, str]) -> None:
    """A script that asked Open MPI would work here, and not on Azure ML."""
    config = {"TF_CONFIG": '{"cluster": {}}'} if distribution == "TensorFlow" else {}
    variables = {**config, "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3", "HOME": "/root"}
    as_started_by(distribution, 2, variables)
    assert {**expected, "LANDFALL_MOUNT_RANK": "3", "HOME": "/root"} == variables
