"""The nodes on which a job's ranks start, with the faults that nodes can have in the service.

If this machine allows it, each node is a host (hosts.py). Otherwise nodes are simulated: they share this machine, and
the emulator states the number of ranks of each. In both cases GPUs exist only by name.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from local_azure.azure_ml import hosts
from local_azure.azure_ml.faults import LaunchFault
from local_azure.azure_ml.spec import JobSpec
from local_azure.azure_ml.workspace import COMPUTES, Store
from shared.job_arguments import SIMULATED_GPUS, SIMULATED_LOCAL_SIZE
from shared.vm_sizes import vm_size

_LOOPBACK = "127.0.0.1"
_PYTORCH_PORT, _TENSORFLOW_PORT = 6105, 2222


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of one launch."""

    number: int
    ranks: int
    local_size: int
    """Number of ranks on each node that has ranks."""
    gpus: int
    """Number of GPUs of each node."""
    simulated_because: str | None
    """Why the nodes are simulated; None if each node is a host."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the nodes."""
        return [_LOOPBACK if self.simulated_because else hosts.address(node) for node in range(self.number)]

    def in_words(self) -> str:
        """Return the line of the launcher's log that describes the nodes."""
        if self.simulated_because:
            return f"The nodes are simulated and share this machine: {self.simulated_because}."
        known = (f"{hosts.name(node)} ({hosts.address(node)})" for node in range(self.number))
        return f"The nodes are hosts on this machine: {', '.join(known)}."

    def mpirun_options(self) -> list[str]:
        """Return the options that place the ranks."""
        if self.simulated_because:
            return ["-np", str(self.ranks), "--oversubscribe"]  # All share this machine's cores.
        used = self.addresses[: -(-self.ranks // self.local_size)]
        return ["-np", str(self.ranks), "--host", ",".join(f"{address}:{self.local_size}" for address in used)]

    def variables(self, folder: Path) -> Mapping[str, str]:
        """Return mpirun's variables for reaching the nodes, and those that describe the nodes to the training."""
        gpus = {SIMULATED_GPUS: str(self.gpus)}
        if self.simulated_because:
            return {**gpus, SIMULATED_LOCAL_SIZE: str(self.local_size)}
        return {**gpus, **hosts.agent_variables(folder)}

    def free_ports(self, usual: int) -> list[int]:
        """Return a free port of each node; simulated nodes share the ports of this machine."""
        if not self.simulated_because:
            return [usual] * self.number
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.create_server((_LOOPBACK, 0))) for _ in range(self.number)]
            return [server.getsockname()[1] for server in taken]

    def placed(self, command: list[str], folder: Path) -> list[str]:
        """Return the command that runs a command on the first node."""
        return command if self.simulated_because else hosts.on_hosts(self.number, folder, command)


def nodes_of(spec: JobSpec, store: Store, fault: LaunchFault | None, simulated_because: str | None) -> Nodes:
    """Return the nodes of a job: as many as requested, of the cluster's size, unless the launch has a fault."""
    local_size = spec.processes_per_instance or 1
    ranks = 1 if fault is LaunchFault.ONE_RANK else spec.instance_count * local_size
    if fault in (LaunchFault.ONE_RANK, LaunchFault.ONE_NODE):
        local_size = ranks
    compute = store.get(COMPUTES, spec.compute_id) or {"properties": {}}
    size = vm_size(str((compute["properties"].get("properties") or {}).get("vmSize")))
    return Nodes(
        number=spec.instance_count,
        ranks=ranks,
        local_size=local_size,
        gpus=size.num_gpus if size and fault is not LaunchFault.NO_GPU else 0,
        simulated_because=simulated_because,
    )


def meeting_variables(distribution: str | None, nodes: Nodes) -> Mapping[str, str]:
    """Return the variables with which all ranks of a job find each other; rank.py adds the number of each rank."""
    if distribution == "PyTorch":
        port = nodes.free_ports(_PYTORCH_PORT)[0]
        return {"MASTER_ADDR": nodes.addresses[0], "MASTER_PORT": str(port), "WORLD_SIZE": str(nodes.ranks)}
    if distribution == "TensorFlow":
        ports = nodes.free_ports(_TENSORFLOW_PORT)
        workers = [f"{address}:{port}" for address, port in zip(nodes.addresses, ports, strict=True)][: nodes.ranks]
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "environment": "cloud"})}
    return {}
