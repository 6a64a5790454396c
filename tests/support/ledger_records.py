"""Complete ledger records for tests, which override only the fields that matter to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from function_app.domain.records import (
    DatasetVersion,
    DeadLetter,
    Generation,
    HistoryEntry,
    NotificationRecord,
    RunRecord,
    ShardRecord,
    ShardState,
    dead_letter_id,
)

NOON = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
DIGITS = DatasetVersion(dataset="digits", version="v1")


def shard_record(index: int = 0, **members: Any) -> ShardRecord:
    """Return an accepted shard of ``digits/v1``."""
    split, num_shards = members.get("split", "train"), members.get("num_shards", 64)
    defaults: dict[str, Any] = {
        "dataset_version": DIGITS,
        "split": split,
        "num_shards": num_shards,
        "name": f"{split}-{index:05}-of-{num_shards:05}.tfrecord",
        "etag": "0X8D1",
        "state": ShardState.ACCEPTED,
        "size_bytes": 1000 + index,
        "crc32c": "00c0ffee",
        "num_records": 10,
        "validated_at": NOON,
    }
    return ShardRecord(index=index, **(defaults | members))


def generation_record(number: int = 1, **members: Any) -> Generation:
    """Return a closing of ``digits/v1``."""
    defaults: dict[str, Any] = {
        "dataset_version": DIGITS,
        "fingerprint": "f" * 64,
        "manifest_path": f"manifests/digits/v1/g{number}-ffffffffffff.json",
        "num_shards": 64,
        "num_records": 640,
        "closed_at": NOON,
    }
    return Generation(number=number, **(defaults | members))


def run_record(number: int = 1, **members: Any) -> RunRecord:
    """Return the planned first attempt of a run; a higher number means created later."""
    created_at = NOON + timedelta(seconds=number)
    logical_run = f"landfall-digits-v1-{number:012x}"
    defaults: dict[str, Any] = {
        "run_id": f"{logical_run}-a1",
        "logical_run": logical_run,
        "attempt": 1,
        "dataset_version": DIGITS,
        "generation": 1,
        "fingerprint": "f" * 64,
        "pipeline": "digits",
        "trigger": "closed",
        "spec": {"name": f"{logical_run}-a1", "num_nodes": 2, "tags": {"landfall.pipeline": "digits"}},
        "spec_hash": "5" * 64,
        "created_at": created_at,
        "asked_at": created_at,
        "state_since": created_at,
    }
    return RunRecord(**(defaults | members))


def notification_record(number: int = 1, **members: Any) -> NotificationRecord:
    """Return a pending notification; a higher number means written later."""
    subject, recipient = members.get("subject", "run-1"), members.get("recipient", f"webhook:PEOPLE_{number}")
    defaults: dict[str, Any] = {
        "key": f"{subject}:failed:{recipient}",
        "subject": subject,
        "outcome": "failed",
        "recipient": recipient,
        "content": {"run_id": subject, "reason": "out of memory"},
        "created_at": NOON + timedelta(seconds=number),
    }
    return NotificationRecord(**(defaults | members))


def history_entry(action: str = "event_suppressed", **members: Any) -> HistoryEntry:
    """Return an entry in the history of ``digits/v1``."""
    defaults: dict[str, Any] = {"subject": "digits/v1", "at": NOON, "reason": "the blob is gone"}
    return HistoryEntry(action=action, **(defaults | members))


def dead_letter_record(payload: str = "{}", **members: Any) -> DeadLetter:
    """Return a dead letter of the queue of uploads that has not been replayed."""
    source = members.get("source", "shard-uploaded")
    defaults: dict[str, Any] = {
        "dead_letter_id": dead_letter_id(source, payload),
        "source": source,
        "subject": "digits/v1/train-00000-of-00064.tfrecord",
        "is_whole": True,
        "error": "storage did not answer",
        "tries": 5,
        "died_at": NOON,
    }
    return DeadLetter(payload=payload, **(defaults | members))
