"""Records as columns of a table row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from azure.data.tables import EntityProperty

from function_app.adapters.tables.row_limits import (
    MAX_CONTENT_CHARS,
    MAX_DETAILS_CHARS,
    MAX_LOG_TAIL_CHARS,
    MAX_SPEC_CHARS,
    MAX_STATISTICS_CHARS,
    MAX_TEXT_CHARS,
    bounded_history_entry,
    bounded_notification,
    bounded_run,
    bounded_shard,
)
from function_app.adapters.tables.rows import from_columns, to_columns
from function_app.domain.records import (
    MAX_METRICS_CHARS,
    HistoryEntry,
    NotificationRecord,
    RunRecord,
    ShardRecord,
    ShardState,
)
from shard_validation import Reason, ReasonCode
from tests.support.ledger_records import history_entry, notification_record, run_record, shard_record

MAX_PROPERTY_BYTES = 64 << 10
MAX_ENTITY_BYTES = 1 << 20
"""Both: https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model."""

WIDE = "\U0001f600"


def stored_bytes(columns: dict[str, Any]) -> dict[str, int]:
    """What each property takes: names and texts in UTF-16, eight bytes for a number, eight of overhead."""
    return {
        name: 8 + 2 * len(name) + (len(value.encode("utf-16-le")) if isinstance(value, str) else 8)
        for name, value in columns.items()
    }


def json_of(max_chars: int) -> dict[str, str]:
    """A mapping of just that many characters of JSON."""
    return {"text": "x" * (max_chars - len('{"text": ""}'))}


REASONS = tuple(
    Reason(code=ReasonCode.PAYLOAD_CRC, shard=WIDE * 200, message=WIDE * 500, record_index=index)
    for index in range(200)
)

LARGEST: dict[str, ShardRecord | RunRecord | NotificationRecord | HistoryEntry] = {
    "shard": bounded_shard(
        shard_record(
            name=WIDE * 200, reasons=REASONS, statistics=json_of(MAX_STATISTICS_CHARS), state=ShardState.REJECTED
        )
    ),
    "run": bounded_run(
        run_record(
            spec=json_of(MAX_SPEC_CHARS),
            metrics=json_of(MAX_METRICS_CHARS),
            log_tail=WIDE * (2 * MAX_LOG_TAIL_CHARS),
            reason=WIDE * (2 * MAX_TEXT_CHARS),
        )
    ),
    "notification": bounded_notification(
        notification_record(content=json_of(MAX_CONTENT_CHARS), last_error=WIDE * (2 * MAX_TEXT_CHARS))
    ),
    "entry": bounded_history_entry(
        history_entry(details=json_of(MAX_DETAILS_CHARS), reason=WIDE * (2 * MAX_TEXT_CHARS))
    ),
}


@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_record_fits_into_a_row(kind: str) -> None:
    """A tenth of the row remains for keys and for what Azure adds."""
    sizes = stored_bytes(to_columns(LARGEST[kind]))
    assert max(sizes.values()) <= MAX_PROPERTY_BYTES
    assert sum(sizes.values()) <= MAX_ENTITY_BYTES * 9 // 10


def test_columns_are_plain_for_people() -> None:
    """Words, numbers and times can be read in any table browser."""
    columns = to_columns(shard_record(3))
    seen = [columns[name] for name in ("dataset", "version", "split", "state", "index", "validated_at")]
    assert ["digits", "v1", "train", "accepted", (3, "Edm.Int64"), "2026-11-20T12:00:00.123456+00:00"] == seen


def test_a_row_without_a_later_member_is_read() -> None:
    """A verdict says its format since that was kept; before, it says None, which is no format."""
    shard = shard_record(content_format="tfrecord gzip")
    columns = {name: _as_read(value) for name, value in to_columns(shard).items() if name != "content_format"}
    assert replace(shard, content_format=None) == from_columns(ShardRecord, columns)


def _as_read(value: object) -> object:
    """A column as the SDK returns it: a number of 64 bits in an object of its own."""
    return EntityProperty(*value) if isinstance(value, tuple) else value


def test_what_is_none_has_no_column() -> None:
    """The revision has no column either: it is the row's ETag."""
    columns = to_columns(replace(run_record(), revision="7"))
    assert [] == [name for name in ("reason", "submitted_at", "revision") if name in columns]
