"""Publishing registers what is missing, once, and prints the settings that refer to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.publish.assets import Containers, Publication, environment_version, publish
from cli.publish.workspace import Cluster, WorkspaceId
from tests.support.memory_workspace import MemoryWorkspace

W = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"


@pytest.fixture
def publication(tmp_path: Path) -> Publication:
    for name in ("shared/a.py", "training_job/b.py", "training_job/environment/Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return Publication(
        root=tmp_path,
        pipelines=tmp_path / "pipelines",
        identity=WorkspaceId(subscription="s", resource_group="g", workspace="w"),
        image="image:1",
        containers=Containers(data_account="data", host_account="host"),
        clusters=[Cluster(name="gpu", vm_size="Standard_X", max_nodes=4)],
    )


def test_everything_that_a_submission_refers_to_is_registered(publication: Publication) -> None:
    """Environment, code, three datastores and the clusters."""
    workspace = MemoryWorkspace()
    publish(publication, workspace, lambda _line: None)
    assert (
        ["image:1"],
        [["shared/a.py", "training_job/b.py"]],
        {"landfall_datasets": ("data", "datasets"), "landfall_state": ("host", "landfall")}
        | {"landfall_runs": ("host", "runs")},
        ["gpu"],
    ) == (
        list(workspace.environments.values()),
        list(workspace.codes.values()),
        workspace.datastores,
        list(workspace.clusters),
    )


def test_the_settings_refer_to_what_was_registered(publication: Publication) -> None:
    """Environment and code stand there by their full ids."""
    workspace = MemoryWorkspace()
    settings = publish(publication, workspace, lambda _line: None)
    [(_, environment)], [(_, code)] = workspace.environments, workspace.codes
    assert (
        f"{W}/environments/landfall-training/versions/{environment}",
        f"{W}/codes/landfall-training/versions/{code}",
    ) == (settings["LANDFALL_ENVIRONMENT_ID"], settings["LANDFALL_CODE_ID"])


def test_publishing_twice_creates_nothing_the_second_time(publication: Publication) -> None:
    """The second time says of everything that it is there already, and gives the same settings."""
    workspace, said = MemoryWorkspace(), list[str]()
    first = publish(publication, workspace, lambda _line: None)
    second = publish(publication, workspace, said.append)
    assert (first, []) == (second, [line for line in said if not line.endswith(": is there already")])


def test_accounts_that_are_not_named_leave_their_datastores_alone() -> None:
    """Only the data account's datastore is registered when only that account is given."""
    containers = Containers(data_account="data", host_account=None)
    assert {"landfall_datasets": ("data", "datasets")} == containers.by_datastore()


def test_an_environments_version_follows_its_image(publication: Publication) -> None:
    """Another image is another version; the same one is the same."""
    context = publication.root / "training_job" / "environment"
    versions = [environment_version(image, context) for image in ("image:1", "image:1", "image:2")]
    assert (True, False) == (versions[0] == versions[1], versions[1] == versions[2])


def test_a_built_environments_version_follows_its_files(publication: Publication) -> None:
    """A changed Dockerfile is another version."""
    context = publication.root / "training_job" / "environment"
    before = environment_version(None, context)
    (context / "Dockerfile").write_text("FROM other")
    assert before != environment_version(None, context)
