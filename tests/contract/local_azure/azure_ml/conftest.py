"""One emulator for all contract tests of a module, with the real client pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from local_azure.azurite import Azurite
from tests.support.azure_ml import AzureMl, real_client, start_with_cluster
from tests.support.azurite import start_azurite

if TYPE_CHECKING:
    from azure.ai.ml import MLClient


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Storage behind the emulator."""
    running = start_azurite(tmp_path_factory.mktemp("azurite"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[AzureMl]:
    """An emulator with a cluster and an environment."""
    running = start_with_cluster(tmp_path_factory.mktemp("azure_ml"), azurite)
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def client(emulator: AzureMl) -> Iterator[MLClient]:
    """The unmodified client."""
    with real_client(emulator) as one:
        yield one
