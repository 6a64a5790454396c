"""What every test starts from: an environment in which nobody's cloud or twin can be reached by accident."""

from __future__ import annotations

import os

import pytest

OURS = ("AZURE", "LANDFALL", "OMPI_", "HOROVOD_", "IDENTITY_", "DataStorage")


def pytest_configure(config: pytest.Config) -> None:
    """Take settings of the developer's machine away before any test module is imported.

    CONTAINER_NAME makes the Functions worker believe that it runs in Azure; the others name real accounts.
    """
    del config
    for name in list(os.environ):
        if name == "CONTAINER_NAME" or name.startswith(OURS):
            del os.environ[name]
