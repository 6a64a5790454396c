"""The clusters that `landfall publish` creates, and which of its sizes each gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cli.deploy.clusters import OfferedSize, Region, WantedCluster, choose_size, wanted_clusters
from cli.deploy.workspace import AzureMlWorkspace
from cli.errors import CliError
from function_app.config.clusters import Cluster, ClusterSize

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"
PIPELINE = yaml.safe_load((Path(__file__).parents[4] / "pipelines" / "digits.yaml").read_text())
VOLTA, AMPERE, HOPPER = "Standard_NC24rs_v3", "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5"
CLUSTERS = {name: {"sizes": [{"vm_size": AMPERE}], "max_nodes": 8} for name in ("gpu", "other", "unused")}


def wanted(*sizes: str, priority: Any = "dedicated", nodes: int = 2) -> WantedCluster:
    """A cluster with sizes in order of preference."""
    cluster = Cluster(sizes=tuple(ClusterSize(vm_size=size) for size in sizes), priority=priority)
    return WantedCluster(name="gpu", cluster=cluster, needed_nodes=nodes, identity=IDENTITY)


def region(name: str = "westeurope", *, quotas: Mapping[str, int] | None = None, **sizes: OfferedSize) -> Region:
    """A region that offers all three sizes, with changes."""
    offered = {
        VOLTA.lower(): OfferedSize(vcpus=24, family="standardNCSv3Family"),
        AMPERE.lower(): OfferedSize(vcpus=96, family="standardNDASv4_A100Family"),
        HOPPER.lower(): OfferedSize(vcpus=96, family="standardNDSH100v5Family", low_priority=False),
    }
    return Region(name=name, sizes=offered | {key.lower(): size for key, size in sizes.items()}, quotas=quotas or {})


def folder(path: Path, *pipelines: dict[str, object], nodes: int = 2) -> Path:
    """A folder with a pipeline for each of these attempts."""
    (path / "clusters.yaml").write_text(json.dumps(CLUSTERS))
    for number, attempts in enumerate(pipelines):
        name = f"digits{number}"
        train = PIPELINE["train"] | {"cluster": "gpu", "num_nodes": nodes}
        text = yaml.safe_dump(PIPELINE | {"pipeline": name, "dataset": name, "train": train, "attempts": attempts})
        (path / f"{name}.yaml").write_text(text)
    return path


def test_clusters_of_further_attempts_are_made_too_and_no_others(tmp_path: Path) -> None:
    """Otherwise an attempt on another cluster would fail for want of it; one that no pipeline names is not needed."""
    found = wanted_clusters(folder(tmp_path, {"other_clusters": ["other"]}, nodes=6), identity=IDENTITY)
    assert [("gpu", 6, IDENTITY), ("other", 6, IDENTITY)] == [
        (one.name, one.needed_nodes, one.identity) for one in found
    ]


def test_a_pipeline_that_cannot_be_used_is_left_out_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are published."""
    (folder(tmp_path, {}) / "wrong.yaml").write_text("dataset: wrong\n")
    assert ["gpu"] == [one.name for one in wanted_clusters(tmp_path)]
    assert "warning: left out, because its pipeline cannot be used: wrong.yaml: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (region("chinanorth3"), VOLTA),
        (region(), AMPERE),
        (region(quotas={"Standard NDASv4_A100 Family Cluster Dedicated vCPUs": 192}), AMPERE),
        (region(quotas={"Standard NDASv4_A100 Family Cluster Dedicated vCPUs": 191}), HOPPER),
        (region(quotas={"standardNDASv4_A100Family": 0}), HOPPER),
        (region(quotas={"Total Cluster LowPriority Regional vCPUs": 0}), AMPERE),
    ],
)
def test_a_cluster_gets_the_first_size_that_region_and_quota_have(offered: Region, expected: str) -> None:
    """NCv3 where it still is; a quota must suffice for the largest job, and one without a name is no obstacle."""
    assert expected == choose_size(wanted(VOLTA, AMPERE, HOPPER), offered).vm_size


def test_the_choice_says_why_the_preferred_sizes_were_passed_over() -> None:
    """The sizes are listed in the order of preference."""
    quotas = {"Standard NDASv4_A100 Family Cluster Dedicated vCPUs": 100}
    words = choose_size(wanted(VOLTA, AMPERE, HOPPER), region(quotas=quotas)).words
    assert words.startswith(f"{HOPPER}, because {VOLTA} is retired")
    assert words.endswith(f"; 2 nodes of {AMPERE} need 192 vCPUs, and the quota in westeurope is 100")


def test_low_priority_has_a_quota_of_its_own_and_not_every_size() -> None:
    """The quota of the family is for dedicated nodes."""
    quotas = {"standardNDASv4_A100Family": 0, "Total Cluster LowPriority Regional vCPUs": 192}
    assert AMPERE == choose_size(wanted(HOPPER, AMPERE, priority="low"), region(quotas=quotas)).vm_size
    with pytest.raises(CliError) as refused:
        choose_size(wanted(HOPPER, AMPERE, priority="low", nodes=3), region(quotas=quotas))
    assert (
        "cluster gpu: none of its sizes in clusters.yaml is available; ask Azure for quota:\n"
        f"  {HOPPER} is not available with low priority in westeurope\n"
        f"  3 nodes of {AMPERE} need 288 vCPUs, and the quota in westeurope is 192"
    ) == str(refused.value)


def client(found: Any, location: str = "westeurope") -> Any:
    """A client of a workspace with one compute."""
    return SimpleNamespace(
        compute=SimpleNamespace(get=lambda _: found),
        workspaces=SimpleNamespace(get=lambda _: SimpleNamespace(location=location)),
        resource_group_name="g",
        workspace_name="w",
    )


def test_a_compute_of_another_kind_is_no_cluster() -> None:
    """A compute instance of that name has no nodes to compare."""
    instance = SimpleNamespace(type="computeinstance", size=AMPERE, identity=None)
    with pytest.raises(CliError, match="it is a compute of type computeinstance: name another cluster"):
        AzureMlWorkspace(client(instance)).ensure_cluster(wanted(AMPERE))


@pytest.mark.parametrize(("location", "fits"), [("westeurope", False), ("ChinaNorth3", True)])
def test_a_cluster_of_a_size_that_was_retired_since_gets_no_nodes(location: str, *, fits: bool) -> None:
    """It exists until it is deleted, and its jobs would wait for nodes for ever."""
    identity = SimpleNamespace(user_assigned_identities=[SimpleNamespace(resource_id=IDENTITY)])
    old = SimpleNamespace(type="amlcompute", size=VOLTA.upper(), tier=None, max_instances=4, identity=identity)
    workspace = AzureMlWorkspace(client(old, location))
    if fits:
        assert VOLTA == workspace.ensure_cluster(wanted(VOLTA, AMPERE)).choice.vm_size
        return
    with pytest.raises(
        CliError, match="so it gets no nodes in westeurope: name another cluster in the pipelines, or d"
    ):
        workspace.ensure_cluster(wanted(VOLTA, AMPERE))
