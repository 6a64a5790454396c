"""Storage against the ledger: shards that have landed and that nobody told us about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from function_app.ledger import DatasetVersion, Generation, ShardRecord, ShardState
from function_app.ports import BlobFacts
from function_app.steps.long_validation import is_under_way
from function_app.steps.services import Services
from function_app.steps.shard_places import NotAShardError, ShardPlace, shard_place


def missed_shards(dataset: str, services: Services) -> Iterator[ShardPlace]:
    """Yield the shards of a dataset whose content has no verdict; the youngest are left to their own events."""
    blobs = services.shards.list(f"{dataset}/")
    for _, of_version in groupby(blobs, key=lambda facts: facts.path.rpartition("/")[0]):
        yield from _missed_of_version(list(_understood(of_version, services)), services)


def unclosed_changes(version: DatasetVersion, generation: Generation, services: Services) -> bool:
    """Whether a verdict is younger than the closing, so that the closing may not have seen it."""
    return any(
        row.validated_at > generation.closed_at
        for row in services.ledger.shards(version)
        if row.state is ShardState.ACCEPTED
    )


def _understood(blobs: Iterable[BlobFacts], services: Services) -> Iterator[tuple[ShardPlace, BlobFacts]]:
    for facts in blobs:
        try:
            yield shard_place(facts.path, services.pipelines), facts
        except NotAShardError:
            continue  # its event has a line in the story; a sweep would add one every few minutes


def _missed_of_version(found: list[tuple[ShardPlace, BlobFacts]], services: Services) -> Iterator[ShardPlace]:
    if not found:
        return
    version = found[0][0].dataset_version
    sizes = services.ledger.split_sizes(version)
    verdicts = {(row.split, row.index): row for row in services.ledger.shards(version)} if sizes else {}
    names = {place.shard.name for place, _ in found}
    for place, facts in found:
        contradictory = sizes.get(place.shard.split, place.shard.num_shards) != place.shard.num_shards
        verdict = verdicts.get((place.shard.split, place.shard.index))
        ripe = services.clock() - facts.last_modified >= services.sweep_grace
        missed = ripe and not contradictory and not _stands(verdict, facts, names)
        if missed and not is_under_way(place, facts, services):
            yield place


def _stands(verdict: ShardRecord | None, facts: BlobFacts, names: set[str]) -> bool:
    """Whether the position has its verdict: on this content, or on another file that is still there."""
    if verdict is None:
        return False
    if facts.path.endswith(f"/{verdict.name}"):
        return verdict.etag == facts.etag
    return verdict.name in names
