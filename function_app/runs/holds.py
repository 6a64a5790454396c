"""Data that made a training fail: nothing trains on them again unless somebody insists."""

from __future__ import annotations

from function_app.domain.errors import VersionQuarantinedError
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.services import Services


def quarantine(run: RunRecord, services: Services) -> None:
    """Put a run's generation under quarantine; a later generation has other data, and none."""
    name = _mark(str(run.dataset_version), run.generation)
    if services.ledger.mark(name) is None:
        reason = f"run {run.run_id} failed over its data: {run.failure_evidence}"
        services.ledger.set_mark(name, reason)
        services.history.record(str(run.dataset_version), "version_quarantined", reason, generation=run.generation)


def refuse_quarantined(generation: Generation, services: Services) -> None:
    """Raise VersionQuarantinedError where the generation's data made a training fail."""
    version = generation.dataset_version
    reason = why_quarantined(version, generation.number, services)
    if reason is not None:
        raise VersionQuarantinedError(
            f"{version}, generation {generation.number}, is quarantined: {reason}; "
            f"upload the shards again in order, or ask with force"
        )


def why_quarantined(version: DatasetVersion, generation: int, services: Services) -> str | None:
    """Return which run failed over a generation's data; None where none did."""
    return services.ledger.mark(_mark(str(version), generation))


def _mark(version: str, number: int) -> str:
    return f"quarantine/{version}/g{number}"
