"""Azurite for tests, on free ports and in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_azure import azurite
from local_azure.azurite import AZURITE_JS, Azurite


def start_azurite(folder: Path, accounts: Mapping[str, str] | None = None) -> Azurite:
    """Start Azurite as `local_azure.azurite.start_azurite` does; skip the test where it is not installed."""
    if not AZURITE_JS.is_file():
        pytest.skip("needs Azurite: run `make setup`")
    return azurite.start_azurite(folder, accounts)


@contextmanager
def running_azurite(folder: Path, accounts: Mapping[str, str] | None = None) -> Iterator[Azurite]:
    """Run Azurite for the duration of the block."""
    running = start_azurite(folder, accounts)
    try:
        yield running
    finally:
        running.stop()
