"""Data that made a training fail: nothing trains on them again unless somebody insists."""

from __future__ import annotations

from function_app.errors import VersionQuarantinedError
from function_app.ledger import Generation, RunRecord
from function_app.steps.services import Services


def quarantine(run: RunRecord, services: Services) -> None:
    """Put a run's generation under quarantine; a later generation has other data, and none."""
    name = _mark(str(run.dataset_version), run.generation)
    if services.ledger.mark(name) is None:
        reason = f"run {run.run_id} failed over its data: {run.failure_evidence}"
        services.ledger.set_mark(name, reason)
        services.decide(str(run.dataset_version), "version_quarantined", reason, generation=run.generation)


def refuse_quarantined(generation: Generation, services: Services) -> None:
    """Raise VersionQuarantinedError where the generation's data made a training fail."""
    version = str(generation.dataset_version)
    reason = services.ledger.mark(_mark(version, generation.number))
    if reason is not None:
        raise VersionQuarantinedError(
            f"{version}, generation {generation.number}, is quarantined: {reason}; "
            f"upload the shards again in order, or ask with force"
        )


def _mark(version: str, number: int) -> str:
    return f"quarantine/{version}/g{number}"
