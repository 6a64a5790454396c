"""Checkpoints of validations: how far each has come and how often it was started, one document for each blob.

Counting starts bounds how often a shard is tried that kills the process validating it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.services import IngestServices
from shard_validation import ReasonCode, ShardStatistics, ShardVerdict
from shard_validation.reasons import Fault
from shared.errors import LandfallError
from shared.safe_text import counted

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
"""Raise this with every change of what validation puts into a checkpoint: older ones are then ignored."""
MAX_CHECKPOINT_BYTES = 16 << 20
"""Enough for a thousand features with full histograms; usually a checkpoint has some kilobytes."""
MAX_STARTS = 5
"""Starts from one position, as many as the host delivers a message (``maxDequeueCount`` of host.json)."""
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """How far a validation has come. The default has not begun."""

    checkpoint: Mapping[str, Any] | None = None
    """None: a validation has started, and nothing is stored yet."""
    bytes_done: int = 0
    num_executions: int = 0
    """Executions that paused; those that died do not count."""
    num_starts: int = 0
    """Executions that started from here and saved no progress: one may be running, the others died."""
    num_restarts: int = 0
    """How often the stored checkpoint was unusable and validation started from the beginning. Progress keeps it."""
    saved_at: datetime = NEVER


def load_checkpoint(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> StoredCheckpoint | None:
    """Return where to resume; None if nothing is stored for this content and these requirements."""
    content = services.documents.read(_path(place), max_bytes=MAX_CHECKPOINT_BYTES)
    if content is None:
        return None
    try:
        return _understood(json.loads(content), _identity(place, facts))
    except (ValueError, KeyError, TypeError):
        logger.exception(f"checkpoint {_path(place)} is not understood", extra={"action": "checkpoint_refused"})
        return None


def _understood(members: Mapping[str, Any], identity: Mapping[str, Any]) -> StoredCheckpoint | None:
    if members["identity"] != identity:
        return None
    return StoredCheckpoint(
        checkpoint=members["checkpoint"],
        bytes_done=members["bytes_done"],
        num_executions=members["num_executions"],
        num_starts=members.get("num_starts", 0),  # absent in checkpoints of older deployments
        num_restarts=members.get("num_restarts", 0),
        saved_at=datetime.fromisoformat(members["saved_at"]),
    )


def save_checkpoint(place: ShardPlace, facts: BlobFacts, reached: StoredCheckpoint, services: IngestServices) -> bool:
    """Store a checkpoint in place of the blob's previous one; return False if it is too large."""
    members = {**vars(reached), "identity": _identity(place, facts), "saved_at": services.clock().isoformat()}
    content = json.dumps(members).encode()
    if len(content) > MAX_CHECKPOINT_BYTES:
        return False
    services.documents.write(_path(place), content)
    return True


def forget_checkpoint(place: ShardPlace, services: IngestServices) -> None:
    """Delete the blob's checkpoint, if there is one."""
    services.documents.delete(_path(place))


def _path(place: ShardPlace) -> str:
    return f"validations/{place.path}.json"


def _identity(place: ShardPlace, facts: BlobFacts) -> dict[str, Any]:
    """Return what a checkpoint belongs to: this content, these requirements, this code."""
    requirements = json.dumps(place.pipeline.data.requirements().to_json(), sort_keys=True)
    return {
        "format_version": FORMAT_VERSION,
        "path": place.path,
        "etag": facts.etag,
        "requirements": hashlib.sha256(requirements.encode()).hexdigest(),
    }


@contextmanager
def counted_execution(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> Iterator[StoredCheckpoint]:
    """Count an execution before it begins; yield the resume point and the number of starts from there.

    An execution that raises LandfallError is not counted: unavailable storage is not the shard's fault.
    """
    stored = load_checkpoint(place, facts, services) or StoredCheckpoint()
    begun = replace(stored, num_starts=stored.num_starts + 1)
    save_checkpoint(place, facts, begun, services)
    try:
        yield begun
    except LandfallError:
        _uncount(place, facts, services)
        raise


def is_exhausted(begun: StoredCheckpoint) -> bool:
    """Whether the allowed number of executions started from here before this one without any progress."""
    return begun.num_starts > MAX_STARTS


def interrupted_verdict(facts: BlobFacts, begun: StoredCheckpoint, services: IngestServices) -> ShardVerdict:
    """Return the verdict on a shard whose validation never finishes. The shard is not read."""
    name = services.shards.open(facts).name
    fault = Fault(
        code=ReasonCode.VALIDATION_INTERRUPTED,
        expected="a verdict within one execution (write smaller records, row groups or shards, or give the app more "
        "memory, and upload the shard again)",
        seen=f"{counted(begun.num_starts - 1, 'execution')} that died (killed, out of memory, or an error)",
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


def _uncount(place: ShardPlace, facts: BlobFacts, services: IngestServices) -> None:
    try:
        stored = load_checkpoint(place, facts, services)
        if stored is not None and stored.num_starts:
            save_checkpoint(place, facts, replace(stored, num_starts=stored.num_starts - 1), services)
    except LandfallError:
        # The store may be what failed. The original error continues to the host, which delivers again.
        logger.exception("the count of a validation could not be reverted", extra={"action": "count_failed"})
