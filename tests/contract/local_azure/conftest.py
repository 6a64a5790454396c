"""One Azurite for all emulator tests of a worker; each test uses its own containers and queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_azure.azurite import Azurite
from tests.support.azurite import running_azurite


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The storage of the emulators and the development host."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running
