"""What a workspace's clusters have now, and how many nodes the region's quotas are enough for."""

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
    """A cluster of the workspace, as it is now."""

    num_nodes: int
    """Nodes that are up, start or leave."""
    max_nodes: int


@dataclass(frozen=True, kw_only=True)
class OfferedFamily:
    """A VM size that the region offers."""

    name: str
    """The family, by which Azure grants quota."""
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
    """What a workspace has, and what its region may give it."""

    clusters: Mapping[str, ClusterNow] = field(default_factory=dict)
    """Name → cluster."""
    families: Mapping[str, OfferedFamily] = field(default_factory=dict)
    """VM size in lower case → its family."""
    quotas: tuple[Quota, ...] = ()
    refusal: str | None = None
    """Why families and quotas are not known; None if they are."""

    def quota_of(self, vm_size: str, priority: str) -> tuple[Quota, int] | None:
        """Return the quota that limits a size, and the vCPUs of one node; None if no quota has its name."""
        family = self.families.get(vm_size.lower())
        if family is None or family.vcpus < 1:
            return None
        found = (one for one in self.quotas if is_quota_of(one.name, family.name, priority))
        return next(((one, family.vcpus) for one in found), None)
