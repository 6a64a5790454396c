"""One emulator for all contract tests of a module, with the real client pointed at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.azure_ml import AzureMl, cluster_body, real_client, start_azure_ml
from tests.support.azurite import Azurite, start_azurite

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

FAST = ("--node-start-delay-s", "0.05", "--node-leave-delay-s", "0.05", "--environment-build-s", "0.05")


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Storage behind the emulator."""
    running = start_azurite(tmp_path_factory.mktemp("azurite"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[AzureMl]:
    """An emulator with a cluster and an environment; jobs run in the tests' own Python."""
    names = ("plain", "CliV2AnonymousEnvironment")  # the second is what the client calls an inline environment
    here = [flag for name in names for flag in ("--python-environment", f"{name}={Path(sys.prefix)}")]
    running = start_azure_ml(tmp_path_factory.mktemp("azure_ml"), azurite, *FAST, "--sync-interval-s", "0.2", *here)
    running.put("computes/cluster", cluster_body())
    running.put("environments/plain/versions/1", {"properties": {"image": "example/plain:1"}})
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def client(emulator: AzureMl) -> Iterator[MLClient]:
    """The unmodified client."""
    with real_client(emulator) as one:
        yield one
