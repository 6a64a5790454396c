"""`landfall publish`: which clusters the pipelines need, and with which identity."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.errors import CliError
from cli.publish.command import clusters_of, publish
from cli.publish.workspace import AzureMlWorkspace, Cluster

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"
PIPELINE = yaml.safe_load((Path(__file__).parents[4] / "pipelines" / "digits.yaml").read_text())


def folder(path: Path, *pipelines: dict[str, object], nodes: int = 2) -> Path:
    """A folder with a pipeline for each of these attempts."""
    for number, attempts in enumerate(pipelines):
        name = f"digits{number}"
        train = PIPELINE["train"] | {"compute": "gpu", "num_nodes": nodes}
        text = yaml.safe_dump(PIPELINE | {"pipeline": name, "dataset": name, "train": train, "attempts": attempts})
        (path / f"{name}.yaml").write_text(text)
    return path


def test_clusters_of_further_attempts_are_made_too(tmp_path: Path) -> None:
    """Otherwise an attempt on another size would fail for want of its cluster."""
    other = {"compute": "other", "vm_size": "Standard_NC24ads_A100_v4", "processes_per_node": 1}
    found = clusters_of(folder(tmp_path, {"other_sizes": [other]}, nodes=6), max_nodes=4, identity=IDENTITY)
    size = PIPELINE["train"]["vm_size"]
    assert [
        Cluster(name="gpu", vm_size=size, needed_nodes=6, max_nodes=6, identity=IDENTITY),
        Cluster(name="other", vm_size="Standard_NC24ads_A100_v4", needed_nodes=6, max_nodes=6, identity=IDENTITY),
    ] == found


def test_two_sizes_for_one_cluster_are_refused(tmp_path: Path) -> None:
    """Also where one of them is that of a further attempt."""
    other = {"compute": "gpu", "vm_size": "Standard_NC24ads_A100_v4", "processes_per_node": 1}
    with pytest.raises(CliError, match="cluster gpu: pipelines name VM sizes"):
        clusters_of(folder(tmp_path, {"other_sizes": [other]}), max_nodes=4)


def test_a_compute_of_another_kind_is_no_cluster() -> None:
    """A compute instance of that name has no nodes to compare."""
    instance = SimpleNamespace(type="computeinstance", size="Standard_X", identity=None)
    client: Any = SimpleNamespace(
        compute=SimpleNamespace(get=lambda _: instance), resource_group_name="g", workspace_name="w"
    )
    wanted = Cluster(name="gpu", vm_size="Standard_X", needed_nodes=2, max_nodes=4, identity=IDENTITY)
    with pytest.raises(CliError, match="it is a compute of type computeinstance: name another cluster"):
        AzureMlWorkspace(client).ensure_cluster(wanted)


@pytest.mark.parametrize(
    "identity", ["landfall-cluster", "11111111-2222-3333-4444-555555555555", IDENTITY + "/x", ""]
)
def test_what_is_no_identity_is_refused_before_azure_is_asked(identity: str) -> None:
    """The message says which command prints it."""
    arguments = ["--subscription", "s", "--resource-group", "g", "--workspace", "w", "--cluster-identity", identity]
    result = CliRunner().invoke(publish, arguments)
    assert (2, True) == (result.exit_code, "az identity show --query id" in " ".join(result.output.split()))
