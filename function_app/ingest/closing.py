"""Closing a dataset version: detect that it is complete, check the set, close once per content, and follow up."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import LedgerConflictError, ServiceUnavailableError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion, Generation, HistoryEntry, ShardRecord, manifest_path
from function_app.ingest.drift import is_blocked_by_drift
from function_app.ingest.layouts import VersionLayout, Whole, layout_of
from function_app.ingest.stored_shards import CLOCK_SKEW, accepted_rows
from function_app.notify.outbox import add_notifications, deliver
from function_app.ports import HistoryLedger, VersionLedger
from function_app.services import IngestServices
from function_app.telemetry import Span
from shard_validation import (
    COUNT_FILES,
    MAX_COUNTS_BYTES,
    CountsError,
    Reason,
    ReasonCode,
    ShardStatistics,
    SourceError,
    StatedCounts,
    check_set,
    read_counts,
)
from shard_validation.sets import WARNINGS, VersionStatistics
from shared.errors import LandfallError
from shared.manifest import Manifest, ManifestShard, fingerprint
from shared.safe_text import counted
from shared.traces import place_of_generation, place_of_version

logger = logging.getLogger(__name__)

MAX_TRIES = 5
CLOSED = "closed"
"""The trigger of a run that a closing starts."""
SET_REJECTED, SET_WARNED = "set_rejected", "set_warned"
"""Outcomes of notifications about a complete version; the first one is also an action of the history."""
MAX_LISTED_REASONS = 50
"""Maximum reasons stored with a refusal: there may be one for each shard."""


def close_if_whole(
    pipeline: Pipeline,
    shard: ShardRecord,
    services: IngestServices,
    *,
    written_at: datetime,
    accepted: int | None = None,
) -> None:
    """Close the shard's version if this shard was the last.

    ``written_at`` is when the shard was uploaded, ``accepted`` its bucket's counter, if it is known. Only a shard
    that fills its bucket reads the other buckets, and only a complete version is read completely: O(1) operations for
    each shard.
    """
    version = shard.dataset_version
    if not layout_of(pipeline, version, services).may_be_last(shard, accepted, written_at):
        return
    latest = services.ledger.latest_generation(version)
    is_late = latest is not None and shard.validated_at < latest.closed_at - CLOCK_SKEW
    if latest is not None and is_late and latest.table_version is None:  # a table may have more commits to close
        # A late duplicate: the closing already includes this verdict; only its follow-up may have been interrupted.
        follow_up(pipeline, latest, services)
        return
    close_version(pipeline, version, services)


def close_if_whole_without(
    pipeline: Pipeline, shard: ShardRecord, replaced: ShardRecord | None, services: IngestServices
) -> None:
    """Close the version of a rejected shard if it is whole without that shard, see `may_be_whole_without`."""
    version = shard.dataset_version
    if layout_of(pipeline, version, services).may_be_whole_without(shard, replaced):
        close_version(pipeline, version, services)


def close_version(pipeline: Pipeline, version: DatasetVersion, services: IngestServices) -> Generation | None:
    """Close a version if every shard of every required split is accepted. Return its generation, or None.

    For a Delta table, every version that can be closed is closed, in order; only the newest is followed up.
    """
    layout = layout_of(pipeline, version, services)
    while layout.may_be_whole():
        generation, found = _generation(pipeline, version, services, layout)
        if found is not None and not found.is_newest:
            layout = layout_of(pipeline, version, services, after=found.table_version)
            continue
        if generation is not None:
            follow_up(pipeline, generation, services)
        return generation
    return None


def _generation(
    pipeline: Pipeline, version: DatasetVersion, services: IngestServices, layout: VersionLayout
) -> tuple[Generation | None, Whole | None]:
    """Return the new or existing generation of the current shards, and its content.

    None if the set is refused or incomplete.
    """
    for _ in range(MAX_TRIES):
        # Read before the verdicts: if another handler closes the version between the two reads, the number is taken
        # and this handler reads the verdicts again. In the other order, older verdicts could become a newer
        # generation.
        latest = services.ledger.latest_generation(version)
        found = layout.whole(services.ledger.shards(version))
        if found is None:
            return None, None
        rows = found.shards
        manifest = _manifest(pipeline, version, rows, number=latest.number + 1 if latest else 1)
        if latest is not None and latest.fingerprint == manifest.fingerprint:
            return latest, found
        formats = {row.name: row.content_format for row in rows if row.content_format is not None}
        if refuse_set(pipeline, manifest, formats, services):
            return None, found
        generation = _closing(manifest, found, services.clock())
        services.documents.write_once(generation.manifest_path, manifest.to_json().encode())
        if warnings := _warnings(pipeline, manifest):
            # Before the row: a step that dies here is repeated; one that dies after the row is not.
            text = f"complete and can be trained, with {len(warnings)} warnings: {warnings[0].message}"
            _notify_of_set(pipeline, manifest, warnings, outcome=SET_WARNED, text=text, services=services)
        is_fresh = _notify_of_closing(pipeline, generation, services) or bool(warnings)
        if services.ledger.add_generation(generation):
            _trace_closing(generation, rows, services)
            _record_closing(generation, [warning.message for warning in warnings], services)
            if is_fresh:
                deliver(str(version), services)
            return generation, found
    raise LedgerConflictError(
        f"{version}: other handlers closed it {MAX_TRIES} times in a row; the next delivery or sweep tries again"
    )


def _manifest(pipeline: Pipeline, version: DatasetVersion, rows: list[ShardRecord], number: int) -> Manifest:
    shards = _manifest_shards(rows)
    return Manifest(
        dataset=version.dataset,
        version=version.version,
        generation=number,
        fingerprint=fingerprint(shards),
        data_format=pipeline.data.format,
        features=pipeline.data.feature_specs(),
        shards=shards,
        statistics=_statistics(rows).to_json(),
    )


def _manifest_shards(rows: list[ShardRecord]) -> tuple[ManifestShard, ...]:
    return tuple(
        ManifestShard(
            split=row.split,
            index=row.index,
            num_shards=row.num_shards,
            name=row.name,
            size_bytes=row.size_bytes,
            crc32c=row.crc32c,
            num_records=row.num_records,
        )
        for row in rows
    )


def accepted_content(rows: Iterable[ShardRecord], pipeline: Pipeline) -> tuple[int, str]:
    """Return how many shards of the pipeline's splits are accepted, and the fingerprint of a manifest of them."""
    shards = _manifest_shards(accepted_rows(rows, pipeline))
    return len(shards), fingerprint(shards)


def _statistics(rows: list[ShardRecord]) -> VersionStatistics:
    """Merge the shards' statistics; a shard whose statistics were too large for the ledger is left out."""
    return VersionStatistics.of(
        (row.split, ShardStatistics.from_json(row.statistics)) for row in rows if "features" in row.statistics
    )


def described(manifest: Manifest, closed_at: datetime) -> Generation:
    """Return the ledger's row of a closing."""
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    return Generation(
        dataset_version=version,
        number=manifest.generation,
        fingerprint=manifest.fingerprint,
        manifest_path=manifest_path(version, manifest.generation, manifest.fingerprint),
        num_shards=len(manifest.shards),
        num_records=sum(shard.num_records for shard in manifest.shards),
        closed_at=closed_at,
    )


def _closing(manifest: Manifest, found: Whole, closed_at: datetime) -> Generation:
    return replace(
        described(manifest, closed_at),
        guess=found.guess,
        table_version=found.table_version,
        is_rearranged=found.is_rearranged,
    )


def _warnings(pipeline: Pipeline, manifest: Manifest) -> list[Reason]:
    """Return unusual properties of a set that can be trained on."""
    requirements = replace(pipeline.data.requirements(), counts="ignore")
    return [reason for reason in check_set(manifest.shards, requirements) if reason.code in WARNINGS]


def _trace_closing(generation: Generation, rows: list[ShardRecord], services: IngestServices) -> None:
    """Trace a closing; the first one also writes the root of the version's trace. Only one handler gets here."""
    version, now = generation.dataset_version, services.clock()
    root, place = place_of_version(version), place_of_generation(version, generation.number)
    since = min((row.validated_at for row in rows), default=generation.closed_at)
    spans = [
        Span(name="dataset version", place=root, parent=None, started_at=since, ended_at=now),
        Span(name="closed", place=place, parent=services.telemetry.below(root), started_at=now, ended_at=now),
    ]
    for span in spans[generation.number > 1 :]:
        span.set(dataset_version=str(version), generation=generation.number, shards=generation.num_shards)
        services.telemetry.ended(span)


def _record_closing(generation: Generation, warnings: list[str], services: IngestServices) -> None:
    warned = f"; {len(warnings)} warnings: {warnings[0]}" if warnings else ""
    guessed = f"; a guess: {generation.guess}" if generation.guess else ""
    table = f", version {generation.table_version} of the table" if generation.table_version is not None else ""
    services.history.record(
        str(generation.dataset_version),
        "version_closed" if generation.number == 1 else "version_changed",
        f"complete with {_size(generation)}: generation {generation.number}{table}{guessed}{warned}",
        fingerprint=generation.fingerprint,
        manifest=generation.manifest_path,
        **({"warnings": warnings[:MAX_LISTED_REASONS]} if warnings else {}),
    )
    if generation.number > 1:
        before, number = generation.number - 1, generation.number
        reason = f"generation {before} is superseded by generation {number}"
        services.history.record(str(generation.dataset_version), "generation_superseded", reason)


def starts_run(pipeline: Pipeline, generation: Generation, ledger: VersionLedger) -> bool:
    """Whether a closing of uploaded shards starts a run automatically, if its data do not drift.

    A closing that only rearranges a table's files starts none, unless an earlier closing has not started its run yet.
    """
    if generation.number == 1 or generation.table_version is None:
        return generation.num_shards > 0 and (generation.number == 1 or pipeline.on_change != "notify")
    earlier = [each for each in ledger.generations(generation.dataset_version) if each.number < generation.number]
    if not any(each.auto_run_id for each in earlier):
        return True
    before = max(earlier, key=lambda each: each.number)
    if generation.is_rearranged:
        return before.auto_run_id is None and starts_run(pipeline, before, ledger)
    return pipeline.on_change != "notify"


def follow_up(pipeline: Pipeline, generation: Generation, services: IngestServices) -> None:
    """Request the training or notify people of the change, depending on the pipeline. Safe to repeat."""
    if not starts_run(pipeline, generation, services.ledger):
        if not generation.is_rearranged:
            _notify_of_change(pipeline, generation, services)
    elif generation.auto_run_id is None or services.ledger.run(generation.auto_run_id) is None:
        if is_blocked_by_drift(pipeline, generation, services):
            return
        request = TrainingRequest(
            dataset_version=generation.dataset_version, generation=generation.number, trigger=CLOSED
        )
        _start(request, services)


def _start(request: TrainingRequest, services: IngestServices) -> None:
    """Start a run: in this process if possible, otherwise through the queue.

    The queue's function may have no instance yet, and its queue is polled rarely. So a message is sent first,
    invisible for a while: if this process dies or Azure ML does not respond, the function starts the run.
    """
    if services.start is None:
        services.requests.send(request)
        return
    message = services.requests.send(request, hidden_for=services.start_patience)
    try:
        services.start(request, services)
    except LandfallError:
        logger.exception("the run is not started yet", extra={"action": "start_failed"})
    else:
        services.requests.delete(message)


def _size(generation: Generation) -> str:
    return f"{counted(generation.num_shards, 'shard')} and {counted(generation.num_records, 'record')}"


def _notify_of_closing(pipeline: Pipeline, generation: Generation, services: IngestServices) -> bool:
    """Notify recipients of progress that a version is complete; True if new. Written before the row."""
    if not pipeline.has_own_outcomes:
        return False
    version = generation.dataset_version
    return add_notifications(
        pipeline.notify,
        subject=str(version),
        outcome="version_whole",
        occasion=generation.fingerprint[:12],
        content={
            "text": f"{version} is complete with {_size(generation)}.",
            "dataset": version.dataset,
            "version": version.version,
            "generation": generation.number,
            "fingerprint": generation.fingerprint,
            "num_shards": generation.num_shards,
            "num_records": generation.num_records,
        },
        services=services,
    )


def _notify_of_change(pipeline: Pipeline, generation: Generation, services: IngestServices) -> None:
    version = str(generation.dataset_version)
    add_notifications(
        pipeline.notify,
        subject=version,
        outcome="version_changed",
        occasion=f"g{generation.number}",
        content={
            "text": f"{version} changed after it had closed: it is generation {generation.number} now, with "
            f"{counted(generation.num_records, 'record')}. No run was started; to train on it: "
            f"landfall submit {version}",
            "dataset": generation.dataset_version.dataset,
            "version": generation.dataset_version.version,
            "generation": generation.number,
            "fingerprint": generation.fingerprint,
        },
        services=services,
    )
    deliver(version, services)


# -- checks of a complete version that no single shard allows --------------------------------------------------
def refuse_set(pipeline: Pipeline, manifest: Manifest, formats: Mapping[str, str], services: IngestServices) -> bool:
    """Check the shards as a set. If a check fails, record why, notify people and return True.

    ``formats`` maps a shard's name to its format, where the ledger knows it.
    """
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    reasons = _set_reasons(pipeline, manifest, formats, services)
    if not reasons:
        return False
    messages = [reason.message for reason in reasons[:MAX_LISTED_REASONS]]
    text = f"complete, but refused as a set for {len(reasons)} reasons: {messages[0]}"
    if messages != _last_messages(version, services):
        services.history.record(str(version), SET_REJECTED, text, fingerprint=manifest.fingerprint, messages=messages)
    _notify_of_set(pipeline, manifest, reasons, outcome=SET_REJECTED, text=text, services=services)
    deliver(str(version), services)
    return True


def _notify_of_set(
    pipeline: Pipeline,
    manifest: Manifest,
    reasons: list[Reason],
    *,
    outcome: str,
    text: str,
    services: IngestServices,
) -> None:
    """Write the notifications about a set to the outbox, once for the same shards and reasons."""
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    listed = reasons[:MAX_LISTED_REASONS]
    add_notifications(
        pipeline.notify,
        subject=str(version),
        outcome=outcome,
        occasion=_occasion(manifest, [reason.message for reason in listed]),
        content={"text": f"{version} is {text}", "dataset": version.dataset, "version": version.version}
        | {"fingerprint": manifest.fingerprint, "reasons": [reason.to_json() for reason in listed]},
        services=services,
    )


def _occasion(manifest: Manifest, messages: list[str]) -> str:
    """Identify a finding by shards and reasons, so each is sent once; stated counts may change without the shards."""
    digest = hashlib.sha256("\n".join(messages).encode()).hexdigest()
    return f"{manifest.fingerprint[:12]}-{digest[:8]}"


def last_refusal(version: DatasetVersion, ledger: HistoryLedger) -> HistoryEntry | None:
    """Return the last refusal of a version's set; None if it was never refused or was closed afterwards."""
    about_set = (
        entry
        for entry in reversed(ledger.history(str(version)))
        if entry.action in {SET_REJECTED, "version_closed", "version_changed"}
    )
    last = next(about_set, None)
    return last if last is not None and last.action == SET_REJECTED else None


def _last_messages(version: DatasetVersion, services: IngestServices) -> list[str] | None:
    refusal = last_refusal(version, services.ledger)
    return None if refusal is None else list(refusal.details.get("messages", ()))


def _set_reasons(
    pipeline: Pipeline, manifest: Manifest, formats: Mapping[str, str], services: IngestServices
) -> list[Reason]:
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    requirements, reasons, counts = pipeline.data.requirements(), list[Reason](), None
    try:
        counts = None if requirements.counts == "ignore" else _stated_counts(version, services)
    except CountsError as error:
        reasons.append(Reason(code=ReasonCode.SET_COUNTS_UNREADABLE, shard=COUNT_FILES[0], message=str(error)))
        requirements = replace(requirements, counts="ignore")  # they are not compared with anything
    found = check_set(manifest.shards, requirements, counts=counts, formats=formats)
    return reasons + [reason for reason in found if reason.code not in WARNINGS]


def _stated_counts(version: DatasetVersion, services: IngestServices) -> StatedCounts | None:
    """Read the record counts that the dataset states. Raises CountsError if they cannot be understood."""
    for name in COUNT_FILES:
        facts = services.shards.facts(f"{version}/{name}")
        if facts is None:
            continue
        try:
            content = services.shards.open(facts).read(0, min(facts.size_bytes, MAX_COUNTS_BYTES + 1))
        except SourceError as error:
            raise ServiceUnavailableError(f"{facts.path} could not be read: {error}") from error
        return read_counts(name, content)
    return None
