"""Handle an uploaded shard: read its current state, validate it, record the verdict, close the version if whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import CREATED, FINAL_WRITES, Upload
from function_app.domain.records import BlobFacts, DatasetVersion, RecordedShard, ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, ShardPlace, counted_version, marked_version, shard_place
from function_app.ingest.closing import close_if_whole, close_if_whole_without, close_version
from function_app.ingest.rejected_copies import keep_rejected
from function_app.ingest.rejections import add_first_rejection, with_packed_names
from function_app.ingest.stored_shards import reject_former, was_judged_for
from function_app.ingest.time_budget import CONTINUED, validate_in_slices
from function_app.ingest.validation_checkpoints import (
    StoredCheckpoint,
    counted_execution,
    forget_checkpoint,
    interrupted_verdict,
    is_exhausted,
)
from function_app.notify.outbox import deliver
from function_app.services import IngestServices
from function_app.telemetry import Span, is_traced
from shard_validation import (
    Reason,
    ReasonCode,
    ShardVerdict,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
)
from shared.errors import LandfallError
from shared.safe_text import counted, shown
from shared.traces import place_of_version

MAX_ROUNDS = 5
"""A shard that is overwritten more often than this during validation is left to its next delivery."""
OTHERS_UPLOADS = "upload_events_of_others"
"""Counter of events outside every pipeline: other containers, datasets without a pipeline."""
MAX_NAMED = 5
"""Shards that a message names as holders of a claim."""

_Judged = tuple[ShardRecord, RecordedShard]

logger = logging.getLogger(__name__)


def handle_upload(upload: Upload, services: IngestServices) -> None:
    """Handle one event completely. Raises ServiceUnavailableError if it should be delivered again."""
    if not _is_ours(upload, services):
        _pass_over(upload, services)
        return
    if reason := _irrelevance(upload):
        _suppress(upload.path, reason, services, event_id=upload.event_id)
        return
    if marked := marked_version(upload.path, services.pipelines):
        is_list = marked[0].data.layout.has_list
        checked = _checked_again(*marked, services)
        services.history.record(upload.path, "list_written" if is_list else "marker_written", checked)
        return
    if counted := counted_version(upload.path, services.pipelines):
        services.history.record(upload.path, "counts_stated", _checked_again(*counted, services))
        return
    try:
        place = shard_place(upload.path, services.pipelines)
    except NotAShardError as error:
        _suppress(upload.path, str(error), services, event_id=upload.event_id)
        return
    is_counted = upload.is_repeated or upload.event_type == CONTINUED
    with _span(upload, place, services):
        judge_shard(place, services, is_counted=is_counted, is_small=is_small(upload, services))


def is_small(upload: Upload, services: IngestServices) -> bool:
    """Whether an event states a size up to which shards are handled together."""
    return upload.size_bytes is not None and 0 <= upload.size_bytes <= services.turns.small_bytes


def _span(upload: Upload, place: ShardPlace, services: IngestServices) -> AbstractContextManager[Span | None]:
    return services.telemetry.span(
        "BlobCreated",
        place_of_version(place.dataset_version),
        is_kept=is_traced(place.shard.index, place.shard.num_shards),
        link=upload.traced_from,
        dataset_version=str(place.dataset_version),
        shard=place.shard.name,
        event_id=upload.event_id,
    )


def _checked_again(pipeline: Pipeline, version: DatasetVersion, services: IngestServices) -> str:
    """Close the version if a file that is not a shard has completed it or corrected its counts; return the result."""
    closed = close_version(pipeline, version, services)
    found = "not complete, or refused as a set" if closed is None else f"generation {closed.number}"
    return f"checked its version again: {found}"


@dataclass(frozen=True, kw_only=True)
class FirstVerdict:
    """The verdict on an accepted shard that is not recorded yet, and whose position may have another one."""

    upload: Upload
    place: ShardPlace
    record: ShardRecord
    written_at: datetime


def first_verdict(upload: Upload, services: IngestServices) -> FirstVerdict | None:
    """Judge a small shard without a look at its position; None if it is not simply accepted.

    No verdict is recorded, so `handle_upload` may handle the event afterwards. It also handles the few shards that
    are traced, so that their spans say how long each step took.
    """
    path, pipelines = upload.path, services.pipelines
    is_first = not upload.is_repeated and upload.event_type == CREATED and _irrelevance(upload) is None
    is_file_of_version = counted_version(path, pipelines) or marked_version(path, pipelines)
    if not is_first or is_file_of_version or not _is_ours(upload, services):
        return None
    try:
        place = shard_place(path, pipelines)
        has_list = place.pipeline.data.layout.has_list  # each verdict is compared with it
        has_trace = services.telemetry_sink is not None and is_traced(place.shard.index, place.shard.num_shards)
        if has_list or has_trace:
            return None
        facts = services.shards.facts(place.path, content_up_to=services.turns.small_bytes)
        if facts is None or facts.content is None or claim_conflict(place, services):
            return None
        verdict = services.validate(services.shards.open(facts), place.pipeline.data.requirements())
    except (NotAShardError, SourceError, LandfallError):
        return None  # whatever it is, handle_upload meets it too
    if not verdict.accepted:
        return None
    record, written_at = _record(place, facts, verdict, services), facts.last_modified
    return FirstVerdict(upload=upload, place=place, record=record, written_at=written_at)


def record_first(group: Sequence[FirstVerdict], services: IngestServices) -> bool:
    """Record verdicts on shards of one split and bucket in one transaction, and close the version if it is complete.

    Where a position has a verdict after all, nothing is recorded and the answer is False.
    """
    accepted = services.ledger.record_first_verdicts([one.record for one in group])
    if accepted is None:
        return False
    for one in group:
        path, record, first = one.place.path, one.record, _in_words(one.record)
        services.history.record(path, f"shard_{record.state}", first, etag=record.etag, crc32c=record.crc32c)
    last, written_at = group[-1], min(one.written_at for one in group)
    with _span(last.upload, last.place, services):
        close_if_whole(last.place.pipeline, last.record, services, written_at=written_at, accepted=accepted)
    return True


def judge_shard(
    place: ShardPlace, services: IngestServices, *, is_counted: bool = False, is_small: bool = False
) -> None:
    """Bring the verdict on one position up to date with the store, and close the version if it is complete.

    ``is_counted``: count the execution even for a short shard, in case the process dies. ``is_small``: read the
    content together with the facts; if it is larger than the event says, it is read again.
    """
    content_up_to = services.turns.small_bytes if is_small else 0
    for _ in range(MAX_ROUNDS):
        facts = services.shards.facts(place.path, content_up_to=content_up_to)
        if facts is None:
            _suppress(place.path, "the blob is gone", services)
            return
        try:
            judged = _verdict_on(place, facts, services, is_counted=is_counted)
        except SourceChangedError:
            continue
        if judged is None:
            return
        shard, recorded = judged
        # The verdict that was replaced may have been another handler's on newer content, so the last writer checks
        # again. A first verdict replaces none: the handler that judges newer content writes over it.
        if recorded.replaced is None or _is_current(shard, services):
            if shard.state is ShardState.ACCEPTED:
                written_at, accepted = facts.last_modified, recorded.accepted
                close_if_whole(place.pipeline, shard, services, written_at=written_at, accepted=accepted)
            else:
                close_if_whole_without(place.pipeline, shard, recorded.replaced, services)
            return
    raise ServiceUnavailableError(f"{place.path} was overwritten {MAX_ROUNDS} times during validation")


def _is_current(shard: ShardRecord, services: IngestServices) -> bool:
    facts = services.shards.facts(f"{shard.dataset_version}/{shard.name}")
    return facts is not None and facts.etag == shard.etag


def _is_ours(upload: Upload, services: IngestServices) -> bool:
    return upload.container == services.data_container and _is_near_shards(upload.path, services)


def _is_near_shards(path: str, services: IngestServices) -> bool:
    """Whether a path is in a folder that may hold shards of a dataset that has a pipeline."""
    dataset, *folders, _ = path.split("/") if "/" in path else (path, "")
    pipeline = services.pipelines.get(dataset)
    return pipeline is not None and bool(folders) and pipeline.data.layout.may_hold_shards(folders[1:])


def _pass_over(upload: Upload, services: IngestServices) -> None:
    """Leave an upload that matches no pipeline in service. The sweep finds it once its pipeline is corrected."""
    dataset = upload.path.partition("/")[0]
    if upload.container == services.data_container and dataset in services.out_of_service:
        reason = f"it is judged when the file is corrected: {services.outage(dataset)}"
        services.history.record(upload.path, "upload_waits", reason)
        return
    # Counted by day, not by path: other writers in the account must not fill the ledger.
    services.ledger.count(OTHERS_UPLOADS, f"{services.clock():%Y-%m-%d}")
    logger.info(f"{shown(upload.path)} matches no pipeline", extra={"action": "foreign_upload"})


def _irrelevance(upload: Upload) -> str | None:
    """Return why an event changes nothing; None if it may change something."""
    if upload.event_type == CONTINUED:
        return None
    if upload.event_type != CREATED:
        return f"{upload.event_type[:100]} changes nothing: a closed version stays as it was"
    if upload.api not in FINAL_WRITES:
        return f"{upload.api[:100]!r} leaves the blob incomplete: the event that counts is still to come"
    return None


def _verdict_on(place: ShardPlace, facts: BlobFacts, services: IngestServices, *, is_counted: bool) -> _Judged | None:
    """Return the verdict on this content, from the ledger or new; None if there can be none."""
    known = services.ledger.shard(place.dataset_version, place.shard.split, place.shard.index)
    is_same = known is not None and (known.name, known.etag) == (place.shard.name, facts.etag)
    if known is not None and is_same and was_judged_for(known, place.pipeline.data.layout):
        _suppress(place.path, f"this content has already been judged: {known.state}", services, etag=facts.etag)
        return known, RecordedShard(replaced=None)
    if reason := _position_conflict(place, known, services):
        code, message = reason
        found = Reason(code=code, shard=place.shard.name, message=message)
        if add_first_rejection(place, [found], services, occasion=f"{code}/{place.shard.split}"):
            deliver(str(place.dataset_version), services)
        services.history.record(place.path, "shard_rejected", message, code=str(code))
        services.history.record(
            str(place.dataset_version), "shard_rejected", message, code=str(code), shard=place.shard.name
        )
        return None
    judge = _judge_counted if is_counted or services.time_budget.is_long(facts.size_bytes) else _judge
    return judge(place, facts, known, services)


def _position_conflict(
    place: ShardPlace, known: ShardRecord | None, services: IngestServices
) -> tuple[ReasonCode, str] | None:
    """Return why a file cannot have its position: another file has it, or its ``-of-N`` conflicts with others."""
    version, shard = place.dataset_version, place.shard
    if conflict := claim_conflict(place, services):
        return ReasonCode.SET_SIZE_CONTRADICTORY, conflict
    if known is None or known.name == shard.name or services.shards.facts(f"{version}/{known.name}") is None:
        return None
    return ReasonCode.SET_NAMES_COLLIDE, (
        f"{place.path}: index {shard.index} of {shard.split} is taken by {known.name}; delete one of the two"
    )


def _judge_counted(
    place: ShardPlace, facts: BlobFacts, known: ShardRecord | None, services: IngestServices
) -> _Judged | None:
    with counted_execution(place, facts, services) as begun:
        return _judge(place, facts, known, services, begun)


def _judge(
    place: ShardPlace,
    facts: BlobFacts,
    known: ShardRecord | None,
    services: IngestServices,
    begun: StoredCheckpoint | None = None,
) -> _Judged | None:
    """Validate and record. Raises SourceChangedError if the content changed in the meantime."""
    try:
        verdict = _validate(place, facts, begun, services)
        if verdict is not None and not verdict.accepted:
            verdict = with_packed_names(place, verdict, services)
            keep_rejected(place, facts, verdict, services)  # first: a recorded verdict is not repeated
    except SourceGoneError:
        _suppress(place.path, "the blob was deleted while it was read", services)
        return None
    except SourceForbiddenError as error:
        services.history.record(place.path, "shard_unreadable", str(error), etag=facts.etag)
        raise  # delivered again, since the role may be granted; becomes a dead letter with this reason
    except SourceUnavailableError as error:
        raise ServiceUnavailableError(f"{place.path} could not be read: {error}") from error
    if verdict is None:
        return None  # another message continues
    # Before the verdict is recorded: a recorded one is not repeated.
    is_first = not verdict.accepted and add_first_rejection(place, verdict.reasons, services, etag=facts.etag)
    record = _record(place, facts, verdict, services)
    recorded = services.ledger.record_shard(record, is_first=known is None)
    if begun is not None:
        forget_checkpoint(place, services)
    state, first = record.state, _in_words(record)
    services.history.record(place.path, f"shard_{state}", first, etag=facts.etag, crc32c=verdict.crc32c)
    if is_first:
        deliver(str(place.dataset_version), services)
    return record, recorded


def _in_words(record: ShardRecord) -> str:
    return record.reasons[0].message if record.reasons else f"accepted with {counted(record.num_records, 'record')}"


def _validate(
    place: ShardPlace, facts: BlobFacts, begun: StoredCheckpoint | None, services: IngestServices
) -> ShardVerdict | None:
    if begun is not None and is_exhausted(begun):
        return interrupted_verdict(facts, begun, services)
    if begun is not None and services.time_budget.is_long(facts.size_bytes):
        return validate_in_slices(place, facts, begun, services)
    version = place_of_version(place.dataset_version)
    with services.telemetry.span("verdict", services.telemetry.below(version), is_kept=False) as span:
        verdict = services.validate(services.shards.open(facts), place.pipeline.data.requirements())
        if span is not None:
            span.set(accepted=verdict.accepted, records=verdict.num_records, size_bytes=facts.size_bytes)
        return verdict


def _record(place: ShardPlace, facts: BlobFacts, verdict: ShardVerdict, services: IngestServices) -> ShardRecord:
    return ShardRecord(
        dataset_version=place.dataset_version,
        split=place.shard.split,
        index=place.shard.index,
        num_shards=place.shard.num_shards,
        name=place.shard.name,
        etag=facts.etag,
        state=ShardState.ACCEPTED if verdict.accepted else ShardState.REJECTED,
        size_bytes=verdict.size_bytes,
        crc32c=verdict.crc32c,
        num_records=verdict.num_records,
        content_format=verdict.content_format,
        validated_at=services.clock(),
        reasons=verdict.reasons,
        statistics=verdict.statistics.to_json(),
        digests=verdict.digests or None,
    )


def _suppress(path: str, reason: str, services: IngestServices, **details: str) -> None:
    services.history.record(path, "event_suppressed", reason, **details)


def claim_conflict(place: ShardPlace, services: IngestServices) -> str | None:
    """Claim the N of ``-of-N`` for the shard's split; return why it conflicts with the claim, None if it does not.

    The first shard of a split claims its N. A wrong first shard must not make a version's name unusable, so the store
    decides where a shard with another N arrives: while any shard with the claimed N exists, the claim stands and the
    new shard is refused; once the last of them has been deleted, the claim moves to the new shard's N.
    """
    version, shard = place.dataset_version, place.shard
    claimed, split = {} if services.claimed_sizes is None else services.claimed_sizes, (version, shard.split)
    if claimed.get(split) != shard.num_shards:
        claimed[split] = services.ledger.claim_split_size(version, shard.split, shard.num_shards)
    if (size := claimed[split]) == shard.num_shards:
        return None
    holders = list(islice(_holders(place, size, services), MAX_NAMED))
    if not holders:
        reject_former(services.ledger.shards(version), {shard.split: shard.num_shards}, services)
        size = services.ledger.move_split_size(version, shard.split, held=size, num_shards=shard.num_shards)
        claimed[split] = size
        if size == shard.num_shards:
            _record_move(place, services)
            return None
    named = ", ".join(holders) or "a shard that arrived meanwhile"
    return (
        f"{place.path}: its name says -of-{shard.num_shards:05d}, but {named} came first and split {shard.split} has "
        f"{counted(size, 'shard')}; delete the shards of one of the two sets, or upload this set as a new version"
    )


def _holders(place: ShardPlace, size: int, services: IngestServices) -> Iterator[str]:
    """Yield the names of the split's shards in the store that have the claimed N."""
    for facts in services.shards.list(f"{place.dataset_version}/"):
        try:
            other = shard_place(facts.path, services.pipelines).shard
        except NotAShardError:
            continue
        if (other.split, other.num_shards) == (place.shard.split, size):
            yield other.name


def _record_move(place: ShardPlace, services: IngestServices) -> None:
    version, shard = place.dataset_version, place.shard
    size = f"has {counted(shard.num_shards, 'shard')}" if shard.num_shards else "has shards of any names"
    reason = f"{shard.split} now {size}: {shard.name} came, and no shard of the old set is left"
    services.history.record(str(version), "split_size_moved", reason, split=shard.split, num_shards=shard.num_shards)
