"""Shards that take longer than one execution may: validated in slices, and continued by the next message.

A checkpoint is stored after every slice, so an instance that is recycled loses at most one slice: its message is
delivered again, and the next handler resumes. Content that changes meanwhile has no checkpoint. If validation
cannot pause (the state of a decompressor cannot be stored), the shard is validated in one go, and rejected where an
execution of its own is too short: no further try would get any further.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.ingest.validation_checkpoints import (
    StoredCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from function_app.services import IngestServices
from shard_validation import Paused, ShardVerdict
from shared.safe_text import counted

logger = logging.getLogger(__name__)

CONTINUED = "Landfall.ShardValidationContinued"
"""Type of our own event. It has Event Grid's form, so that it is read, bounded and replayed like those."""
UNDER_WAY = timedelta(minutes=10)
"""A checkpoint younger than this belongs to a running execution or a message in the queue. One without progress may
belong to a shard that cannot be paused; it is left alone for as long as an execution may take."""


def validate_in_slices(
    place: ShardPlace, facts: BlobFacts, begun: StoredCheckpoint, services: IngestServices
) -> ShardVerdict | None:
    """Resume a long validation. None if the time budget ended first: a message then continues it."""
    try:
        return _slices(place, facts, begun, services)
    except (ValueError, KeyError, TypeError):
        if begun.checkpoint is None:
            raise
        logger.exception(
            "a checkpoint cannot be understood: validation starts from the beginning",
            extra={"action": "checkpoint_refused"},
        )
        restarted = StoredCheckpoint(num_starts=begun.num_starts, num_restarts=begun.num_restarts + 1)
        return _slices(place, facts, restarted, services)


def is_under_way(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> bool:
    """Whether another execution worked on this long shard a short while ago and may still be running."""
    stored = load_checkpoint(place, facts, services)
    if stored is None:
        return False
    patience = timedelta(seconds=services.time_budget.patience_s) if stored.checkpoint is None else UNDER_WAY
    return services.clock() - stored.saved_at < max(patience, UNDER_WAY)


def send_to_queue(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> None:
    """Have a shard validated by a separate execution, resuming where the last one stopped."""
    stored = load_checkpoint(place, facts, services) or StoredCheckpoint()
    if stored.checkpoint is None:
        save_checkpoint(place, facts, stored, services)  # marks it as under way
    services.queues[SHARD_UPLOADED].send_text(continuation_message(place, facts, services))


def continuation_message(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> str:
    """Return the text of the message that continues a validation."""
    return json.dumps(continuation_event(place, facts, services.clock(), services))


def continuation_event(place: ShardPlace, facts: BlobFacts, at: datetime, services: IngestServices) -> dict[str, Any]:
    """Return the event that has a shard validated, or its validation continued."""
    return {
        "id": f"{facts.etag}-continued",
        "eventType": CONTINUED,
        "subject": f"/blobServices/default/containers/{services.data_container}/blobs/{quote(place.path)}",
        "eventTime": at.isoformat(),
        "dataVersion": "1",
        "data": {"api": "Continue", "eTag": facts.etag},
    }


def _slices(
    place: ShardPlace, facts: BlobFacts, begun: StoredCheckpoint, services: IngestServices
) -> ShardVerdict | None:
    source, requirements = services.shards.open(facts), place.pipeline.data.requirements()
    reached = begun
    seconds, every_s = services.time_budget.seconds, services.time_budget.checkpoint_every_s
    start_s = seconds()
    deadline_s = start_s + services.time_budget.budget_s
    # Only the first slice may be rejected as too long: a later one resumes with the next execution's full time.
    out_of_time = _from(start_s + services.time_budget.patience_s, seconds)
    while True:
        should_pause = _from(min(seconds() + every_s, deadline_s), seconds)
        outcome = services.validate_within(
            source, requirements, should_pause=should_pause, out_of_time=out_of_time, checkpoint=reached.checkpoint
        )
        out_of_time = _never
        if isinstance(outcome, ShardVerdict):
            return outcome
        reached = _reached(outcome, begun)
        if not save_checkpoint(place, facts, reached, services):
            every_s = deadline_s = math.inf  # it cannot be stored: validate the rest in one go
        if seconds() >= deadline_s:
            _continue_later(place, facts, reached, services)
            return None


def _reached(paused: Paused, begun: StoredCheckpoint) -> StoredCheckpoint:
    """Return the checkpoint to store. Starts without progress no longer count, except restarts."""
    return StoredCheckpoint(
        checkpoint=paused.checkpoint,
        bytes_done=paused.bytes_done,
        num_executions=begun.num_executions + 1,
        num_starts=begun.num_restarts,
        num_restarts=begun.num_restarts,
    )


def _never() -> bool:
    return False


def _from(end_s: float, seconds: Callable[[], float]) -> Callable[[], bool]:
    return lambda: seconds() >= end_s


def _continue_later(place: ShardPlace, facts: BlobFacts, reached: StoredCheckpoint, services: IngestServices) -> None:
    services.queues[SHARD_UPLOADED].send_text(continuation_message(place, facts, services))
    services.history.record(
        place.path,
        "validation_paused",
        f"{reached.bytes_done} of {facts.size_bytes} bytes validated after "
        f"{counted(reached.num_executions, 'execution')}; the next execution continues",
        etag=facts.etag,
        bytes_done=reached.bytes_done,
    )
