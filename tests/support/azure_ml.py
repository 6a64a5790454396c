"""The Azure ML emulator for tests, with two clients for it: Microsoft's own and the function app's adapter."""

from __future__ import annotations

import ssl
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from azure.storage.blob import BlobServiceClient

from function_app.adapters.azure_ml import WorkspaceClient
from function_app.adapters.azure_ml_logs import JobLogs
from function_app.domain.jobs import Workspace
from local_azure.azurite import HOST_ACCOUNT, Azurite
from local_azure.processes import PATIENCE_S, Process, azure_ml_program, listening_url, wait_until
from local_azure.twin.addresses import CLUSTER_IDENTITY
from tests.support.processes import REPOSITORY

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
RESOURCE_GROUP = "landfall"
WORKSPACE = "landfall"
WORKSPACE_ID = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)
APP_IDENTITY = "11111111-0000-4000-8000-000000000001"
"""Client id of the app's identity, which may read the logs."""
IDENTITY_HEADER = "secret-of-the-tests"
TERMINAL = ("Completed", "Failed", "Canceled")
TRAINING_ENVIRONMENT = REPOSITORY / ".venv-training"


@dataclass(frozen=True, kw_only=True)
class AzureMl:
    """A running emulator."""

    process: Process
    url: str
    state: Path

    @property
    def client_environment(self) -> dict[str, str]:
        """Variables that point an unmodified azure-ai-ml client at the emulator."""
        return {
            "AZUREML_DEV_URL_MFE": self.url,
            "REQUESTS_CA_BUNDLE": str(self.state / "ca.pem"),
            "IDENTITY_ENDPOINT": f"{self.url}/msi/token",
            "IDENTITY_HEADER": IDENTITY_HEADER,
        }

    def http(self) -> httpx.Client:
        """A plain HTTP client that trusts the emulator's certificate and sends no token."""
        return httpx.Client(
            base_url=self.url, verify=ssl.create_default_context(cafile=self.state / "ca.pem"), timeout=PATIENCE_S
        )

    def token(self) -> str:
        """A bearer token of the system identity."""
        with self.http() as http:
            answer = http.get("/msi/token?resource=x", headers={"X-IDENTITY-HEADER": IDENTITY_HEADER})
            return str(answer.raise_for_status().json()["access_token"])

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send one raw request with a token."""
        with self.http() as http:
            headers = {"Authorization": f"Bearer {self.token()}"}
            return http.request(method, path, json=body, headers=headers)

    def put(self, path: str, body: Any) -> httpx.Response:
        """PUT a resource of the workspace by its path below the workspace."""
        return self.ask("PUT", f"{WORKSPACE_ID}/{path}?api-version=2025-01-01-preview", body)

    def get(self, path: str) -> Any:
        """Read a resource of the workspace."""
        return self.ask("GET", f"{WORKSPACE_ID}/{path}").raise_for_status().json()

    def twin(self, method: str, path: str, body: Any = None) -> Any:
        """Call one of the endpoints that only the emulator has, not Azure."""
        with self.http() as http:
            return http.request(method, f"/twin/{path}", json=body).raise_for_status().json()

    def calls(self, fragment: str = "") -> list[dict[str, Any]]:
        """Requests so far whose path contains ``fragment``."""
        return [call for call in self.twin("GET", "calls")["calls"] if fragment in call["path"]]

    def status(self, job: str) -> str:
        """State of a job."""
        return str(self.get(f"jobs/{job}")["properties"]["status"])

    def details(self, job: str) -> dict[str, Any]:
        """The job as the run history service shows it."""
        found: dict[str, Any] = self.ask("GET", f"/history/v1.0{WORKSPACE_ID}/runs/{job}/details").json()
        return found

    def await_status(self, job: str, *wanted: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait until the job is in one of ``wanted``, by default in a terminal state."""
        expected = wanted or TERMINAL
        status = wait_until(
            lambda: seen if (seen := self.status(job)) in expected + TERMINAL else None,
            what=f"job {job} to become {' or '.join(expected)}",
            timeout_s=timeout_s,
            poll_s=0.1,
        )
        if status not in expected:
            pytest.fail(f"job {job} should have become {expected}, but is {status}: {self.details(job)['error']}")
        return status


def start_azure_ml(
    directory: Path,
    azurite: Azurite,
    *flags: str,
    variables: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> AzureMl:
    """Start the emulator with its state in ``directory`` and Azurite's accounts behind it.

    ``within`` is a command that becomes the one that follows it.
    """
    program = azure_ml_program(
        log=directory / "azure_ml.log",
        state=directory / "state",
        storage={name: azurite.connection_string(name) for name in azurite.accounts},
        identity_header=IDENTITY_HEADER,
        options=flags,
        variables=variables,
    )
    process = Process(replace(program, command=[*within, *program.command]), guarded=False)
    return AzureMl(process=process, url=listening_url(process.await_ready()), state=directory / "state")


FAST = (
    *("--node-start-delay-s", "0.05", "--node-leave-delay-s", "0.05"),
    *("--environment-build-s", "0.05", "--sync-interval-s", "0.2"),
    *("--storage-identity", CLUSTER_IDENTITY),
    *("--log-reader", APP_IDENTITY),
    *("--subscription-reader", "system"),
)
PLAIN = ("plain", "CliV2AnonymousEnvironment")  # the second is what the client calls an inline environment


WITHOUT_NETWORKS = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh")
"""A prefix that makes the command after it see a machine that does not allow network namespaces."""


def start_with_cluster(
    directory: Path, azurite: Azurite, *flags: str, within: Sequence[str] = (), **variables: str
) -> AzureMl:
    """Start the emulator with short delays, four nodes, and two environments: the tests' and the training's."""
    environments = [flag for name in PLAIN for flag in ("--python-environment", f"{name}={Path(sys.prefix)}")]
    if (TRAINING_ENVIRONMENT / "bin" / "mpirun").exists():
        environments += ["--python-environment", f"training={TRAINING_ENVIRONMENT}"]
    running = start_azure_ml(directory, azurite, *FAST, *environments, *flags, variables=variables, within=within)
    running.put("computes/cluster", cluster_body()).raise_for_status()
    for name in ("plain", "training"):
        image = {"properties": {"image": f"example/{name}:1"}}
        running.put(f"environments/{name}/versions/1", image).raise_for_status()
    return running


@contextmanager
def real_client(emulator: AzureMl, client_id: str | None = None, **options: Any) -> Iterator[MLClient]:
    """An unmodified azure-ai-ml client with a managed identity, pointed at the emulator by its environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK's schemas use what its own marshmallow calls outdated
        from azure.ai.ml import MLClient
    from azure.identity import ManagedIdentityCredential

    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.client_environment.items():
            patch.setenv(name, value)
        credential = ManagedIdentityCredential(client_id=client_id)
        yield MLClient(credential, SUBSCRIPTION, RESOURCE_GROUP, WORKSPACE, **options)


def command_job(command: str, **properties: Any) -> dict[str, Any]:
    """Body of a command job on the tests' cluster and environment, as the client writes it."""
    return {
        "properties": {
            "jobType": "Command",
            "command": command,
            "computeId": f"{WORKSPACE_ID}/computes/cluster",
            "environmentId": f"{WORKSPACE_ID}/environments/plain/versions/1",
            **properties,
        }
    }


def mpi_job(command: str, *, nodes: int = 2, processes: int = 1, **properties: Any) -> dict[str, Any]:
    """Body of an MPI job in the training's environment; skips the test where that environment is absent."""
    if not (TRAINING_ENVIRONMENT / "bin" / "mpirun").exists():
        pytest.skip("needs .venv-training with Open MPI: run `make setup`")
    return command_job(
        command,
        environmentId=f"{WORKSPACE_ID}/environments/training/versions/1",
        distribution={"distributionType": "Mpi", "processCountPerInstance": processes},
        resources={"instanceCount": nodes},
        **properties,
    )


def cluster_body(max_nodes: int = 4, idle: str = "PT2M") -> dict[str, Any]:
    """Body of a compute cluster that scales from zero."""
    scale = {"minNodeCount": 0, "maxNodeCount": max_nodes, "nodeIdleTimeBeforeScaleDown": idle}
    properties = {"vmSize": "STANDARD_NC24ADS_A100_V4", "scaleSettings": scale}
    return {
        "location": "westeurope",
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {CLUSTER_IDENTITY: {}}},
        "properties": {"computeType": "AmlCompute", "properties": properties},
    }


def start_with_code(directory: Path, azurite: Azurite, *flags: str) -> AzureMl:
    """Start the emulator with a cluster, environments and a code asset named ``contract``."""
    running = start_with_cluster(directory, azurite, *flags)
    with BlobServiceClient.from_connection_string(azurite.connection_string()) as service:
        container = service.create_container(f"code-{uuid.uuid4().hex[:8]}")
        container.upload_blob("src/README.txt", b"nothing to run in here")
        code = {"properties": {"codeUri": f"{container.url}/src", "isAnonymous": False}}
    running.put("codes/contract/versions/1", code).raise_for_status()
    runs = {
        "datastoreType": "AzureBlob",
        "accountName": HOST_ACCOUNT,
        "containerName": "runs",
        "credentials": {"credentialsType": "None"},
    }
    running.put("datastores/landfall_runs", {"properties": runs}).raise_for_status()
    return running


@contextmanager
def adapter_client(emulator: AzureMl) -> Iterator[WorkspaceClient]:
    """A WorkspaceClient that is configured by environment variables, as in the twin."""
    workspace = Workspace(
        subscription_id=SUBSCRIPTION,
        resource_group=RESOURCE_GROUP,
        name=WORKSPACE,
        environment_id=f"{WORKSPACE_ID}/environments/training/versions/1",
        code_id=f"{WORKSPACE_ID}/codes/contract/versions/1",
        data_datastore="landfall_datasets",
        state_datastore="landfall_state",
        runs_datastore="landfall_runs",
    )
    with real_client(emulator), pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.client_environment.items():
            patch.setenv(name, value)
        logs = JobLogs(client_id=APP_IDENTITY, blob_uri=f"{emulator.url}/blob/{HOST_ACCOUNT}")
        client = WorkspaceClient(workspace, APP_IDENTITY, logs=logs)
        client.get()
        yield client
