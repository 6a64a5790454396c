"""The adapters with the real client: calls, faults, and the internals of the pinned SDK that they use."""

from __future__ import annotations

import importlib.metadata
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from function_app.adapters.azure_ml import AzureMLJobs, WorkspaceClient
from function_app.adapters.azure_ml_logs import JobLogs
from function_app.adapters.connections import StorageConnection
from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from function_app.planning.job_body import job_body
from local_azure.azurite import Azurite
from tests.chaos.storage_proxy import StorageFault, storage_proxy, through
from tests.contract.function_app.azure_ml_benches import DATASTORES, job_spec
from tests.support.azure_ml import WORKSPACE_ID, AzureMl

pytestmark = pytest.mark.azurite

INPUTS = {
    "manifest": {"type": "uri_file", "uri": f"{DATASTORES}/landfall_state/paths/manifests/digits/v1/g1.json"},
    "data": {"type": "uri_folder", "uri": f"{DATASTORES}/landfall_datasets/paths/digits/v1/"},
}
OUTPUTS = {
    "report": {"type": "uri_folder", "uri": f"{DATASTORES}/landfall_runs/paths/digits/v1/run/a1/report"},
    "model": {"type": "custom_model", "uri": f"{DATASTORES}/landfall_runs/paths/digits/v1/run/a1/model"},
}


@pytest.fixture
def jobs(workspace_client: WorkspaceClient) -> AzureMLJobs:
    """The adapter."""
    return AzureMLJobs(workspace_client)


def fault(emulator: AzureMl, path: str, *, method: str = "PUT", times: int = 1, **do: Any) -> None:
    """Script the responses to the next calls."""
    emulator.twin("POST", "faults", {"match": {"method": method, "path": path}, "times": times, "do": do})


def test_a_submission_is_one_put(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """All assets are registered already, so nothing is looked up or uploaded."""
    spec = job_spec(inputs=INPUTS, outputs=OUTPUTS)
    before = len(azure_ml.calls("/subscriptions/"))
    jobs.submit(spec)
    calls = [(call["method"], call["path"]) for call in azure_ml.calls("/subscriptions/")[before:]]
    jobs.cancel(spec.name)
    assert [("PUT", f"{WORKSPACE_ID}/jobs/{spec.name}")] == calls


def test_the_body_says_what_the_spec_says(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """Mounts, distribution, time limit and full ids have the form that the service requires."""
    spec = job_spec(inputs=INPUTS, outputs=OUTPUTS, num_nodes=2, processes_per_node=3)
    jobs.submit(spec)
    sent = azure_ml.get(f"jobs/{spec.name}")["properties"]
    jobs.cancel(spec.name)
    expected = {
        "command": spec.command,
        "environmentId": spec.environment_id,
        "codeId": spec.code_id,
        "computeId": f"{WORKSPACE_ID}/computes/cluster",
        "experimentName": spec.experiment,
        "displayName": spec.display_name,
        "environmentVariables": dict(spec.environment_variables),
        "tags": dict(spec.tags),
        "distribution": {"distributionType": "Mpi", "processCountPerInstance": 3},
        "limits": {"jobLimitsType": "Command", "timeout": "PT10M"},
    }
    assert expected == {name: sent[name] for name in expected}
    assert (2, "1g") == (sent["resources"]["instanceCount"], sent["resources"]["shmSize"])
    inputs = {(one["jobInputType"], one["mode"], one["uri"]) for one in sent["inputs"].values()}
    assert {(one["type"], "ReadOnlyMount", one["uri"]) for one in INPUTS.values()} == inputs
    outputs = {(one["jobOutputType"], one["mode"], one["uri"]) for one in sent["outputs"].values()}
    assert {(one["type"], "ReadWriteMount", one["uri"]) for one in OUTPUTS.values()} == outputs


def says(sent: Any, planned: Any) -> bool:
    """Whether a stored body contains a plan; the SDK and the service add empty members."""
    if isinstance(planned, dict):
        return isinstance(sent, dict) and all(
            name in sent and says(sent[name], value) for name, value in planned.items()
        )
    return bool(sent == planned)


@pytest.mark.parametrize("timeout_s", [61, 600, 86400, 93784])
def test_a_plan_shows_the_body_that_is_sent(
    jobs: AzureMLJobs, workspace_client: WorkspaceClient, azure_ml: AzureMl, timeout_s: int
) -> None:
    """It leaves out only what carries no information: empty members, and what the service adds."""
    spec = job_spec(inputs=INPUTS, outputs=OUTPUTS, num_nodes=2, processes_per_node=3, timeout_s=timeout_s)
    planned = job_body(spec, workspace_client.workspace)["properties"]
    jobs.submit(spec)
    sent = azure_ml.get(f"jobs/{spec.name}")["properties"]
    jobs.cancel(spec.name)

    assert says(sent, planned), {name: (sent.get(name), value) for name, value in planned.items()}
    added = {
        name: value for name, value in sent.items() if name not in planned and value not in (None, {}, [], False, "")
    }
    assert {"status", "services", "properties"} >= set(added)


@pytest.mark.parametrize(
    ("distribution", "processes", "expected"),
    [
        ("pytorch", 3, {"distributionType": "PyTorch", "processCountPerInstance": 3}),
        ("tensorflow", 1, {"distributionType": "TensorFlow", "workerCount": 2, "parameterServerCount": 0}),
    ],
)
def test_other_launchers_get_the_body_that_the_service_wants(
    workspace_client: WorkspaceClient, azure_ml: AzureMl, distribution: Any, processes: int, expected: dict[str, Any]
) -> None:
    """The rest of the job is the same; the emulator's schema accepts no other members."""
    jobs = AzureMLJobs(workspace_client)
    spec = job_spec(num_nodes=2, processes_per_node=processes, distribution=distribution)
    jobs.submit(spec)
    sent = azure_ml.get(f"jobs/{spec.name}")["properties"]
    jobs.cancel(spec.name)
    assert (expected, 2) == (sent["distribution"], sent["resources"]["instanceCount"])
    assert expected == job_body(spec, workspace_client.workspace)["properties"]["distribution"]


def test_a_service_that_stays_away_is_unavailable(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """After the client's own retries, the queue delivers the request again."""
    spec = job_spec()
    fault(azure_ml, f"/jobs/{spec.name}", times=4, status=429, retry_after_s=0)
    with pytest.raises(ServiceUnavailableError, match=spec.name):
        jobs.submit(spec)


def test_an_answer_lost_after_the_effect_meets_the_job(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """The client repeats the same PUT, so there is one job."""
    spec = job_spec("Completed")
    fault(azure_ml, f"/jobs/{spec.name}", drop_after=True)
    jobs.submit(spec)
    assert "Completed" == azure_ml.await_status(spec.name)


def test_a_taken_name_with_our_spec_hash_is_ours(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """If the service finds a difference in an equal job, the hash decides that it was submitted already."""
    spec = job_spec()
    jobs.submit(spec)
    do: dict[str, Any] = {
        "status": 400,
        "code": "UserError",
        "message": "A job with this name already exists. It cannot be changed.",
    }
    fault(azure_ml, f"/jobs/{spec.name}", **do)
    met = jobs.submit(spec)
    jobs.cancel(spec.name)
    assert spec.name == met.name


def test_what_the_service_will_never_take_is_refused(jobs: AzureMLJobs) -> None:
    """A compute that does not exist will not exist at the next delivery either."""
    with pytest.raises(SubmissionRefusedError, match="no-such-compute"):
        jobs.submit(job_spec(compute="no-such-compute"))


def test_a_missing_role_says_where_to_look(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """It is the most common mistake of a first deployment."""
    spec = job_spec()
    fault(azure_ml, f"/jobs/{spec.name}", status=403, code="AuthorizationFailed", message="no right")
    with pytest.raises(SubmissionRefusedError, match="role on the workspace"):
        jobs.submit(spec)


def test_the_sdk_is_the_one_whose_inside_we_read(workspace_client: WorkspaceClient) -> None:
    """Logs come from ``jobs._runs_operations``: read azure_ml_logs.py before changing the pinned version."""
    operations = workspace_client.get().jobs._runs_operations
    assert ("1.35.2", True) == (importlib.metadata.version("azure-ai-ml"), callable(operations.get_run_details))


LOG = "user_logs/std_log_process_0.txt"


def client_of_a_run(address: str) -> Any:
    """Replace the client by one that knows a single run, with a log at a URL."""
    details = SimpleNamespace(log_files={LOG: address})
    operations = SimpleNamespace(get_run_details=lambda _: details)
    return SimpleNamespace(jobs=SimpleNamespace(_runs_operations=operations))


def test_a_log_that_is_refused_once_is_read_over_the_same_connection(
    azurite: Azurite, host_storage: StorageConnection, unique: str
) -> None:
    """The SDK does not read the first response when it retries, so the connection would stay open until collected."""
    host_storage.blob_service.create_container(unique, public_access="blob")
    host_storage.blob_service.get_blob_client(unique, LOG).upload_blob(b"epoch 1\nepoch 2\n")
    refusals, threads = [StorageFault.BUSY], set[threading.Thread]()

    def refuse_the_first_download(_service: str, verb: str, _path: str) -> StorageFault | None:
        threads.add(threading.current_thread())  # the proxy has one for each connection
        return refusals.pop() if refusals and verb == "GET" else None

    with storage_proxy(azurite.ports) as (proxy, ports):
        proxy.draw = refuse_the_first_download
        with BlobServiceClient.from_connection_string(through(azurite.connection_string(), ports)) as service:
            address = service.get_blob_client(unique, LOG).url
        tail = JobLogs(client_id=None).tail(client_of_a_run(address), "run", max_bytes=9)
    assert ("\nepoch 2\n", [], 1) == (tail, refusals, len(threads))


def test_an_identity_with_a_role_on_the_subscription_reads_quotas(
    workspace_client: WorkspaceClient, azure_ml: AzureMl
) -> None:
    """The size's quota is found by its name, used by the current nodes; the result is cached for a while."""
    before = len(azure_ml.calls("/usages"))
    jobs = AzureMLJobs(WorkspaceClient(workspace_client.workspace, None))
    found = jobs.capacity()
    assert (None, True) == (found.refusal, found is jobs.capacity())
    assert 1 == len(azure_ml.calls("/usages")) - before
    dedicated, low = (found.quota_of("Standard_NC24ads_A100_v4", priority) for priority in ("dedicated", "low"))
    assert dedicated is not None
    assert low is not None
    assert ("Standard NCADSA100v4 Family Cluster Dedicated vCPUs", 10_000, 24) == (
        dedicated[0].name,
        dedicated[0].limit,
        dedicated[1],
    )
    assert "Total Cluster LowPriority Regional vCPUs" == low[0].name
    assert found.clusters["cluster"].num_nodes * 24 <= dedicated[0].used + 24 * 4


def test_what_cannot_be_read_of_clusters_is_not_asked_for_again_at_once(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """A plan that is viewed twice does not wait twice."""
    fault(azure_ml, "/computes", method="GET", times=1, status=400, code="UserError", message="not now")
    for _ in range(2):
        with pytest.raises(SubmissionRefusedError, match=r"list the clusters of the workspace.*not now"):
            jobs.capacity()
