"""One Azurite for all tests of the emulators that a worker runs; tests use containers and queues of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_azure.azurite import Azurite
from tests.support.azurite import running_azurite


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Storage behind the emulators and the dev host."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running
