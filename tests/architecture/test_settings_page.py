"""The page of app settings lists what the code reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = ("credential", "clientId")
NO_SETTINGS = {f"LANDFALL_{name}" for name in ("DATA", "MANIFEST", "REPORT", "FILES", "PROGRESS", "RANK")} | {
    f"LANDFALL_{name}" for name in ("VAULT", "IDLE_TIME", "TEAM", "WEBHOOK", "WEBHOOKS", "WEBHOOK_PEOPLE")
}
"""What a job gets, what azd knows, and examples of what a pipeline names."""
THREADS = "PYTHON_THREADPOOL_THREAD_COUNT"


def test_every_app_setting_is_documented() -> None:
    """A setting that the app names has its row in docs/operations.md, whether the template sets it or not."""
    sources = sorted((ROOT / "function_app").rglob("*.py"))
    read = {
        name for path in sources for name in re.findall(r"LANDFALL_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8"))
    } - NO_SETTINGS
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## App settings")[2]
    assert set() == read - set(re.findall(r"`(LANDFALL_[A-Z_]+)`", page))
    assert {"LANDFALL_STORAGE_SUFFIX", "LANDFALL_CLAIM_LEASE_S", "LANDFALL_RECONCILE_SCHEDULE"} <= read


def test_the_settings_of_an_identity_and_of_a_cloud_are_documented() -> None:
    """The host, Microsoft's clients and the worker read them; nothing in this repository does."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## App settings")[2]
    accounts = [f"{account}__{member}" for account in ("AzureWebJobsStorage", "DataStorage") for member in IDENTITY]
    named = [*accounts, "AZURE_CLIENT_ID", "AZURE_AUTHORITY_HOST", "AZUREML_CURRENT_CLOUD", THREADS]
    assert [] == [name for name in named if f"`{name}`" not in page]
    [schedule] = [line for line in page.splitlines() if line.startswith("| `LANDFALL_RECONCILE_SCHEDULE`")]
    assert "in UTC" in schedule
