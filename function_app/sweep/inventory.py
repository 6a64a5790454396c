"""Compare storage with the ledger: find shards that were uploaded and whose event was lost.

One pass over the listing. A closed version whose blobs have not changed since the last pass costs two reads; every
other version costs a scan of its verdicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from function_app.config.pipelines import Pipeline
from function_app.domain.records import BlobFacts, DatasetVersion, Generation, ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, ShardPlace, shard_place
from function_app.ingest.closing import accepted_content
from function_app.ingest.layouts import layout_of
from function_app.ingest.rejections import is_rejected_for_its_content
from function_app.ingest.stored_shards import listing_mark, was_judged_for
from function_app.ingest.time_budget import is_under_way
from function_app.services import IngestServices


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a pass found out about one version."""

    blobs: str
    """Digest of the version's blobs and its pipeline's splits; empty if some blobs are too young to be judged."""
    last_verdict_at: datetime | None
    last_accepted_at: datetime | None
    last_rejected_at: datetime | None
    """When a shard was last rejected for its content, and not replaced since."""
    num_rejected: int
    num_accepted: int
    """Accepted shards of the pipeline's splits."""
    fingerprint: str
    """What a manifest of the accepted shards would have."""

    def has_changed_since(self, generation: Generation) -> bool:
        """Whether the closing does not include every verdict.

        A verdict is dated before it is written, so one that is older than the closing may have been written after it:
        the content is compared too. Another number of shards follows from other splits in the pipeline's file, which
        do not close a version that was closed.
        """
        if self.last_accepted_at is not None and self.last_accepted_at > generation.closed_at:
            return True
        return self.num_accepted == generation.num_shards and self.fingerprint != generation.fingerprint


@dataclass(kw_only=True)
class Inventory:
    """What a pass over the listing found, for the care of the versions after it."""

    unchanged: dict[DatasetVersion, Generation] = field(default_factory=dict)
    """Closed versions whose blobs have not changed since they were last cared for."""
    looks: dict[DatasetVersion, Look] = field(default_factory=dict)
    """Versions in which no shard was missed."""
    seen: set[DatasetVersion] = field(default_factory=set)
    """Versions that have blobs."""
    listed: set[str] = field(default_factory=set)
    """Datasets whose listing was read completely."""


def missed_shards(
    pipeline: Pipeline, services: IngestServices, inventory: Inventory
) -> Iterator[tuple[ShardPlace, BlobFacts]]:
    """Yield the shards of a dataset whose content has no verdict, except young ones whose event may still come."""
    blobs = services.shards.list(
        f"{pipeline.dataset}/", unlisted=lambda beginning: _record_unlisted(beginning, services)
    )
    for folder, of_version in groupby(blobs, key=lambda facts: facts.path.split("/")[1:2]):
        facts = list(of_version)
        version = _version(facts, services)
        if folder and version is not None:
            inventory.seen.add(version)
            yield from _missed_of_version(version, pipeline, facts, services, inventory)
    inventory.listed.add(pipeline.dataset)


def _record_unlisted(beginning: str, services: IngestServices) -> None:
    """Record once a day that a blob stands in the way of the listing."""
    name, day = f"unlisted/{beginning}", f"{services.clock():%Y-%m-%d}"
    if services.ledger.mark(name) == day:
        return
    folders = beginning.split("/")[:-1]
    subject = "/".join(folders[:2])
    reason = (
        f"storage cannot list a blob whose name begins with {beginning!r} and continues with an unusual character; "
        "delete or rename it: until then every listing takes longer, and blobs with unusual names are skipped"
    )
    services.history.record(subject, "blob_not_listed", reason)
    services.ledger.set_mark(name, day)


def unchanged_closing(
    version: DatasetVersion, pipeline: Pipeline, services: IngestServices, inventory: Inventory
) -> Generation | None:
    """Return the closing of a version that has not changed since the last pass, whether it has blobs or none."""
    if version in inventory.unchanged or not _is_absent(version, inventory):
        return inventory.unchanged.get(version)
    generation = services.ledger.latest_generation(version)
    if generation is None:
        return None
    same = services.ledger.mark(listing_mark(version)) == _mark(generation, _digest(pipeline, []))
    return generation if same else None


def look_at(version: DatasetVersion, pipeline: Pipeline, services: IngestServices, inventory: Inventory) -> Look:
    """Return what the pass found, or look now where shards were missed or the version has no blobs any more."""
    if version in inventory.looks:
        return inventory.looks[version]
    blobs = _digest(pipeline, []) if _is_absent(version, inventory) else ""
    return _look(services.ledger.shards(version), pipeline, blobs=blobs)


def remember(version: DatasetVersion, generation: Generation, look: Look, services: IngestServices) -> None:
    """Note that a closed version needs nothing as it is, so that the next pass can skip it."""
    if look.blobs:
        services.ledger.set_mark(listing_mark(version), _mark(generation, look.blobs))


def _missed_of_version(
    version: DatasetVersion,
    pipeline: Pipeline,
    facts: list[BlobFacts],
    services: IngestServices,
    inventory: Inventory,
) -> Iterator[tuple[ShardPlace, BlobFacts]]:
    blobs = _digest(pipeline, facts)
    generation = services.ledger.latest_generation(version)
    if generation is not None and services.ledger.mark(listing_mark(version)) == _mark(generation, blobs):
        inventory.unchanged[version] = generation
        return
    rows = list(services.ledger.shards(version))
    youngest = max((one.last_modified for one in facts), default=None)
    ripe = youngest is None or services.clock() - youngest >= services.sweep_grace
    found = list(_understood(facts, services))
    missed = list(_without_verdict(version, found, rows, services))
    if missed and pipeline.data.layout.has_any_names:
        layout_of(pipeline, version, services).may_be_whole()  # notes a marker, whose event may be lost as well
    if not missed:
        inventory.looks[version] = _look(rows, pipeline, blobs=blobs if ripe else "")
    # A long shard that another execution is validating is not missed, but the version is not settled either.
    for place, one in missed:
        if not (services.time_budget.is_long(one.size_bytes) and is_under_way(place, one, services)):
            yield place, one


def _is_absent(version: DatasetVersion, inventory: Inventory) -> bool:
    return version.dataset in inventory.listed and version not in inventory.seen


def _version(facts: list[BlobFacts], services: IngestServices) -> DatasetVersion | None:
    """Return the version that the folder's shards belong to; None for a folder without shards."""
    return next((place.dataset_version for place, _ in _understood(facts, services)), None)


def _understood(blobs: Iterable[BlobFacts], services: IngestServices) -> Iterator[tuple[ShardPlace, BlobFacts]]:
    for facts in blobs:
        try:
            yield shard_place(facts.path, services.pipelines), facts
        except NotAShardError:
            continue  # its event is in the history; each sweep would add another entry


def _without_verdict(
    version: DatasetVersion,
    found: list[tuple[ShardPlace, BlobFacts]],
    rows: list[ShardRecord],
    services: IngestServices,
) -> Iterator[tuple[ShardPlace, BlobFacts]]:
    sizes = services.ledger.split_sizes(version)
    verdicts = {(row.split, row.index): row for row in rows}
    names = {place.shard.name for place, _ in found}
    backed = backed_sizes(place for place, _ in found)
    for place, facts in found:
        size = sizes.get(place.shard.split, place.shard.num_shards)
        contradictory = size != place.shard.num_shards and size in backed[place.shard.split]
        verdict = verdicts.get((place.shard.split, place.shard.index))
        ripe = services.clock() - facts.last_modified >= services.sweep_grace
        if ripe and not contradictory and not _holds(verdict, place, facts, names):
            yield place, facts


def _holds(verdict: ShardRecord | None, place: ShardPlace, facts: BlobFacts, names: set[str]) -> bool:
    """Whether the verdict on record still holds: it is on this content, or on another file that still exists."""
    if verdict is None:
        return False
    if facts.path.endswith(f"/{verdict.name}"):
        return verdict.etag == facts.etag and was_judged_for(verdict, place.pipeline.data.layout)
    return verdict.name in names


def _look(rows: Iterable[ShardRecord], pipeline: Pipeline, *, blobs: str) -> Look:
    known = list(rows)
    accepted = [row.validated_at for row in known if row.state is ShardState.ACCEPTED]
    num_accepted, fingerprint = accepted_content(known, pipeline)
    return Look(
        blobs=blobs,
        last_verdict_at=max((row.validated_at for row in known), default=None),
        last_accepted_at=max(accepted, default=None),
        last_rejected_at=max((row.validated_at for row in known if is_rejected_for_its_content(row)), default=None),
        num_rejected=len(known) - len(accepted),
        num_accepted=num_accepted,
        fingerprint=fingerprint,
    )


def _digest(pipeline: Pipeline, facts: list[BlobFacts]) -> str:
    lines = [",".join(pipeline.data.splits), *(f"{one.path}\0{one.etag}" for one in facts)]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _mark(generation: Generation, blobs: str) -> str:
    return f"g{generation.number} {blobs}"


def backed_sizes(places: Iterable[ShardPlace]) -> dict[str, set[int]]:
    """Return, for each split, every N that shards in the store have."""
    sizes: dict[str, set[int]] = {}
    for place in places:
        sizes.setdefault(place.shard.split, set()).add(place.shard.num_shards)
    return sizes
