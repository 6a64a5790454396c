"""The real azure-ai-ml client manages computes, environments, code, datastores and models of the emulator."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.deploy.clusters import OfferedSize, WantedCluster
from cli.deploy.workspace import AzureMlWorkspace
from cli.errors import CliError
from function_app.config.clusters import Cluster, ClusterSize
from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT
from tests.support.azure_ml import WORKSPACE_ID, AzureMl, command_job

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities._assets import Code

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]


def wanted(name: str, *sizes: str) -> WantedCluster:
    """A low-priority cluster with sizes in order of preference, for jobs of two nodes."""
    cluster = Cluster(sizes=tuple(ClusterSize(vm_size=one, processes_per_node=1) for one in sizes), priority="low")
    return WantedCluster(name=name, cluster=cluster, needed_nodes=2, identity=IDENTITY)


def test_a_cluster_is_created_and_read(client: MLClient) -> None:
    """`compute.begin_create_or_update` polls until it succeeds, and `compute.get` returns the same."""
    from azure.ai.ml.entities import AmlCompute

    wanted = AmlCompute(
        name="gpu-a100", size="Standard_NC24ads_A100_v4", max_instances=3, idle_time_before_scale_down=60
    )
    created = client.compute.begin_create_or_update(wanted).result()
    read = client.compute.get("gpu-a100")
    assert ("gpu-a100", 0, 3, 60) == (
        created.name,
        read.min_instances,
        read.max_instances,
        read.idle_time_before_scale_down,
    )


def test_an_examined_cluster_says_what_does_not_fit_and_the_command(client: MLClient) -> None:
    """`landfall doctor` runs this check: nothing is created or changed."""
    cluster, workspace = wanted("examined", "Standard_ND96asr_v4"), AzureMlWorkspace(client)
    assert [("the workspace does not have it", "azd provision")] == workspace.examine(cluster)
    workspace.ensure_cluster(cluster)
    assert [] == workspace.examine(replace(cluster, identity=None))
    [(says, fix)] = workspace.examine(replace(cluster, needed_nodes=9))
    assert "it has at most 4 nodes, but a pipeline needs 9" == says
    assert fix.startswith("az ml compute update --name examined --resource-group ")
    assert fix.endswith(" --max-instances 9")


def test_publishing_creates_a_cluster_with_its_identity_and_then_leaves_it_alone(client: MLClient) -> None:
    """It has the first available size, scales from zero, has no SSH, and is not changed later."""
    cluster = wanted("published", "Standard_NC24rs_v3", "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5")
    workspace = AzureMlWorkspace(client)
    with pytest.raises(CliError, match="pass --cluster-identity with the ARM id"):
        workspace.ensure_cluster(replace(cluster, identity=None))
    made = [workspace.ensure_cluster(cluster), workspace.ensure_cluster(replace(cluster, identity=None))]
    found = client.compute.get("published")
    [identity] = found.identity.user_assigned_identities
    reason = (
        "Standard_NC24rs_v3 is retired in public regions in 2025; China North 3 and Jio India West until 2027-06-30"
    )
    assert [
        f"Standard_ND96asr_v4, because {reason}; its successor is Standard_ND96asr_v4",
        "Standard_ND96asr_v4",
    ] == [one.choice.words for one in made]
    assert ([True, False], "low_priority", 0, 4, False, IDENTITY) == (
        [one.created for one in made],
        found.tier,
        found.min_instances,
        found.max_instances,
        found.ssh_public_access_enabled,
        identity.resource_id,
    )


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (
            wanted("misfit", "Standard_ND96asr_v4"),
            "lists Standard_ND96asr_v4. A size cannot be changed: name another .* delete --name misfit --resource-",
        ),
        (
            wanted("misfit", "Standard_NC24ads_A100_v4"),
            "its priority is dedicated, clusters.yaml says low. A priority cannot be changed: name another",
        ),
        (
            replace(wanted("misfit", "Standard_NC24ads_A100_v4"), needed_nodes=9),
            "it has at most 3 nodes, but a pipeline needs 9: az ml compute update",
        ),
        (
            wanted("misfit", "Standard_NC24ads_A100_v4"),
            f"no user-assigned identity.* --user-assigned-identities {IDENTITY}",
        ),
    ],
)
def test_publishing_names_what_does_not_fit_and_the_command(
    client: MLClient, cluster: WantedCluster, said: str
) -> None:
    """A cluster of another size or priority, without an identity or too small is refused and not changed."""
    from azure.ai.ml.entities import AmlCompute

    small = AmlCompute(name="misfit", size="Standard_NC24ads_A100_v4", max_instances=3)
    client.compute.begin_create_or_update(small).result()
    with pytest.raises(CliError, match="cluster misfit exists and does not fit") as refused:
        AzureMlWorkspace(client).ensure_cluster(cluster)
    assert re.search(said, str(refused.value)), refused.value
    assert 3 == client.compute.get("misfit").max_instances


@pytest.mark.parametrize("size", ["Standard_NC6s_v3", "STANDARD_NC24RS_V3", "Standard_NC6", "Standard_X"])
def test_a_retired_or_unknown_size_is_refused_in_azure_s_words(client: MLClient, size: str) -> None:
    """The region is westeurope; the recorded refusal lists the sizes that exist."""
    from azure.ai.ml.entities import AmlCompute
    from azure.core.exceptions import HttpResponseError

    words = (
        f"(?s)InvalidPropertyValue.*The specified value {size} for property Cluster.Properties.VMSize is not a supp"
    )
    with pytest.raises(HttpResponseError, match=words):
        client.compute.begin_create_or_update(AmlCompute(name="retired", size=size))


@pytest.mark.parametrize(
    ("size", "tier"), [("Standard_ND96asr_v4", "dedicated"), ("Standard_NC24ads_A100_v4", "low_priority")]
)
def test_size_and_priority_of_a_cluster_cannot_be_changed(client: MLClient, size: str, tier: str) -> None:
    """They need a new cluster; only its bounds can be changed."""
    from azure.ai.ml.entities import AmlCompute
    from azure.core.exceptions import HttpResponseError

    for most in (2, 3):
        kept = AmlCompute(name="kept", size="Standard_NC24ads_A100_v4", max_instances=most)
        client.compute.begin_create_or_update(kept).result()
    with pytest.raises(HttpResponseError, match="of a cluster cannot be changed from"):
        client.compute.begin_create_or_update(AmlCompute(name="kept", size=size, tier=tier))
    assert 3 == client.compute.get("kept").max_instances


def test_a_cluster_gets_no_size_that_the_region_lacks(client: MLClient) -> None:
    """Nothing is created; the message says why, and which sizes are available."""
    from azure.core.exceptions import ResourceNotFoundError

    with pytest.raises(CliError) as refused:
        AzureMlWorkspace(client).ensure_cluster(
            wanted("nowhere-to-be", "Standard_NC24rs_v3", "Standard_ND128isr_X_v9")
        )
    assert (
        "cluster nowhere-to-be: none of its sizes in clusters.yaml is available; add one that is, such as "
        "Standard_NC24ads_A100_v4, "
    ) in str(refused.value)
    assert "\n  Standard_ND128isr_X_v9 is not offered in westeurope" in str(refused.value)
    with pytest.raises(ResourceNotFoundError):
        client.compute.get("nowhere-to-be")


def test_sizes_and_quotas_of_the_region_are_read(client: MLClient) -> None:
    """The client reports them, with its own members left unset."""
    region = AzureMlWorkspace(client).region()
    size = OfferedSize(vcpus=96, family="standardNDASRv4Family", low_priority=True)
    assert ("westeurope", size) == (region.name, region.sizes["standard_nd96asr_v4"])
    refusals = [region.refusal("Standard_ND96asr_v4", priority, 105) for priority in ("dedicated", "low")]
    assert 2 * ["105 nodes of Standard_ND96asr_v4 need 10080 vCPUs, and the quota in westeurope is 10000"] == refusals


def test_a_missing_cluster_is_a_404(client: MLClient) -> None:
    """The client raises its own not-found error."""
    from azure.core.exceptions import ResourceNotFoundError

    with pytest.raises(ResourceNotFoundError):
        client.compute.get("nowhere")


def test_clusters_are_listed(client: MLClient) -> None:
    """`compute.list` returns the cluster of the tests."""
    assert "cluster" in [compute.name for compute in client.compute.list()]


def test_an_environment_is_registered_and_found_by_label(client: MLClient) -> None:
    """A version is read by its number, and the newest by the label `latest`."""
    from azure.ai.ml.entities import Environment

    for version in ("1", "2"):
        client.environments.create_or_update(
            Environment(name="horovod", version=version, image=f"example/hvd:{version}")
        )
    by_version, latest = client.environments.get("horovod", "1"), client.environments.get("horovod", label="latest")
    assert (("example/hvd:1", "1"), "2") == ((by_version.image, by_version.version), latest.version)


def test_a_version_s_image_never_changes(client: MLClient) -> None:
    """Registered content is immutable: another image needs another version."""
    from azure.ai.ml.entities import Environment
    from azure.core.exceptions import HttpResponseError

    client.environments.create_or_update(Environment(name="fixed", version="1", image="example/a:1"))
    with pytest.raises(HttpResponseError, match="its image cannot be changed"):
        client.environments.create_or_update(Environment(name="fixed", version="1", image="example/b:1"))


def test_publishing_refuses_another_image_for_a_version(client: MLClient) -> None:
    """The deployment's settings name the version before its image is built; jobs must not use an earlier image."""
    workspace, first = AzureMlWorkspace(client), f"r.azurecr.io/i@sha256:{'1' * 64}"
    made = [workspace.ensure_environment("published", "1", image=first) for _ in range(2)]
    assert [True, False] == made
    with pytest.raises(CliError, match=r"environment published:1: expected image .*, got r.azurecr.io/i@sha256:1+"):
        workspace.ensure_environment("published", "1", image=f"r.azurecr.io/i@sha256:{'2' * 64}")


def test_packages_are_registered_as_a_conda_file(client: MLClient) -> None:
    """They are added to the image; the service receives YAML."""
    listed = ["python=3.11", {"pip": ["numpy==2.0.2"]}]
    AzureMlWorkspace(client).ensure_environment(
        "packages", "1", image=f"i@sha256:{'1' * 64}", conda_file=json.dumps({"name": "x", "dependencies": listed})
    )
    environment = client.environments.get("packages", "1")
    assert (f"i@sha256:{'1' * 64}", listed) == (environment.image, environment.conda_file["dependencies"])


@pytest.mark.filterwarnings("ignore::marshmallow.warnings.RemovedInMarshmallow4Warning")
def test_files_are_uploaded_once_and_a_job_reads_them(
    client: MLClient, emulator: AzureMl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are uploaded with this machine's identity, in blocks; the job's input names the asset read-only."""
    from azure.ai.ml import Input, command

    monkeypatch.setenv("LANDFALL_WORKSPACE_BLOB_URI", f"{emulator.url}/blob/{HOST_ACCOUNT}")
    (tmp_path / "large").write_bytes(b"x" * ((4 << 20) + 1))
    (tmp_path / "word").write_text("hello")
    files = {"large.bin": tmp_path / "large", "vocab/words.txt": tmp_path / "word"}
    name = f"brought-{uuid.uuid4()}"
    before = len(emulator.calls("/blob/"))
    made = [AzureMlWorkspace(client).ensure_files(name, "1", files) for _ in range(2)]
    writes = [call for call in emulator.calls("/blob/")[before:] if call["method"] == "PUT"]
    assert ([True, False], 4) == (made, len(writes))  # two blocks and their list, and one small file
    path = f"{WORKSPACE_ID}/data/{name}/versions/1"
    job = command(
        command="echo other > ${{inputs.files}}/vocab/words.txt || cat ${{inputs.files}}/vocab/words.txt; "
        "wc -c ${{inputs.files}}/large.bin; ls -l ${{inputs.files}}",
        environment=f"{WORKSPACE_ID}/environments/plain/versions/1",
        compute="cluster",
        name=name,
        inputs={"files": Input(type="uri_folder", path=path, mode="ro_mount")},
    )
    client.jobs.create_or_update(job)
    assert "Completed" == emulator.await_status(name)
    with emulator.http() as http:
        log = http.get(f"/twin/jobs/{name}/log").text
    assert [True, True, True] == [words in log for words in ("hello", str((4 << 20) + 1), "-r--r--r--")], log


@pytest.mark.parametrize(
    ("version", "body", "words"),
    [
        (
            "2",
            {"dataType": "uri_folder", "dataUri": "azureml://datastores/absent/paths/x/"},
            "Could not find datastore",
        ),
        ("1", {"dataType": "uri_folder"}, "'dataUri' is a required property"),
        (
            "1",
            {"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/y/"},
            "cannot be changed",
        ),
    ],
)
def test_data_that_the_service_would_not_take_are_refused(
    emulator: AzureMl, version: str, body: dict[str, str], words: str
) -> None:
    """A version's path is fixed, and must exist."""
    place = {"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/x/"}
    emulator.put("data/fixed/versions/1", {"properties": place}).raise_for_status()
    refused = emulator.put(f"data/fixed/versions/{version}", {"properties": body})
    assert (400, True) == (refused.status_code, words in refused.text), refused.text


def test_a_job_with_data_that_do_not_exist_is_refused(emulator: AzureMl) -> None:
    """It is refused before a node starts."""
    files = {"jobInputType": "uri_folder", "uri": f"{WORKSPACE_ID}/data/absent/versions/1", "mode": "ReadOnlyMount"}
    refused = emulator.put("jobs/reads-nothing", command_job("echo ok", inputs={"files": files}))
    assert (400, True) == (refused.status_code, "Could not find data" in refused.text)


def code_asset(folder: Path) -> Code:
    """Return a code asset with one file, under its own name."""
    from azure.ai.ml.entities._assets import Code

    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "say.py").write_text("print('hello from the snapshot')\n")
    return Code(name=str(uuid.uuid4()), version="1", path=str(folder / "src"))


def test_code_is_uploaded_and_runs(client: MLClient, emulator: AzureMl, tmp_path: Path) -> None:
    """The code is uploaded to the storage emulator, and a job finds it in its working directory."""
    code = client._code.create_or_update(code_asset(tmp_path))
    emulator.put("jobs/runs-code", command_job("python say.py", codeId=code.id)).raise_for_status()
    emulator.await_status("runs-code", "Completed")
    with emulator.http() as http:
        assert "hello from the snapshot\n" == http.get("/twin/jobs/runs-code/log").text


def test_the_same_code_is_uploaded_once(client: MLClient, emulator: AzureMl, tmp_path: Path) -> None:
    """The client first looks for the content hash, under any name, and reuses what it finds."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "unique.txt").write_text(str(uuid.uuid4()))
    first = client._code.create_or_update(code_asset(tmp_path))
    before = len(emulator.calls())
    second = client._code.create_or_update(code_asset(tmp_path))
    methods = [call["method"] for call in emulator.calls()[before:]]
    assert (first.id, ["GET", "GET"]) == (second.id, methods)


def test_a_datastore_is_registered_read_and_listed(client: MLClient) -> None:
    """A datastore names a container of an account; the built-in one is the default."""
    from azure.ai.ml.entities import AzureBlobDatastore

    client.datastores.create_or_update(
        AzureBlobDatastore(name="landfall_datasets", account_name=DATA_ACCOUNT, container_name="datasets")
    )
    read = client.datastores.get("landfall_datasets")
    assert (DATA_ACCOUNT, "datasets") == (read.account_name, read.container_name)
    assert "landfall_datasets" in [datastore.name for datastore in client.datastores.list()]
    assert "workspaceblobstore" == client.datastores.get_default().name


def test_a_model_gets_the_requested_version(client: MLClient, emulator: AzureMl) -> None:
    """A model of a job's output is registered under an explicit version, twice the same, and read back."""
    from azure.ai.ml.entities import Model

    outputs = {"model": {"jobOutputType": "custom_model", "mode": "ReadWriteMount"}}
    emulator.put("jobs/makes-model", command_job("echo ok", outputs=outputs)).raise_for_status()
    for _ in range(2):
        model = Model(
            name="digits", version="20", type="custom_model", path="azureml://jobs/makes-model/outputs/model"
        )
        client.models.create_or_update(model)
    read = client.models.get("digits", "20")
    assert ("20", ["20"]) == (read.version, [model.version for model in client.models.list("digits")])


def test_a_model_without_a_version_gets_the_next(client: MLClient, emulator: AzureMl) -> None:
    """Numeric versions are counted up."""
    from azure.ai.ml.entities import Model

    outputs = {"model": {"jobOutputType": "custom_model", "mode": "ReadWriteMount"}}
    emulator.put("jobs/makes-next", command_job("echo ok", outputs=outputs)).raise_for_status()
    path = "azureml://jobs/makes-next/outputs/model"
    versions = [
        client.models.create_or_update(Model(name="counted", type="custom_model", path=path)).version
        for _ in range(2)
    ]
    assert ["1", "2"] == versions


def test_a_model_of_a_job_that_does_not_exist_is_refused(client: MLClient) -> None:
    """The service registers no model without an existing source."""
    from azure.ai.ml.entities import Model
    from azure.core.exceptions import HttpResponseError

    model = Model(name="ghost", version="1", type="custom_model", path="azureml://jobs/absent/outputs/model")
    with pytest.raises(HttpResponseError, match="Could not find job 'absent'"):
        client.models.create_or_update(model)


def test_the_workspace_describes_itself(client: MLClient) -> None:
    """`workspaces.get` works for the workspace of the client."""
    assert "landfall" == client.workspaces.get("landfall").name


@pytest.mark.filterwarnings("ignore::marshmallow.warnings.RemovedInMarshmallow4Warning")
def test_a_job_may_bring_its_code_along(client: MLClient, emulator: AzureMl, tmp_path: Path) -> None:
    """`code=` and an inline environment are uploaded and registered, as users of the SDK expect."""
    from azure.ai.ml import command
    from azure.ai.ml.entities import Environment

    code_asset(tmp_path)
    job = command(
        command="python say.py",
        code=str(tmp_path / "src"),
        environment=Environment(image="example/inline:1"),
        compute="cluster",
        name="brings-code",
    )
    client.jobs.create_or_update(job)
    assert "Completed" == emulator.await_status("brings-code")
