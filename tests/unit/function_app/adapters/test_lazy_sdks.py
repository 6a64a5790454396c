"""An adapter imports its SDK when it is first used: start-up time is a feature."""

from __future__ import annotations

import subprocess
import sys

import pytest

from local_azure.processes import PATIENCE_S
from tests.support.processes import REPOSITORY, child_environment

pytestmark = pytest.mark.processes

MODULES = ["tables", "blobs", "queues", "connections", "notifiers", "dead_letters", "azure_ml"]
PROGRAM = """
import importlib, sys
import function_app
before = set(sys.modules)
importlib.import_module("function_app.adapters." + sys.argv[1])
from function_app.adapters.connections import ConnectionSettings, StorageConnection
StorageConnection(ConnectionSettings(name="X", connection_string="UseDevelopmentStorage=true"))
print(*sorted(name for name in set(sys.modules) - before if name.startswith("azure.")))
"""


@pytest.mark.parametrize("module", MODULES)
def test_importing_an_adapter_loads_no_sdk(module: str) -> None:
    """Naming the account does not load one either."""
    command = [sys.executable, "-c", PROGRAM, module]
    ended = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert ended.stdout.split() == []
