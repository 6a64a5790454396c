"""A job's log where the workspace's storage cannot even be addressed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from function_app.adapters.azure_ml_logs import JobLogs
from function_app.domain.errors import LogUnreadableError


def client_with(store: Any) -> Any:
    """Stand in for a client of a workspace that gives no addresses and has this datastore of artifacts."""
    details = SimpleNamespace(log_files={})
    return SimpleNamespace(
        jobs=SimpleNamespace(_runs_operations=SimpleNamespace(get_run_details=lambda _: details)),
        datastores=SimpleNamespace(get=lambda _: store),
    )


BLOBS = SimpleNamespace(account_name="account", container_name="azureml", endpoint="core.windows.net")


@pytest.mark.parametrize(
    ("store", "blob_uri"), [(SimpleNamespace(filesystem="azureml"), None), (BLOBS, "http://127.0.0.1:10000/account")]
)
def test_storage_that_cannot_be_opened_is_named_with_the_setting(store: Any, blob_uri: str | None) -> None:
    """Not an error of the program, which would keep the run from ending."""
    logs = JobLogs(client_id=None, blob_uri=blob_uri)
    with pytest.raises(LogUnreadableError, match="Set LANDFALL_WORKSPACE_BLOB_URI to the https address"):
        logs.tail(client_with(store), "landfall-digits-a1", max_bytes=9)
