"""The current nodes of a workspace's clusters, and the number of nodes that the region's quotas allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.vm_sizes import is_quota_of

READING = "Microsoft.MachineLearningServices/locations/usages/read"
ROLE_MISSING = (
    f"the app's identity may not read the region's quotas, which takes {READING}, as the role Reader of the "
    "subscription has it; `landfall publish` checks them with your own rights"
)


@dataclass(frozen=True, kw_only=True)
class ClusterNow:
    """The current state of a cluster of the workspace."""

    num_nodes: int
    """Nodes that are running, starting or leaving."""
    max_nodes: int


@dataclass(frozen=True, kw_only=True)
class OfferedFamily:
    """A VM size that the region offers."""

    name: str
    """The VM family: Azure grants quota for each family."""
    vcpus: int
    """vCPUs of one node."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota of the region, in vCPUs."""

    name: str
    used: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The clusters of a workspace, and the VM sizes and quotas of its region."""

    clusters: Mapping[str, ClusterNow] = field(default_factory=dict)
    """Name → cluster."""
    families: Mapping[str, OfferedFamily] = field(default_factory=dict)
    """VM size in lower case → VM family."""
    quotas: tuple[Quota, ...] = ()
    refusal: str | None = None
    """Why families and quotas are unknown; None if they are known."""

    def quota_of(self, vm_size: str, priority: str) -> tuple[Quota, int] | None:
        """Return the quota that limits a VM size, and the vCPUs of one node; None if there is no such quota."""
        family = self.families.get(vm_size.lower())
        if family is None or family.vcpus < 1:
            return None
        found = (one for one in self.quotas if is_quota_of(one.name, family.name, priority))
        return next(((one, family.vcpus) for one in found), None)
