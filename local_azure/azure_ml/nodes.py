"""The nodes that a job's ranks are started on, and what can go wrong with them as it can on the service.

All nodes are this machine: how many ranks each has, and its GPUs, are what the emulator says they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from local_azure.azure_ml.faults import LaunchFault
from local_azure.azure_ml.spec import JobSpec
from local_azure.azure_ml.workspace import COMPUTES, Store
from shared.job_arguments import SIMULATED_GPUS, SIMULATED_LOCAL_SIZE
from shared.vm_sizes import vm_size


@dataclass(frozen=True, kw_only=True)
class SimulatedNodes:
    """The nodes of one launch: they share this machine, and their GPUs exist by name only."""

    ranks: int
    local_size: int
    """Number of ranks on each node."""
    gpus: int
    """Number of GPUs of each node."""

    def variables(self) -> dict[str, str]:
        """Return what tells the training what it cannot see for itself here."""
        return {SIMULATED_LOCAL_SIZE: str(self.local_size), SIMULATED_GPUS: str(self.gpus)}


def simulated_nodes(spec: JobSpec, store: Store, fault: LaunchFault | None) -> SimulatedNodes:
    """Return the nodes of a job: as many as it asks for, of its cluster's size, unless the launch is faulty."""
    local_size = spec.processes_per_instance or 1
    ranks = 1 if fault is LaunchFault.ONE_RANK else spec.instance_count * local_size
    if fault in (LaunchFault.ONE_RANK, LaunchFault.ONE_NODE):
        local_size = ranks
    compute = store.get(COMPUTES, spec.compute_id) or {"properties": {}}
    size = vm_size(str((compute["properties"].get("properties") or {}).get("vmSize")))
    gpus = size.num_gpus if size and fault is not LaunchFault.NO_GPU else 0
    return SimulatedNodes(ranks=ranks, local_size=local_size, gpus=gpus)
