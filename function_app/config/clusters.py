"""The schema of ``clusters.yaml``: the clusters that pipelines name, and their machines in a deployment.

An Azure ML cluster's VM size cannot be changed. The file lists sizes in order of preference; `landfall publish` takes
the first that is available in the region and within the quota, and prints the choice as an app setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from function_app.config.fields import MAX_NODES, Section, VmSizeName, check_order
from shared.safe_text import setting_value
from shared.vm_sizes import check_gpus, retirement, vm_size

CLUSTERS_FILE = "clusters.yaml"
CLUSTER_SIZES = "LANDFALL_CLUSTER_SIZES"
"""The app setting with the size of each cluster: ``name=size``, separated by commas."""
MAX_CLUSTERS = 20


class ClusterSize(Section):
    """One size that a cluster may have."""

    vm_size: VmSizeName
    """VM size; it decides GPUs and network settings."""
    processes_per_node: int | None = Field(default=None, ge=1, le=16)
    """Processes on each node, at most one for each GPU. Null: one for each GPU, where their number is known."""
    price_per_node_hour: float | None = Field(default=None, gt=0)
    """Price of one node for one hour, in any currency; prices differ by region and contract."""

    @model_validator(mode="after")
    def _has_processes(self) -> Self:
        if self.processes_per_node is not None:
            check_gpus(self.vm_size, self.processes_per_node)
        elif vm_size(self.vm_size) is None:
            raise ValueError(f"processes_per_node is required, because the GPUs of {self.vm_size} are not known")
        return self


class Cluster(Section):
    """One cluster of Azure ML, by the name that pipelines use."""

    sizes: tuple[ClusterSize, ...] = Field(min_length=1, max_length=10)
    """VM sizes in order of preference: the cluster gets the first that is available in region and quota."""
    min_nodes: int = Field(default=0, ge=0, le=MAX_NODES)
    """Nodes that keep running, and costing money, without a job."""
    max_nodes: int = Field(default=4, ge=1, le=MAX_NODES)
    """Maximum number of nodes."""
    priority: Literal["dedicated", "low"] = "dedicated"
    """Low-priority nodes are cheaper and may be preempted at any time; the run then resumes from its checkpoint."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        check_order("min_nodes", self.min_nodes, "max_nodes", self.max_nodes)
        names = [size.vm_size.lower() for size in self.sizes]
        if len(set(names)) != len(names):
            raise ValueError(f"sizes must not repeat a VM size, got {', '.join(s.vm_size for s in self.sizes)}")
        if len({size.price_per_node_hour is None for size in self.sizes}) > 1:
            raise ValueError("price_per_node_hour must be stated for all sizes or for none")
        retired = [retirement(size.vm_size) for size in self.sizes]
        if all(retired):
            raise ValueError(f"all sizes are retired: {'; '.join(filter(None, retired))}; add a size that exists")
        return self

    def size(self, name: str) -> ClusterSize | None:
        """Return the size with that name, ignoring case; None if it is not in the list."""
        return next((size for size in self.sizes if size.vm_size.lower() == name.lower()), None)


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a cluster in a deployment."""

    cluster: str
    vm_size: str
    processes_per_node: int
    price_per_node_hour: float | None = None
    max_nodes: int = MAX_NODES
    gpu: str | None = None
    """Kind of the GPUs, such as ``A100``; None for a size that is not in the table."""


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """The clusters of the file, with their sizes."""

    clusters: Mapping[str, Cluster]
    sizes: Mapping[str, str] | None = None
    """Cluster → VM size in this deployment. None if files are read without a deployment: then the first size of each
    list.
    """

    def machines(self, name: str) -> Machines:
        """Return a cluster's machines. Raises ValueError if the cluster or its size is unknown."""
        cluster = self.clusters.get(name)
        if cluster is None:
            close = difflib.get_close_matches(name, self.clusters, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(self.clusters)}"
            raise ValueError(f"{name} is not in {CLUSTERS_FILE}; {hint}")
        size = self._size(name, cluster)
        known = vm_size(size.vm_size)
        return Machines(
            cluster=name,
            vm_size=size.vm_size,
            processes_per_node=size.processes_per_node or (known.num_gpus if known else 1),
            price_per_node_hour=size.price_per_node_hour,
            max_nodes=cluster.max_nodes,
            gpu=known.gpu if known else None,
        )

    def _size(self, name: str, cluster: Cluster) -> ClusterSize:
        if self.sizes is None:
            return cluster.sizes[0]
        remedy = f"run `landfall publish` and set {CLUSTER_SIZES} to what it prints"
        chosen = self.sizes.get(name)
        if chosen is None:
            raise ValueError(f"the app setting {CLUSTER_SIZES} does not say which size {name} has; {remedy}")
        size = cluster.size(chosen)
        if size is None:
            raise ValueError(
                f"the app setting {CLUSTER_SIZES} says that {name} has {setting_value(chosen)}, which is not among "
                f"its sizes in {CLUSTERS_FILE}; {remedy}"
            )
        if gone := retirement(size.vm_size):
            raise ValueError(f"the app setting {CLUSTER_SIZES} says that {name} has a retired size: {gone}; {remedy}")
        return size
