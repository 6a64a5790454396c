"""The clusters that pipelines name: which size each gets in its region, and whether one that exists fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.errors import CliError
from function_app.config.clusters import CLUSTERS_FILE, Cluster
from function_app.config.pipeline_files import load_clusters, read_pipelines
from shared.safe_text import counted
from shared.vm_sizes import is_quota_of, retirement, vm_size_names

if TYPE_CHECKING:
    from azure.ai.ml.entities import AmlCompute

    from function_app.config.environments import OwnEnvironment
    from function_app.config.own_files import OwnFiles

TIERS = {"dedicated": "dedicated", "low": "low_priority"}
"""Priority in clusters.yaml → Azure ML's name for it."""
MAX_SUGGESTED = 5
QUOTA_PAGE = "https://ml.azure.com/quota"


@dataclass(frozen=True, kw_only=True)
class WantedCluster:
    """A cluster that a pipeline names."""

    name: str
    cluster: Cluster
    needed_nodes: int
    """Nodes of the largest job that a pipeline submits to it."""
    identity: str | None = None
    """ARM id of the user-assigned identity with which its jobs mount the datastores."""


@dataclass(frozen=True, kw_only=True)
class OfferedSize:
    """A size that a region has."""

    vcpus: int
    family: str
    low_priority: bool = True


@dataclass(frozen=True, kw_only=True)
class Region:
    """What the workspace's region offers this subscription."""

    name: str
    sizes: Mapping[str, OfferedSize]
    """VM size in lower case → what it is."""
    quotas: Mapping[str, int]
    """Name of a quota → its limit, in vCPUs."""

    def refusal(self, vm_size: str, priority: str, num_nodes: int) -> str | None:
        """Return why nodes of a size are not available, None if they are."""
        if gone := retirement(vm_size, self.name):
            return gone
        offered = self.sizes.get(vm_size.lower())
        if offered is None:
            return f"{vm_size} is not offered in {self.name}"
        if priority == "low" and not offered.low_priority:
            return f"{vm_size} is not available with low priority in {self.name}"
        limit, needed = self._limit(offered, priority), offered.vcpus * num_nodes
        if limit is not None and limit < needed:
            return f"{num_nodes} nodes of {vm_size} need {needed} vCPUs, and the quota in {self.name} is {limit}"
        return None

    def _limit(self, size: OfferedSize, priority: str) -> int | None:
        """Return the limit of a size's family, None if no quota has its name."""
        found = (limit for name, limit in self.quotas.items() if is_quota_of(name, size.family, priority))
        return next(found, None)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The size that a cluster gets."""

    vm_size: str
    passed_over: tuple[str, ...] = ()
    """Why it did not get the preferred sizes."""

    @property
    def words(self) -> str:
        """The choice with its reasons."""
        return f"{self.vm_size}{', because ' if self.passed_over else ''}{'; '.join(self.passed_over)}"


def choose_size(wanted: WantedCluster, region: Region) -> Choice:
    """Return the first available size of a cluster's list.

    Raises CliError with the reasons if no size is available.
    """
    refusals: list[str] = []
    for size in wanted.cluster.sizes:
        refusal = region.refusal(size.vm_size, wanted.cluster.priority, wanted.needed_nodes)
        if refusal is None:
            return Choice(vm_size=size.vm_size, passed_over=tuple(refusals))
        refusals.append(refusal)
    others = [
        name for name in vm_size_names() if region.refusal(name, wanted.cluster.priority, wanted.needed_nodes) is None
    ]
    fix = f"add one that is, such as {', '.join(others[:MAX_SUGGESTED])}" if others else "ask Azure for quota"
    raise CliError(
        f"cluster {wanted.name}: none of its sizes in {CLUSTERS_FILE} is available; {fix}:\n"
        + "\n".join(f"  {refusal}" for refusal in refusals)
    )


def quota_to_request(wanted: WantedCluster, region: Region) -> list[str]:
    """Return the quota to request from Azure: for each size that the region has, that of its family."""
    lines = []
    for size in wanted.cluster.sizes:
        offered = region.sizes.get(size.vm_size.lower())
        if offered and not retirement(size.vm_size, region.name):
            kind = "low-priority" if wanted.cluster.priority == "low" else f"dedicated {offered.family}"
            needed = offered.vcpus * wanted.needed_nodes
            nodes = counted(wanted.needed_nodes, "node")
            lines.append(f"{needed} {kind} vCPUs in {region.name}, for {nodes} of {size.vm_size}")
    return lines


def wanted_clusters(pipelines: Path, *, identity: str | None = None) -> list[WantedCluster]:
    """Return each cluster that the pipelines name, also for further attempts, with the nodes of its largest job.

    Warns of wrong files. Raises PipelineError if the folder does not exist or clusters.yaml is wrong.
    """
    clusters = load_clusters(pipelines).clusters
    needed: dict[str, int] = {}
    read = read_pipelines(pipelines)
    for problem in (problem for problems in read.out_of_service.values() for problem in problems):
        click.echo(f"warning: left out, because its pipeline cannot be used: {problem}", err=True)
    for pipeline in read.pipelines.values():
        for name in (pipeline.train.cluster, *pipeline.attempts.other_clusters):
            needed[name] = max(pipeline.train.num_nodes, needed.get(name, 0))
    return [
        WantedCluster(name=name, cluster=clusters[name], needed_nodes=needed[name], identity=identity)
        for name in sorted(needed)
    ]


def wanted_environments(pipelines: Path) -> list[OwnEnvironment]:
    """Return the environments that the pipelines define, without duplicates."""
    found = (pipeline.environment for pipeline in read_pipelines(pipelines).pipelines.values())
    return list(dict.fromkeys(environment for environment in found if environment is not None))


def wanted_files(pipelines: Path) -> list[OwnFiles]:
    """Return the files that the pipelines define, without duplicates of the same content."""
    found = (pipeline.files for pipeline in read_pipelines(pipelines).pipelines.values())
    return list({files.version: files for files in found if files is not None}.values())


def new_cluster(wanted: WantedCluster, vm_size: str) -> AmlCompute:
    """Return the cluster to create. Raises CliError without an identity for it."""
    from azure.ai.ml.entities import AmlCompute, IdentityConfiguration, ManagedIdentityConfiguration

    if wanted.identity is None:
        raise CliError(
            f"cluster {wanted.name} does not exist. Its jobs mount the datastores with an identity: pass "
            "--cluster-identity with the ARM id of a user-assigned identity that has the roles Storage Blob Data "
            "Reader on the data and Storage Blob Data Contributor on the outputs."
        )
    identities = [ManagedIdentityConfiguration(resource_id=wanted.identity)]
    return AmlCompute(
        name=wanted.name,
        size=vm_size,
        tier=TIERS[wanted.cluster.priority],
        min_instances=wanted.cluster.min_nodes,
        max_instances=wanted.cluster.max_nodes,
        idle_time_before_scale_down=120,
        ssh_public_access_enabled=False,
        identity=IdentityConfiguration(type="user_assigned", user_assigned_identities=identities),
    )


def misfits(wanted: WantedCluster, found: Any, region: str, place: str) -> list[str]:
    """Return why the pipelines' jobs could not run on an existing compute, each reason with its fix.

    ``place`` are the options with which `az ml compute` finds it.
    """
    if found.type.lower() != "amlcompute":
        return [f"  it is a compute of type {found.type}: name another cluster in the pipelines"]
    return [*_unchangeable(wanted, found, region, place), *_changeable(wanted, found, place)]


def _unchangeable(wanted: WantedCluster, found: Any, region: str, place: str) -> Iterable[str]:
    """Yield the differences that need a new cluster."""
    remedy = (
        f"name another cluster in the pipelines, or delete this one and publish again: az ml compute delete {place}"
    )
    if wanted.cluster.size(found.size) is None:
        listed = ", ".join(size.vm_size for size in wanted.cluster.sizes)
        yield f"  its VM size is {found.size}, {CLUSTERS_FILE} lists {listed}. A size cannot be changed: {remedy}"
    elif gone := retirement(found.size, region):
        yield f"  {gone}, so it gets no nodes in {region}: {remedy}"
    tier = found.tier or TIERS["dedicated"]
    if tier != TIERS[wanted.cluster.priority]:
        yield (
            f"  its priority is {tier}, {CLUSTERS_FILE} says {wanted.cluster.priority}. A priority cannot be "
            f"changed: {remedy}"
        )


def _changeable(wanted: WantedCluster, found: Any, place: str) -> Iterable[str]:
    if (found.max_instances or 0) < wanted.needed_nodes:
        yield (
            f"  it has at most {counted(found.max_instances or 0, 'node')}, but a pipeline needs "
            f"{wanted.needed_nodes}: az ml compute update {place} --max-instances {wanted.needed_nodes}"
        )
    identities = [one.resource_id for one in (found.identity and found.identity.user_assigned_identities) or []]
    if not identities or (wanted.identity and wanted.identity.lower() not in map(str.lower, identities)):
        has = f"it has {', '.join(identities)}" if identities else "it has no user-assigned identity"
        yield (
            f"  {has}, and its jobs mount the datastores with one: az ml compute update {place} "
            f"--identity-type user_assigned --user-assigned-identities {wanted.identity or 'IDENTITY'}"
        )
