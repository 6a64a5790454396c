"""When a version is complete: one class for each layout, with the same interface.

Names ``-of-N`` say how many shards there are. Files with any names are complete when a marker says so: every file
that storage lists has an accepted verdict on its current content, and none is newer than its marker. Both checks read
storage, so the order, duplication and loss of events do not matter.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from function_app.config.pipelines import Pipeline
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord, ShardState
from function_app.ingest.stored_shards import accepted_in_storage, accepted_rows, reject_former, reject_gone
from function_app.services import IngestServices, RunServices

logger = logging.getLogger(__name__)

_Sizes = Mapping[str, Sequence[int]]
"""Split → how many accepted verdicts each of its buckets has once the version is complete."""


@dataclass(frozen=True, kw_only=True)
class SplitState:
    """The state of a split, and what keeps it incomplete."""

    split: str
    num_shards: int | None
    """None while it is unknown how many there will be."""
    rows: list[ShardRecord]
    """Verdicts on its shards."""
    missing: list[str]
    """Shards without an accepted verdict, by name, and what else is missing, in words."""
    unlisted: Sequence[str] = ()
    """Files in storage that do not belong to the version, because its list does not name them."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The content of a complete version, for its closing."""

    shards: list[ShardRecord]
    """With their indices, by split and index."""
    guess: str | None = None
    """Evidence from which completeness is guessed; None if it is known."""
    table_version: int | None = None
    """The version of a Delta table; None for other layouts."""
    is_rearranged: bool = False
    """Whether it has the same records as the previous closing, in other files."""
    is_newest: bool = True
    """Whether no later version of the table is known."""


@dataclass(frozen=True, kw_only=True)
class VersionLayout(ABC):
    """A version and its layout."""

    pipeline: Pipeline
    version: DatasetVersion
    services: IngestServices | RunServices
    after: int | None = None
    """The version of a Delta table up to which nothing more can be closed; None for other layouts."""

    @abstractmethod
    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """Whether an accepted shard may have been the last one. O(1) operations, because every verdict calls it.

        ``accepted`` is its bucket's counter, if it is known; ``written_at`` is when its content was uploaded.
        """

    def may_be_whole_without(self, shard: ShardRecord, replaced: ShardRecord | None) -> bool:
        """Whether a version may be whole because a shard was rejected. O(1) operations: every rejection asks.

        ``replaced`` is the verdict that the shard had before.
        """
        del shard, replaced
        return False

    @abstractmethod
    def may_be_whole(self) -> bool:
        """Whether reading all verdicts is worthwhile."""

    @abstractmethod
    def whole(self, rows: Iterable[ShardRecord]) -> Whole | None:
        """Return the content for a closing; None if the version is incomplete."""

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
    """Shards whose names end in ``-of-N``: complete with all indices of every split."""

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. The other buckets are read only if this shard fills its own."""
        del written_at
        if accepted is None:
            accepted = self.services.ledger.accepted_in_bucket(self.version, shard.split, shard.bucket)
        return accepted >= _size_of(shard.bucket, shard.num_shards)  # more: a late verdict of a former -of-N

    def may_be_whole(self) -> bool:
        """See VersionLayout."""
        sizes, splits = self.services.ledger.split_sizes(self.version), self.pipeline.data.splits
        if not splits or any(split not in sizes for split in splits):
            return False  # synthetic data have no splits, so no upload closes a version
        return self.are_full({
            split: tuple(_size_of(bucket, sizes[split]) for bucket in range(min(NUM_BUCKETS, sizes[split])))
            for split in splits
        })  # fmt: skip

    def whole(self, rows: Iterable[ShardRecord]) -> Whole | None:
        """See VersionLayout. Rejects shards that were deleted, and those of a former ``-of-N``."""
        accepted = accepted_rows(rows, self.pipeline)
        # Read after the verdicts. A slow handler may write a verdict after its split's N has moved.
        sizes = self.services.ledger.split_sizes(self.version)
        reject_former(accepted, sizes, self.services)
        accepted = [row for row in accepted if row.num_shards == sizes.get(row.split)]
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
            missing = [f"{split}-*: no shard of this split has arrived yet"]
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
    """Return a version with the layout of its pipeline; see `VersionLayout.after`."""
    kinds: dict[str, type[VersionLayout]] = {"names": NamedVersion}
    if pipeline.data.layout.has_any_names:
        from function_app.ingest.list_layout import ListVersion
        from function_app.ingest.listed_layouts import MarkedVersion, QuietVersion
        from function_app.ingest.table_layout import TableOfVersion

        kinds |= {"marker": MarkedVersion, "manifest": ListVersion, "delta": TableOfVersion, "quiet": QuietVersion}
    kind = kinds[pipeline.data.layout.kind]
    return kind(pipeline=pipeline, version=version, services=services, after=after)
