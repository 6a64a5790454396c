"""Who may import whom, where import-linter cannot see: single distributions, and imports inside functions."""

from __future__ import annotations

import sys

from tests.architecture.trees import imports_of

USERS_OF_AZURE_FUNCTIONS = (
    "function_app/functions.py",
    "function_app/__init__.py",
)


def test_shared_needs_nothing_but_the_standard_library_and_crc32c() -> None:
    """The contract travels to the cluster and to the function app alike, so it brings nothing along."""
    allowed = {*sys.stdlib_module_names, "shared", "crc32c"}
    assert [] == [str(found) for found in imports_of("shared") if found.top_level not in allowed]


def test_exactly_one_file_imports_horovod() -> None:
    """Horovod is confined to one file, so that replacing it means replacing that file."""
    files = {found.path for found in imports_of("training_job") if found.is_of("horovod")}
    assert 1 == len(files), f"horovod is imported by {sorted(files)}"


def test_nothing_else_imports_horovod_or_tensorflow() -> None:
    """The function app's environment has neither."""
    elsewhere = imports_of("shared", "shard_validation", "horovod_lint", "function_app", "local_azure", "cli")
    strangers = [str(found) for found in elsewhere if found.top_level in {"horovod", "tensorflow", "keras"}]
    assert [] == strangers


def test_only_adapters_import_the_azure_sdks() -> None:
    """Steps decide over ports; which SDK stands behind a port is the adapter's matter alone."""
    strangers = [
        str(found)
        for found in imports_of("function_app")
        if found.top_level == "azure"
        and not found.path.startswith("function_app/adapters/")
        and not (found.is_of("azure.functions") and found.path.startswith(USERS_OF_AZURE_FUNCTIONS))
    ]
    assert [] == strangers


def test_azure_ai_ml_is_only_imported_inside_functions() -> None:
    """It costs 0.9 s of CPU, and every function of the app is indexed at every cold start."""
    early = [str(found) for found in imports_of("function_app") if found.is_of("azure.ai") and found.at_import_time]
    assert [] == early
