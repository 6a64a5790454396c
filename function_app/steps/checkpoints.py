"""Checkpoints of long validations: one document for each blob, replaced as the work goes on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from function_app.ports import BlobFacts
from function_app.steps.services import Services
from function_app.steps.shard_places import ShardPlace
from function_app.validation import Paused

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
"""To be raised with every change of what validation puts into a checkpoint: older ones are then left alone."""
MAX_CHECKPOINT_BYTES = 16 << 20
"""A thousand features with full histograms; usually it is some kilobytes."""


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """How far a validation has come."""

    checkpoint: Mapping[str, Any] | None
    """None: somebody has begun, and nothing is stored yet."""
    bytes_done: int
    num_executions: int
    """Those that gave up their turn; not those that died."""
    saved_at: datetime


def load_checkpoint(place: ShardPlace, facts: BlobFacts, services: Services) -> StoredCheckpoint | None:
    """Return where to go on; None where nothing is stored for these bytes and these requirements."""
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
        saved_at=datetime.fromisoformat(members["saved_at"]),
    )


def save_checkpoint(
    place: ShardPlace, facts: BlobFacts, paused: Paused, num_executions: int, services: Services
) -> bool:
    """Store where to go on, over what was stored for the blob before; False where it is too large for that."""
    done = {"checkpoint": paused.checkpoint, "bytes_done": paused.bytes_done, "num_executions": num_executions}
    return _save(place, _members(place, facts, services, **done), services)


def save_beginning(place: ShardPlace, facts: BlobFacts, services: Services) -> None:
    """Store that somebody begins, over what was stored for the blob before: the sweep then leaves it alone."""
    _save(place, _members(place, facts, services, checkpoint=None, bytes_done=0, num_executions=0), services)


def forget_checkpoint(place: ShardPlace, services: Services) -> None:
    """Delete what is stored for the blob, if anything is."""
    services.documents.delete(_path(place))


def _members(place: ShardPlace, facts: BlobFacts, services: Services, **done: Any) -> dict[str, Any]:
    return {"identity": _identity(place, facts), "saved_at": services.clock().isoformat(), **done}


def _save(place: ShardPlace, members: Mapping[str, Any], services: Services) -> bool:
    content = json.dumps(members).encode()
    if len(content) > MAX_CHECKPOINT_BYTES:
        return False
    services.documents.write(_path(place), content)
    return True


def _path(place: ShardPlace) -> str:
    return f"validations/{place.path}.json"


def _identity(place: ShardPlace, facts: BlobFacts) -> dict[str, Any]:
    """What a checkpoint belongs to: these bytes, looked at with these requirements by this code."""
    requirements = json.dumps(place.pipeline.data.requirements().to_json(), sort_keys=True)
    return {
        "format_version": FORMAT_VERSION,
        "path": place.path,
        "etag": facts.etag,
        "requirements": hashlib.sha256(requirements.encode()).hexdigest(),
    }
