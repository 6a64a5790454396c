"""Holds: a generation whose data made a training fail is not trained on again, unless a request is forced."""

from __future__ import annotations

from function_app.domain.errors import VersionQuarantinedError
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.ports import Notes
from function_app.services import History


def hold_data(run: RunRecord, notes: Notes, history: History) -> None:
    """Hold the generation that a run failed on. A later generation has other data and is not held."""
    name = _mark(run.dataset_version, run.generation)
    if notes.mark(name) is None:
        reason = f"run {run.run_id} failed on its data: {run.failure_evidence}"
        notes.set_mark(name, reason)
        history.record(str(run.dataset_version), "version_quarantined", reason, generation=run.generation)


def refuse_held(generation: Generation, notes: Notes) -> None:
    """Raise VersionQuarantinedError where a generation is held."""
    version = generation.dataset_version
    reason = why_held(version, generation.number, notes)
    if reason is not None:
        raise VersionQuarantinedError(
            f"{version}, generation {generation.number}, is on hold: {reason}; upload corrected shards, or request "
            "the run with force"
        )


def why_held(version: DatasetVersion, generation: int, notes: Notes) -> str | None:
    """Return why a generation is held: which run failed on it. None where it is not held."""
    return notes.mark(_mark(version, generation))


def _mark(version: DatasetVersion, generation: int) -> str:
    return f"quarantine/{version}/g{generation}"
