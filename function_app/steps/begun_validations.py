"""Executions that begin to validate a shard and never come to an end: counted, so that no shard is tried for ever.

The queue gives a message up after five deliveries, but the sweep asks anew while there is no verdict. So an execution
is written down before it begins, and whoever finds that as many as are allowed came no further rejects the shard. The
first delivery of a short shard is not counted: nearly all are judged by it, and it would cost each three requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from function_app.ports import BlobFacts
from function_app.steps.checkpoints import StoredCheckpoint, load_checkpoint, save_checkpoint
from function_app.steps.services import Services
from function_app.steps.shard_places import ShardPlace
from shard_validation import ReasonCode, ShardStatistics, ShardVerdict
from shard_validation.reasons import Fault
from shared.errors import LandfallError

logger = logging.getLogger(__name__)

MAX_STARTS = 5
"""From one place, as often as the host delivers a message (``maxDequeueCount`` of host.json)."""


@contextmanager
def counted_execution(place: ShardPlace, facts: BlobFacts, services: Services) -> Iterator[StoredCheckpoint]:
    """Count an execution before it begins; yield where it begins, and the how many-th from there it is.

    One that raises what Landfall raises on purpose has come to an end: storage that is away is no fault of the shard.
    """
    stored = load_checkpoint(place, facts, services) or StoredCheckpoint()
    begun = replace(stored, num_starts=stored.num_starts + 1)
    save_checkpoint(place, facts, begun, services)
    try:
        yield begun
    except LandfallError:
        _take_back(place, facts, services)
        raise


def is_exhausted(begun: StoredCheckpoint) -> bool:
    """Whether as many executions as are allowed began from here before this one, and came no further."""
    return begun.num_starts > MAX_STARTS


def interrupted_verdict(facts: BlobFacts, begun: StoredCheckpoint, services: Services) -> ShardVerdict:
    """Return the verdict on a shard that nobody comes to the end of. Nothing of it is read."""
    name = services.shards.open(facts).name
    fault = Fault(
        code=ReasonCode.VALIDATION_INTERRUPTED,
        expected="an execution that comes further: write smaller records, row groups or shards, or give the app more "
        "memory, and upload it again",
        seen=f"{begun.num_starts - 1} executions that ended without a verdict (killed, out of memory, or an error)",
    )
    return ShardVerdict(
        shard=name,
        accepted=False,
        num_records=0,
        size_bytes=facts.size_bytes,
        crc32c="00000000",
        data_format=None,
        reasons=(fault.at(name, byte_offset=begun.bytes_done),),
        num_reasons=1,
        statistics=ShardStatistics(),
    )


def _take_back(place: ShardPlace, facts: BlobFacts, services: Services) -> None:
    try:
        stored = load_checkpoint(place, facts, services)
        if stored is not None and stored.num_starts:
            save_checkpoint(place, facts, replace(stored, num_starts=stored.num_starts - 1), services)
    except LandfallError:
        # The store may be what failed. The original error goes on to the host, which delivers again.
        logger.exception("a validation could not be taken back", extra={"action": "count_failed"})
