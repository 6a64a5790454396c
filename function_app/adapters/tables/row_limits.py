"""Limits of stored records, which both ledgers share. A table row has at most 1 MiB.

Data on which decisions depend are stored completely or refused. Explanations are truncated and say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from function_app.domain.records import (
    MAX_METRICS_CHARS,
    DeadLetter,
    Generation,
    HistoryEntry,
    NotificationRecord,
    RunRecord,
    ShardRecord,
)
from shard_validation import Reason
from shared.errors import LandfallError

MAX_REASONS = 100
MAX_REASONS_CHARS = 64 << 10
MAX_STATISTICS_CHARS = 128 << 10
MAX_SPEC_CHARS = 128 << 10
MAX_CONTENT_CHARS = 128 << 10
MAX_DETAILS_CHARS = 64 << 10
MAX_LOG_TAIL_CHARS = 64 << 10
MAX_TEXT_CHARS = 16 << 10
MAX_SUBJECT_CHARS = 2048
MAX_PAYLOAD_CHARS = 200 << 10
"""Maximum payload of a dead letter, which fits into a row at four bytes per character. Queue messages have 64 KiB."""


class RecordTooLargeError(LandfallError):
    """A member of a record that must not be truncated is too large for a row of the ledger."""


def bounded_shard(shard: ShardRecord) -> ShardRecord:
    """Keep the first reasons that fit, and count the others in the statistics as ``reasons_omitted``."""
    reasons = _first_that_fit(shard.reasons)
    statistics = _json_cut(shard.statistics, MAX_STATISTICS_CHARS)
    omitted = len(shard.reasons) - len(reasons)
    if omitted:
        statistics["reasons_omitted"] = omitted
    return replace(shard, validated_at=_utc(shard.validated_at), reasons=reasons, statistics=statistics)


def bounded_generation(generation: Generation) -> Generation:
    """Keep everything; convert times to UTC."""
    return replace(generation, closed_at=_utc(generation.closed_at))


def bounded_run(run: RunRecord) -> RunRecord:
    """Keep the whole spec, and the end of the log. Raises RecordTooLargeError."""
    return replace(
        run,
        spec=_json_whole(run.spec, MAX_SPEC_CHARS, f"run {run.run_id}: spec"),
        metrics=_json_whole(run.metrics, MAX_METRICS_CHARS, f"run {run.run_id}: metrics"),
        evidence=_json_whole(run.evidence, MAX_METRICS_CHARS, f"run {run.run_id}: evidence"),
        reason=_beginning(run.reason),
        log_tail=run.log_tail and _clean(run.log_tail[-MAX_LOG_TAIL_CHARS:]),
        created_at=_utc(run.created_at),
        asked_at=_utc_or_none(run.asked_at),
        state_since=_utc(run.state_since),
        claimed_until=_utc_or_none(run.claimed_until),
        submitted_at=_utc_or_none(run.submitted_at),
        ended_at=_utc_or_none(run.ended_at),
        notified_at=_utc_or_none(run.notified_at),
        started_at=_utc_or_none(run.started_at),
        not_before=_utc_or_none(run.not_before),
        cancel_requested_at=_utc_or_none(run.cancel_requested_at),
        cancel_reason=_beginning(run.cancel_reason),
        failure_evidence=_beginning(run.failure_evidence),
    )


def bounded_notification(notification: NotificationRecord) -> NotificationRecord:
    """Keep the whole content. Raises RecordTooLargeError."""
    what = f"notification {notification.key}: content"
    return replace(
        notification,
        content=_json_whole(notification.content, MAX_CONTENT_CHARS, what),
        last_error=_beginning(notification.last_error),
        created_at=_utc(notification.created_at),
        not_before=_utc_or_none(notification.not_before),
        sent_at=_utc_or_none(notification.sent_at),
    )


def bounded_history_entry(entry: HistoryEntry) -> HistoryEntry:
    """Keep the beginning of the reason, and the details unless they are too long."""
    return replace(
        entry,
        at=_utc(entry.at),
        reason=_beginning(entry.reason) or "",
        details=_json_cut(entry.details, MAX_DETAILS_CHARS),
    )


def bounded_dead_letter(letter: DeadLetter) -> DeadLetter:
    """Keep the payload or, if it is too long, only its beginning, which cannot be replayed."""
    fits = len(letter.payload) <= MAX_PAYLOAD_CHARS
    return replace(
        letter,
        payload=_clean(letter.payload[:MAX_PAYLOAD_CHARS]),
        is_whole=letter.is_whole and fits,
        subject=letter.subject[:MAX_SUBJECT_CHARS],
        error=_beginning(letter.error) or "",
        died_at=_utc(letter.died_at),
        replayed_at=_utc_or_none(letter.replayed_at),
    )


def _first_that_fit(reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    total_chars = 0
    for number, reason in enumerate(reasons[:MAX_REASONS]):
        total_chars += len(json.dumps(reason.to_json())) + 2  # a comma and a bracket
        if total_chars > MAX_REASONS_CHARS:
            return reasons[:number]
    return reasons[:MAX_REASONS]


def _json_whole(members: Mapping[str, Any], max_chars: int, what: str) -> dict[str, Any]:
    """Return a copy made through JSON, so that later changes by the caller do not change the ledger."""
    text = json.dumps(members)
    if len(text) > max_chars:
        raise RecordTooLargeError(f"{what} has {len(text)} characters of JSON; at most {max_chars} can be stored")
    copy: dict[str, Any] = json.loads(text)
    return copy


def _json_cut(members: Mapping[str, Any], max_chars: int) -> dict[str, Any]:
    try:
        return _json_whole(members, max_chars, "")
    except RecordTooLargeError:
        return {"omitted": f"more than {max_chars} characters of JSON: {', '.join(map(str, members))[:1000]}"}


def _beginning(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_TEXT_CHARS:
        return text and _clean(text)
    return _clean(text[: MAX_TEXT_CHARS - 1]) + "…"


def _clean(text: str) -> str:
    """Replace single surrogates, which UTF-8 cannot encode and undecodable logs contain."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise ValueError(f"the ledger takes aware times, was {time.isoformat()}")
    return time.astimezone(UTC)


def _utc_or_none(time: datetime | None) -> datetime | None:
    return None if time is None else _utc(time)
