"""Storage and an emulator for all integration tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.storage.blob import BlobServiceClient

from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT, Azurite
from tests.support.azure_ml import AzureMl, start_with_cluster
from tests.support.azurite import start_azurite


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Storage behind the emulator."""
    running = start_azurite(tmp_path_factory.mktemp("azurite"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[AzureMl]:
    """An emulator with datastores over the containers `datasets` and `runs`."""
    running = start_with_cluster(tmp_path_factory.mktemp("azure_ml"), azurite)
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
def data(azurite: Azurite) -> Iterator[BlobServiceClient]:
    """The data account, with a container of datasets."""
    with BlobServiceClient.from_connection_string(azurite.connection_string(DATA_ACCOUNT)) as service:
        service.create_container("datasets")
        yield service


@pytest.fixture(scope="module")
def host(azurite: Azurite) -> Iterator[BlobServiceClient]:
    """The host account."""
    with BlobServiceClient.from_connection_string(azurite.connection_string(HOST_ACCOUNT)) as service:
        yield service
