"""The nodes of a launch, sound and faulty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_azure.azure_ml.faults import LaunchFault
from local_azure.azure_ml.nodes import SimulatedNodes, simulated_nodes
from local_azure.azure_ml.spec import job_spec
from local_azure.azure_ml.workspace import COMPUTES, Store


def nodes_of(folder: Path, vm_size: str | None, fault: LaunchFault | None) -> SimulatedNodes:
    """The nodes of a job of two nodes with four processes each, on a cluster of some size."""
    store = Store(folder / "state.sqlite3")
    if vm_size is not None:
        store.put(COMPUTES, "/computes/gpu", {"properties": {"properties": {"vmSize": vm_size}}})
    mpi = {"distributionType": "Mpi", "processCountPerInstance": 4}
    members: dict[str, Any] = {"command": "echo", "environmentId": "/e", "computeId": "/computes/gpu"}
    spec = job_spec({**members, "distribution": mpi, "resources": {"instanceCount": 2}})
    try:
        return simulated_nodes(spec, store, fault)
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
    nodes = nodes_of(tmp_path, vm_size, fault)
    assert expected == (nodes.ranks, nodes.local_size, nodes.gpus)
