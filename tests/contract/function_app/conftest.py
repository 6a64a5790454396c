"""The ports of contract tests: each test has its own tables, containers and queues in the worker's Azurite."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from function_app.adapters.azure_ml import WorkspaceClient
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.ports import Ledger
from function_app.testing.ledger import MemoryLedger
from local_azure.azurite import DATA_ACCOUNT, Azurite
from tests.support.azure_ml import AzureMl, adapter_client, start_with_code

BOTH = ["memory", pytest.param("azurite", marks=pytest.mark.azurite)]


@pytest.fixture(scope="session")
def host_storage(azurite: Azurite) -> Iterator[StorageConnection]:
    """The account of queues, tables and documents."""
    settings = ConnectionSettings(name="AzureWebJobsStorage", connection_string=azurite.connection_string())
    with contextlib.closing(StorageConnection(settings)) as storage:
        yield storage


@pytest.fixture
def unique() -> str:
    """Return a unique name of letters and digits, which tables, queues and containers accept."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=BOTH)
def ledger(request: pytest.FixtureRequest, unique: str) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    return TableLedger(request.getfixturevalue("host_storage"), prefix=unique)


@pytest.fixture(scope="session")
def data_storage(azurite: Azurite) -> Iterator[StorageConnection]:
    """The account of shards."""
    connection_string = azurite.connection_string(DATA_ACCOUNT)
    settings = ConnectionSettings(name="DataStorage", connection_string=connection_string)
    with contextlib.closing(StorageConnection(settings)) as storage:
        yield storage


@pytest.fixture(scope="session")
def azure_ml(azurite: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureMl]:
    """An emulator with everything that a submission refers to."""
    running = start_with_code(tmp_path_factory.mktemp("azure_ml"), azurite)
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def workspace_client(azure_ml: AzureMl) -> Iterator[WorkspaceClient]:
    """The client of the adapters. Its certificate is in the environment, which other modules' tests must not see."""
    with adapter_client(azure_ml) as client:
        yield client
