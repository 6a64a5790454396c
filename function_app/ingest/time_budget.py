"""Shards that take longer than one execution may: looked at in slices, gone on with by the next message.

A checkpoint is stored after every slice, so that an instance that is recycled in between loses one slice only: its
message is delivered again, and whoever gets it goes on. Bytes that change meanwhile are another content, with nothing
stored for it. What cannot pause (an inflater's state cannot be stored) is judged in one go, or rejected where an
execution of its own is not enough: nobody would ever come further.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.ingest.checkpoints import (
    StoredCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from function_app.services import Services
from shard_validation import Paused, ShardVerdict

logger = logging.getLogger(__name__)

CONTINUED = "Landfall.ShardValidationContinued"
"""The type of our own event. Its form is Event Grid's, so that it is read, bounded and replayed as those are."""
UNDER_WAY = timedelta(minutes=10)
"""A checkpoint younger than this has somebody at work on it, or a message on its way. One with nothing in it yet may
be of a shard that cannot be paused: it is left alone for as long as an execution may take."""


def is_long(facts: BlobFacts, services: Services) -> bool:
    """Whether a blob is large enough to be looked at in slices."""
    return facts.size_bytes >= services.slices.min_bytes


def validate_in_slices(
    place: ShardPlace, facts: BlobFacts, begun: StoredCheckpoint, services: Services
) -> ShardVerdict | None:
    """Go on with a long validation; None where the budget ended first, and a message was sent that goes on."""
    try:
        return _slices(place, facts, begun, services)
    except (ValueError, KeyError, TypeError):
        if begun.checkpoint is None:
            raise
        logger.exception("a checkpoint is not understood: starting again", extra={"action": "checkpoint_refused"})
        anew = StoredCheckpoint(num_starts=begun.num_starts, num_restarts=begun.num_restarts + 1)
        return _slices(place, facts, anew, services)


def is_under_way(place: ShardPlace, facts: BlobFacts, services: Services) -> bool:
    """Whether somebody has been at this very content a short while ago, and is to be left alone."""
    stored = load_checkpoint(place, facts, services)
    if stored is None:
        return False
    if not is_long(facts, services):
        return services.clock() - stored.saved_at < services.sweep_grace
    patience = timedelta(seconds=services.slices.patience_s) if stored.checkpoint is None else UNDER_WAY
    return services.clock() - stored.saved_at < max(patience, UNDER_WAY)


def needs_own_execution(place: ShardPlace, facts: BlobFacts, services: Services) -> bool:
    """Whether the sweep should not judge a shard itself: it takes long, or somebody has died of it."""
    return is_long(facts, services) or load_checkpoint(place, facts, services) is not None


def leave_to_queue(place: ShardPlace, facts: BlobFacts, services: Services) -> None:
    """Have a shard that nobody is at judged by an execution of its own, from where the last one came to."""
    stored = load_checkpoint(place, facts, services) or StoredCheckpoint()
    if stored.checkpoint is None:
        save_checkpoint(place, facts, stored, services)  # somebody will be at it
    services.queues[SHARD_UPLOADED].send_text(continuation_message(place, facts, services))


def continuation_message(place: ShardPlace, facts: BlobFacts, services: Services) -> str:
    """Return the text of the message that has a validation gone on with."""
    event = {
        "id": f"{facts.etag}-continued",
        "eventType": CONTINUED,
        "subject": f"/blobServices/default/containers/{services.data_container}/blobs/{quote(place.path)}",
        "eventTime": services.clock().isoformat(),
        "dataVersion": "1",
        "data": {"api": "Continue", "eTag": facts.etag},
    }
    return json.dumps(event)


def _slices(place: ShardPlace, facts: BlobFacts, begun: StoredCheckpoint, services: Services) -> ShardVerdict | None:
    source, requirements = services.shards.open(facts), place.pipeline.data.requirements()
    reached = begun
    seconds, every_s = services.slices.seconds, services.slices.checkpoint_every_s
    start_s = seconds()
    deadline_s = start_s + services.slices.budget_s
    # a later slice may begin with what needs an execution of its own: it is left to the next one, killed or not
    out_of_time = _from(start_s + services.slices.patience_s, seconds)
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
            every_s = deadline_s = math.inf  # nobody could go on with it: to the end, in one go
        if seconds() >= deadline_s:
            _leave_to_next(place, facts, reached, services)
            return None


def _reached(paused: Paused, begun: StoredCheckpoint) -> StoredCheckpoint:
    """Return what is to be stored: whoever began before and came no further counts no more."""
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


def _leave_to_next(place: ShardPlace, facts: BlobFacts, reached: StoredCheckpoint, services: Services) -> None:
    services.queues[SHARD_UPLOADED].send_text(continuation_message(place, facts, services))
    services.history.record(
        place.path,
        "validation_paused",
        f"{reached.bytes_done} of {facts.size_bytes} bytes looked at after {reached.num_executions} executions; "
        "it goes on",
        etag=facts.etag,
        bytes_done=reached.bytes_done,
    )
