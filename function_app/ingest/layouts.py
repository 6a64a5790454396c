"""When a version is whole, by its layout: one class for each way, with the same questions.

Names ``-of-N`` say how many shards there are. Files of any names are whole when a marker says so: every file that
storage lists has an accepted verdict on its current content, and none is newer than the marker for it. Both are
questions to what lies in storage, so the order of events, duplicates and lost ones change nothing.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from function_app.config.pipelines import Pipeline
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord, ShardState
from function_app.ingest.stored_shards import accepted_in_storage, accepted_rows, reject_gone
from function_app.services import IngestServices, RunServices

logger = logging.getLogger(__name__)

_Sizes = Mapping[str, Sequence[int]]
"""Split → how many accepted verdicts each of its buckets has once the version is whole."""


@dataclass(frozen=True, kw_only=True)
class SplitState:
    """What there is of a split, and what keeps it from being whole."""

    split: str
    num_shards: int | None
    """None while it is unknown how many there will be."""
    rows: list[ShardRecord]
    """Verdicts on its shards."""
    missing: list[str]
    """Shards without an accepted verdict, by name, and what else is missing, in words."""
    unlisted: Sequence[str] = ()
    """Files in storage that are no part of the version, because its list does not name them."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What a closing of a whole version is of."""

    shards: list[ShardRecord]
    """With their indices, by split and index."""
    guess: str | None = None
    """What the wholeness is guessed from; None where it is known."""
    table_version: int | None = None
    """The version of a Delta table; None for other layouts."""
    is_rearranged: bool = False
    """Whether the records are those of the closing before, in other files."""
    is_newest: bool = True
    """Whether it is known of no later version of the table."""


@dataclass(frozen=True, kw_only=True)
class VersionLayout(ABC):
    """A version as its layout sees it."""

    pipeline: Pipeline
    version: DatasetVersion
    services: IngestServices | RunServices
    after: int | None = None
    """Up to which version of a Delta table nothing more can be closed; None for other layouts."""

    @abstractmethod
    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """Whether an accepted shard may have been the last one. O(1) operations: every verdict asks.

        ``accepted`` is its bucket's counter, where it is known; ``written_at`` is when its content was uploaded.
        """

    def may_be_whole_without(self, shard: ShardRecord, replaced: ShardRecord | None) -> bool:
        """Whether a version may be whole because a shard was rejected. O(1) operations: every rejection asks.

        ``replaced`` is the verdict that the shard had before.
        """
        del shard, replaced
        return False

    @abstractmethod
    def may_be_whole(self) -> bool:
        """Whether it is worth to read all verdicts."""

    @abstractmethod
    def whole(self, rows: Iterable[ShardRecord]) -> Whole | None:
        """Return what a closing would be of; None if the version is not whole."""

    @abstractmethod
    def splits(self) -> Iterator[SplitState]:
        """Yield the state of each required split."""

    def are_full(self, sizes: _Sizes) -> bool:
        """Whether all counters have these sizes, or are larger: files that are no part of the version count too."""
        return all(
            self.services.ledger.accepted_in_bucket(self.version, split, bucket) >= size
            for split, of_split in sizes.items()
            for bucket, size in enumerate(of_split)
        )


class NamedVersion(VersionLayout):
    """Shards whose names end in ``-of-N``: whole with all indices of every split."""

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. Only a shard that fills its bucket has the other buckets read."""
        del written_at
        if accepted is None:
            accepted = self.services.ledger.accepted_in_bucket(self.version, shard.split, shard.bucket)
        return accepted == _size_of(shard.bucket, shard.num_shards)

    def may_be_whole(self) -> bool:
        """See VersionLayout."""
        sizes, splits = self.services.ledger.split_sizes(self.version), self.pipeline.data.splits
        if not splits or any(split not in sizes for split in splits):
            return False  # synthetic data have no splits: no upload closes a version
        return self.are_full({
            split: tuple(_size_of(bucket, sizes[split]) for bucket in range(min(NUM_BUCKETS, sizes[split])))
            for split in splits
        })  # fmt: skip

    def whole(self, rows: Iterable[ShardRecord]) -> Whole | None:
        """See VersionLayout. Rejects shards that were deleted."""
        accepted = accepted_rows(rows, self.pipeline)
        if not self._is_complete(accepted):
            return None  # A shard was rejected after the counters were read; the next accepted one closes.
        stored = accepted_in_storage(self.version, accepted, self.services.shards)
        if stored.problem is not None:
            reject_gone(stored.gone, self.services)
            logger.info(f"{self.version} is not closed: {stored.problem}", extra={"action": "closing_awaits_shards"})
            return None  # The next verdict closes it: an upload of a deleted shard, or that of the new content.
        return Whole(shards=accepted)

    def splits(self) -> Iterator[SplitState]:
        """See VersionLayout."""
        sizes = self.services.ledger.split_sizes(self.version)
        rows = list(self.services.ledger.shards(self.version)) if sizes else []
        for split in self.pipeline.data.splits:
            size = sizes.get(split)
            own = [row for row in rows if row.split == split and row.num_shards == size]
            accepted = {row.index for row in own if row.state is ShardState.ACCEPTED}
            missing = [f"{split}-*: no shard of this split has come yet"]
            if size is not None:
                missing = [f"{split}-{n:05d}-of-{size:05d}" for n in range(size) if n not in accepted]
            yield SplitState(split=split, num_shards=size, rows=own, missing=missing)

    def _is_complete(self, rows: list[ShardRecord]) -> bool:
        for split in self.pipeline.data.splits:
            own = [row for row in rows if row.split == split]
            if not own or [(row.index, row.num_shards) for row in own] != [(n, len(own)) for n in range(len(own))]:
                return False
        return True


def _size_of(bucket: int, num_shards: int) -> int:
    return len(range(bucket, num_shards, NUM_BUCKETS))


def layout_of(
    pipeline: Pipeline, version: DatasetVersion, services: IngestServices | RunServices, after: int | None = None
) -> VersionLayout:
    """Return a version as the layout of its pipeline sees it; see `VersionLayout.after`."""
    kinds: dict[str, type[VersionLayout]] = {"names": NamedVersion}
    if pipeline.data.layout.has_any_names:
        from function_app.ingest.list_layout import ListVersion
        from function_app.ingest.listed_layouts import MarkedVersion, QuietVersion
        from function_app.ingest.table_layout import TableOfVersion

        kinds |= {"marker": MarkedVersion, "manifest": ListVersion, "delta": TableOfVersion, "quiet": QuietVersion}
    kind = kinds[pipeline.data.layout.kind]
    return kind(pipeline=pipeline, version=version, services=services, after=after)
