"""What every test starts from: an environment in which nobody's cloud or twin can be reached by accident."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

OURS = ("AZURE", "LANDFALL", "OMPI_", "HOROVOD_", "IDENTITY_", "DataStorage")


def pytest_configure(config: pytest.Config) -> None:
    """Take settings of the developer's machine away before any test module is imported.

    CONTAINER_NAME makes the Functions worker believe that it runs in Azure; the others name real accounts.
    """
    del config
    for name in list(os.environ):
        if name == "CONTAINER_NAME" or name.startswith(OURS):
            del os.environ[name]
    # No test is timed here, for machines are shared. What continuous integration draws is the same every time: a
    # change is judged by what it changes; new examples are found by those who run the tests by hand.
    slow = [HealthCheck.too_slow]
    settings.register_profile("by_hand", deadline=None, suppress_health_check=slow)
    settings.register_profile("ci", deadline=None, suppress_health_check=slow, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "by_hand")
