"""The N of ``-of-N``: the first shard of a split claims it, for as long as a shard of that N is there.

A wrong first shard must not spoil a version's name for good. So a shard under another N looks at the store: while
a single shard under the claimed N lies there, the claim stands and the newcomer is refused; once the last of them was
deleted, the claim moves to the newcomer's N. Nobody has to decide which of two complete sets is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from function_app.domain.records import ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, ShardPlace, shard_place
from function_app.services import Services
from shard_validation import Reason, ReasonCode

MAX_NAMED = 5
"""Of the shards that hold a claim, in a message."""


def claim_conflict(place: ShardPlace, services: Services) -> str | None:
    """Claim the place's N for its split; say who holds another one, None where this one is held now."""
    version, shard = place.dataset_version, place.shard
    size = services.ledger.claim_split_size(version, shard.split, shard.num_shards)
    if size == shard.num_shards:
        return None
    holders = list(islice(_holders(place, size, services), MAX_NAMED))
    if not holders:
        _void_verdicts(place, services)
        size = services.ledger.move_split_size(version, shard.split, held=size, num_shards=shard.num_shards)
        if size == shard.num_shards:
            _tell_story(place, services)
            return None
    named = ", ".join(holders) or "a shard that came meanwhile"
    return (
        f"{place.path}: split {shard.split} should have {size} shards as {named} said first, "
        f"was -of-{shard.num_shards:05d}; delete the shards of one N, or upload the set as a new version"
    )


def _holders(place: ShardPlace, size: int, services: Services) -> Iterator[str]:
    """Yield the names of the shards of the split that lie in the store under the N that is claimed."""
    for facts in services.shards.list(f"{place.dataset_version}/"):
        try:
            other = shard_place(facts.path, services.pipelines).shard
        except NotAShardError:
            continue
        if (other.split, other.num_shards) == (place.shard.split, size):
            yield other.name


def _void_verdicts(place: ShardPlace, services: Services) -> None:
    """Take back the verdicts on shards of other Ns, all of which are gone: they would count with the new ones."""
    for row in services.ledger.shards(place.dataset_version):
        is_other = row.split == place.shard.split and row.num_shards != place.shard.num_shards
        if is_other and row.state is ShardState.ACCEPTED:
            services.ledger.record_shard(_voided(row, services))


def _voided(row: ShardRecord, services: Services) -> ShardRecord:
    reason = Reason(
        code=ReasonCode.SET_SIZE_CONTRADICTORY,
        shard=row.name,
        message=f"{row.name} was deleted, and its split has another number of shards now",
    )
    return replace(row, state=ShardState.REJECTED, reasons=(reason,), validated_at=services.clock())


def _tell_story(place: ShardPlace, services: Services) -> None:
    version, shard = place.dataset_version, place.shard
    reason = f"{shard.split} has {shard.num_shards} shards now: none of the former number is left; {shard.name} came"
    services.history.record(str(version), "split_size_moved", reason, split=shard.split, num_shards=shard.num_shards)


def backed_sizes(places: Iterable[ShardPlace]) -> dict[str, set[int]]:
    """Return, for each split, the Ns under which shards lie in the store."""
    sizes: dict[str, set[int]] = {}
    for place in places:
        sizes.setdefault(place.shard.split, set()).add(place.shard.num_shards)
    return sizes
