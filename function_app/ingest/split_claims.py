"""The N of ``-of-N``: the first shard of a split claims it, and keeps it while a shard with that N exists.

A wrong first shard must not make a version's name unusable. When a shard with another N arrives, the store decides:
while any shard with the claimed N exists, the claim stands and the new shard is refused. Once the last of them has
been deleted, the claim moves to the new shard's N.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from function_app.domain.records import ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, ShardPlace, shard_place
from function_app.services import IngestServices
from shard_validation import Reason, ReasonCode

MAX_NAMED = 5
"""Shards that a message names as holders of a claim."""


def claim_conflict(place: ShardPlace, services: IngestServices) -> str | None:
    """Claim the shard's N for its split. Return None where the claim holds, otherwise why it conflicts."""
    version, shard = place.dataset_version, place.shard
    size = services.ledger.claim_split_size(version, shard.split, shard.num_shards)
    if size == shard.num_shards:
        return None
    holders = list(islice(_holders(place, size, services), MAX_NAMED))
    if not holders:
        _void_verdicts(place, services)
        size = services.ledger.move_split_size(version, shard.split, held=size, num_shards=shard.num_shards)
        if size == shard.num_shards:
            _record_move(place, services)
            return None
    named = ", ".join(holders) or "a shard that arrived meanwhile"
    return (
        f"{place.path}: its name says -of-{shard.num_shards:05d}, but {named} came first and split {shard.split} has "
        f"{size} shards; delete the shards of one of the two sets, or upload this set as a new version"
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


def _void_verdicts(place: ShardPlace, services: IngestServices) -> None:
    """Reject the deleted shards with another N: as accepted shards they would count together with the new ones."""
    for row in services.ledger.shards(place.dataset_version):
        is_other = row.split == place.shard.split and row.num_shards != place.shard.num_shards
        if is_other and row.state is ShardState.ACCEPTED:
            services.ledger.record_shard(_voided(row, services))


def _voided(row: ShardRecord, services: IngestServices) -> ShardRecord:
    reason = Reason(
        code=ReasonCode.SET_SIZE_CONTRADICTORY,
        shard=row.name,
        message=f"{row.name} was deleted, and its split now has another number of shards",
    )
    return replace(row, state=ShardState.REJECTED, reasons=(reason,), validated_at=services.clock())


def _record_move(place: ShardPlace, services: IngestServices) -> None:
    version, shard = place.dataset_version, place.shard
    reason = (
        f"{shard.split} now has {shard.num_shards} shards: {shard.name} came, and no shard of the old set is left"
    )
    services.history.record(str(version), "split_size_moved", reason, split=shard.split, num_shards=shard.num_shards)


def backed_sizes(places: Iterable[ShardPlace]) -> dict[str, set[int]]:
    """Return, for each split, every N that shards in the store have."""
    sizes: dict[str, set[int]] = {}
    for place in places:
        sizes.setdefault(place.shard.split, set()).add(place.shard.num_shards)
    return sizes
