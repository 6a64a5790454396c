"""One emulator for all tests that do not stop it, with the real client and its storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from azure.storage.blob import BlobServiceClient

from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT, Azurite
from tests.support.azure_ml import AzureMl, real_client, start_with_cluster

if TYPE_CHECKING:
    from azure.ai.ml import MLClient


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[AzureMl]:
    """An emulator with a cluster, environments, and datastores over the containers `datasets` and `runs`."""
    running = start_with_cluster(
        tmp_path_factory.mktemp("azure_ml"), azurite, "--log-addresses", "signed", "--storage-writer", "system"
    )
    for name, account in (("datasets", DATA_ACCOUNT), ("runs", HOST_ACCOUNT)):
        properties = {
            "datastoreType": "AzureBlob",
            "accountName": account,
            "containerName": name,
            "credentials": {"credentialsType": "None"},
        }
        running.put(f"datastores/landfall_{name}", {"properties": properties}).raise_for_status()
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def client(emulator: AzureMl) -> Iterator[MLClient]:
    """The unmodified client."""
    with real_client(emulator) as one:
        yield one


@pytest.fixture(scope="session")
def data(azurite: Azurite) -> Iterator[BlobServiceClient]:
    """The data account, with a container of datasets."""
    with BlobServiceClient.from_connection_string(azurite.connection_string(DATA_ACCOUNT)) as service:
        service.create_container("datasets")
        yield service


@pytest.fixture(scope="session")
def host(azurite: Azurite) -> Iterator[BlobServiceClient]:
    """The host account."""
    with BlobServiceClient.from_connection_string(azurite.connection_string(HOST_ACCOUNT)) as service:
        yield service
