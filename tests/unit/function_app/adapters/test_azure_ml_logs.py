"""A job's log where the workspace's storage cannot even be addressed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from function_app.adapters.azure_ml_logs import JobLogs, log_of
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
    """It is not a program error, which would keep the run from ending."""
    logs = JobLogs(client_id=None, blob_uri=blob_uri)
    with pytest.raises(LogUnreadableError, match="Set LANDFALL_WORKSPACE_BLOB_URI to the https address"):
        logs.part(client_with(store), "landfall-digits-a1", rank=0, after=None, max_bytes=9)


@pytest.mark.parametrize(
    ("rank", "log"),
    [
        (0, "std_log_process_00.txt"),
        (1, "std_log_process_01.txt"),
        (10, "std_log_process_10.txt"),
        (100, "std_log_process_100.txt"),
        (101, None),
    ],
)
def test_each_rank_has_its_own_file(rank: int, log: str | None) -> None:
    """Azure ML uses at least two digits; rank 1 is neither 10 nor 100."""
    names = [f"user_logs/std_log_process_{number:02d}.txt" for number in range(101)]
    assert (log and f"user_logs/{log}") == log_of(rank, ["logs/azureml/job.log", *names])


def test_a_job_of_one_process_has_one_log() -> None:
    """It is the log of rank 0, whatever its name; other ranks have none."""
    assert "user_logs/std_log.txt" == log_of(0, ["user_logs/other.txt", "user_logs/std_log.txt"])
    assert "user_logs/other.txt" == log_of(0, ["user_logs/other.txt"])
    assert log_of(1, ["user_logs/other.txt", "user_logs/std_log.txt"]) is None
