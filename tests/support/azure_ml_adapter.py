"""The emulator with what a submission refers to, and the adapters' client pointed at it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from function_app.adapters.azure_ml_workspace import WorkspaceClient
from function_app.domain.jobs import Workspace
from local_azure.azurite import HOST_ACCOUNT, Azurite
from tests.support.azure_ml import (
    RESOURCE_GROUP,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_ID,
    AzureMl,
    real_client,
    start_with_cluster,
)


def start_with_code(directory: Path, azurite: Azurite) -> AzureMl:
    """An emulator with a cluster, environments and a code asset ``contract``."""
    running = start_with_cluster(directory, azurite)
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
    """A WorkspaceClient pointed at the emulator by the environment, as the twin does it."""
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
        client = WorkspaceClient(workspace, client_id=str(uuid.uuid4()))
        client.get()
        yield client
