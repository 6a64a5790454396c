"""Notifications of rejected shards: the first one of a version at once, further ones in one summary by the sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import DatasetVersion, ShardRecord, ShardState
from function_app.domain.shard_paths import ShardPlace
from function_app.notify.outbox import add_notifications
from function_app.services import IngestServices, NotifyServices
from shard_validation import Reason, ShardVerdict, SourceError
from shard_validation.sets import with_sources
from shared.safe_text import shown
from shared.source_names import DATASET_FILE, MAX_FILE_BYTES

FIRST, SUMMARY = "shard_rejected", "shards_rejected"
"""Outcomes of the notifications."""
LONGEST_SILENCE = timedelta(hours=1)
"""While more shards are rejected all the time, a summary is sent so often."""
MAX_REASONS = 10
MAX_NAMED = 10
OF_SETS = "set_"
"""Beginning of the codes of shards that were deleted, or whose set changed: nothing was wrong with their content."""


def add_first_rejection(
    place: ShardPlace, reasons: Sequence[Reason], services: NotifyServices, *, etag: str = "", occasion: str = ""
) -> bool:
    """Write the notification of a version's first rejected shard to the outbox; True if it is the first.

    ``occasion`` makes a separate notification for a file without a verdict, because no summary would name it.
    """
    version, more = place.dataset_version, f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    text = (
        f"{version}: shard {place.shard.name} is rejected: {reasons[0].message}{more}. "
        f"{_what_to_do(place.pipeline, place.shard.name)}"
    )
    content = {
        "text": text,
        "dataset": version.dataset,
        "version": version.version,
        "shard": place.shard.name,
        "etag": etag,
        "record_index": reasons[0].record_index,
        "reasons": [reason.to_json() for reason in reasons[:MAX_REASONS]],
    }
    return add_notifications(
        place.pipeline.notify,
        subject=str(version),
        outcome=FIRST,
        occasion=occasion,
        content=content,
        services=services,
    )


def with_packed_names(place: ShardPlace, verdict: ShardVerdict, services: IngestServices) -> ShardVerdict:
    """Name the files that rejected records were packed from, where the version's dataset.json knows them."""
    if all(reason.record_index is None for reason in verdict.reasons):
        return verdict
    try:
        facts = services.shards.facts(f"{place.dataset_version}/{DATASET_FILE}")
        if facts is None or facts.size_bytes > MAX_FILE_BYTES:
            return verdict
        content = services.shards.open(facts).read(0, facts.size_bytes)
    except (SourceError, ServiceUnavailableError):
        return verdict  # the messages lack a name, which is no reason to validate again
    return with_sources(verdict, place.shard.name, content)


def _what_to_do(pipeline: Pipeline, shard: str) -> str:
    return (
        "Correct it and upload it again under the same name. To see all problems on your machine: "
        f"landfall validate {shown(shard)} --pipeline {shown(pipeline.file_name)}"
    )


def sum_up_rejections(
    pipeline: Pipeline, version: DatasetVersion, last_rejected_at: datetime, services: IngestServices
) -> None:
    """Write one notification of all shards that were rejected since the last one, once no more are.

    The stretch of time that a summary covers is claimed before its notifications are written, and they are written
    again while it is not marked as done: even if a process dies in between, each rejection is in one summary.
    """
    if not pipeline.notify:
        return
    name = f"rejections/{version}"
    before = services.ledger.mark(name)
    known: dict[str, Any] = json.loads(before) if before else {"since": "", "until": "", "is_done": True}
    if known["is_done"]:
        now = services.clock()
        settled = now - services.sweep_grace  # a verdict is dated before it is written
        until, is_quiet = min(last_rejected_at, settled).isoformat(), last_rejected_at <= settled
        if until <= known["until"] or not (is_quiet or _is_overdue(known["until"], now)):
            return
        known = {"since": known["until"], "until": until, "is_done": False}
        claimed = json.dumps(known)
        if not services.ledger.change_mark(name, before, claimed):
            return  # another sweep does it
        before = claimed
    _add_summary(pipeline, version, known["since"], known["until"], services)
    services.ledger.change_mark(name, before, json.dumps({**known, "is_done": True}))


def _is_overdue(until: str, now: datetime) -> bool:
    return bool(until) and now - datetime.fromisoformat(until) >= LONGEST_SILENCE


def _add_summary(
    pipeline: Pipeline, version: DatasetVersion, since: str, until: str, services: IngestServices
) -> None:
    sent = {
        (row.content.get("shard"), row.content.get("etag"))
        for row in services.ledger.notifications(str(version))
        if row.outcome == FIRST
    }
    rejected = [row for row in services.ledger.shards(version) if is_rejected_for_its_content(row)]
    fresh = [
        row for row in rejected if since < row.validated_at.isoformat() <= until and (row.name, row.etag) not in sent
    ]
    if fresh:
        add_notifications(
            pipeline.notify,
            subject=str(version),
            outcome=SUMMARY,
            occasion=until,
            content=_summary(pipeline, version, fresh, len(rejected)),
            services=services,
        )


def is_rejected_for_its_content(row: ShardRecord) -> bool:
    """Whether a shard was rejected for what it contains, not because it was deleted or its set changed."""
    return row.state is ShardState.REJECTED and bool(row.reasons) and not row.reasons[0].code.startswith(OF_SETS)


def _summary(
    pipeline: Pipeline, version: DatasetVersion, fresh: Sequence[ShardRecord], num_rejected: int
) -> dict[str, Any]:
    named = "; ".join(row.reasons[0].message for row in fresh[:MAX_NAMED])
    more = f"; and {len(fresh) - MAX_NAMED} more shards" if len(fresh) > MAX_NAMED else ""
    codes = Counter(str(row.reasons[0].code) for row in fresh)
    is_one = len(fresh) == 1
    return {
        "text": (
            f"{version}: {len(fresh)} more shard{' is' if is_one else 's are'} rejected, {num_rejected} in all: "
            f"{named}{more}. {_what_to_do(pipeline, fresh[0].name)}"
        ),
        "dataset": version.dataset,
        "version": version.version,
        "num_rejected": num_rejected,
        "codes": dict(codes.most_common()),
        "shards": [row.name for row in fresh[:MAX_NAMED]],
    }
