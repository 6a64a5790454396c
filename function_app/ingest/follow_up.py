"""What a closing leads to: the first one to a training, a later one to what the pipeline says."""

from __future__ import annotations

from function_app.config.pipelines import Pipeline
from function_app.domain.events import TrainingRequest
from function_app.domain.records import Generation
from function_app.ingest.drift import is_blocked_by_drift
from function_app.notify.outbox import add_notifications, deliver
from function_app.services import Services

CLOSED = "closed"
"""The trigger of a run that a closing starts."""


def follow_up(pipeline: Pipeline, generation: Generation, services: Services) -> None:
    """Bring on the way what a closing leads to; doing it again changes nothing, so whoever is unsure does."""
    if generation.number > 1 and pipeline.on_change == "notify":
        _tell_of_change(pipeline, generation, services)
    elif generation.auto_run_id is None or services.ledger.run(generation.auto_run_id) is None:
        if is_blocked_by_drift(pipeline, generation, services):
            return
        request = TrainingRequest(
            dataset_version=generation.dataset_version, generation=generation.number, trigger=CLOSED
        )
        services.requests.send(request)


def _tell_of_change(pipeline: Pipeline, generation: Generation, services: Services) -> None:
    version = str(generation.dataset_version)
    add_notifications(
        pipeline,
        subject=version,
        outcome="version_changed",
        occasion=f"g{generation.number}",
        content={
            "text": f"{version} changed after it had closed: it is generation {generation.number} now, with "
            f"{generation.num_records} records. Nothing was trained; ask for a run if one is wanted.",
            "dataset": generation.dataset_version.dataset,
            "version": generation.dataset_version.version,
            "generation": generation.number,
            "fingerprint": generation.fingerprint,
        },
        services=services,
    )
    deliver(version, services)
