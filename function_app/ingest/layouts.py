"""When a version is whole, by its layout: one class for each way, with the same questions.

Names ``-of-N`` say how many shards there are. Files of any names are whole when a marker says so: every file that
storage lists has an accepted verdict on its current content, and none is newer than the marker for it. Both are
questions to what lies in storage, so the order of events, duplicates and lost ones change nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from function_app.config.layouts import folders_above
from function_app.config.pipelines import Pipeline
from function_app.domain.records import NUM_BUCKETS, BlobFacts, DatasetVersion, ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, shard_place
from function_app.ingest.stored_shards import accepted_in_storage, has_no_records, reject_gone
from function_app.notify.messages import in_words
from function_app.services import IngestServices, RunServices
from shared.shard_names import MAX_SHARDS_PER_SPLIT

logger = logging.getLogger(__name__)

MAX_FILES = MAX_SHARDS_PER_SPLIT
"""Files of a version without ``-of-N`` in their names."""
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


@dataclass(frozen=True, kw_only=True)
class VersionLayout(ABC):
    """A version as its layout sees it."""

    pipeline: Pipeline
    version: DatasetVersion
    services: IngestServices | RunServices

    @abstractmethod
    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """Whether an accepted shard may have been the last one. O(1) operations: every verdict asks.

        ``accepted`` is its bucket's counter, where it is known; ``written_at`` is when its content was uploaded.
        """

    @abstractmethod
    def may_be_whole(self) -> bool:
        """Whether it is worth to read all verdicts."""

    @abstractmethod
    def whole(self, rows: Iterable[ShardRecord]) -> list[ShardRecord] | None:
        """Return the shards of the whole version with their indices, by split and index; None if it is not whole."""

    @abstractmethod
    def splits(self) -> Iterator[SplitState]:
        """Yield the state of each required split."""

    @property
    def guess(self) -> str | None:
        """What the version's wholeness is guessed from; None where it is known."""
        return None

    def are_full(self, sizes: _Sizes) -> bool:
        """Whether all counters have these sizes."""
        return all(
            self.services.ledger.accepted_in_bucket(self.version, split, bucket) == size
            for split, of_split in sizes.items()
            for bucket, size in enumerate(of_split)
        )


def accepted_rows(rows: Iterable[ShardRecord], pipeline: Pipeline) -> list[ShardRecord]:
    """Return the accepted shards of the pipeline's splits in their order."""
    wanted = (r for r in rows if r.state is ShardState.ACCEPTED and r.split in pipeline.data.splits)
    return sorted(wanted, key=lambda row: (row.split, row.index))


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

    def whole(self, rows: Iterable[ShardRecord]) -> list[ShardRecord] | None:
        """See VersionLayout. Rejects shards that were deleted."""
        accepted = accepted_rows(rows, self.pipeline)
        if not self._is_complete(accepted):
            return None  # A shard was rejected after the counters were read; the next accepted one closes.
        stored = accepted_in_storage(self.version, accepted, self.services.shards)
        if stored.problem is not None:
            reject_gone(stored.gone, self.services)
            logger.info(f"{self.version} is not closed: {stored.problem}", extra={"action": "closing_awaits_shards"})
            return None  # The next verdict closes it: an upload of a deleted shard, or that of the new content.
        return accepted

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


@dataclass(frozen=True, kw_only=True)
class _File:
    """A shard that storage lists, with the last accepted or rejected verdict on it."""

    name: str
    split: str
    index: int
    facts: BlobFacts
    row: ShardRecord | None

    @property
    def accepted(self) -> ShardRecord | None:
        """The accepted verdict on its current content."""
        row = self._current
        return row if row is not None and row.state is ShardState.ACCEPTED else None

    @property
    def is_left_out(self) -> bool:
        """Whether it has no record, which is no reason to refuse the version."""
        return has_no_records(self.row, self.facts)

    @property
    def _current(self) -> ShardRecord | None:
        return self.row if self.row is not None and self.row.etag == self.facts.etag else None


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """What storage lists of a version, beside the verdicts."""

    files: list[_File]
    """In the order of their names; one more than `MAX_FILES` where there are too many."""
    markers: Mapping[str, BlobFacts]
    """Folder within the version → its marker."""

    @property
    def covered(self) -> list[_File]:
        """The files that are not newer than a marker for them. Storage states times in seconds."""
        return [file for file in self.files if self._is_covered(file)]

    def _is_covered(self, file: _File) -> bool:
        above = (self.markers.get(folder) for folder in folders_above(file.name))
        return any(one is not None and one.last_modified >= file.facts.last_modified for one in above)


class ListedVersion(VersionLayout):
    """Files of any names: storage's listing says which there are, and is compared with the verdicts."""

    def whole(self, rows: Iterable[ShardRecord]) -> list[ShardRecord] | None:
        """See VersionLayout. Indices follow from the order of the names."""
        listing = self._listing(rows)
        if len(listing.files) > MAX_FILES or not self._is_final(listing):
            return None
        shards = []
        for split in self.pipeline.data.splits:
            verdicts = [file.accepted for file in listing.files if file.split == split and not file.is_left_out]
            accepted = [row for row in verdicts if row is not None]
            if not accepted or len(accepted) < len(verdicts):
                return None
            shards += [replace(row, index=n, num_shards=len(accepted)) for n, row in enumerate(accepted)]
        return sorted(shards, key=lambda row: (row.split, row.index))

    def splits(self) -> Iterator[SplitState]:
        """See VersionLayout."""
        listing = self._listing(self.services.ledger.shards(self.version))
        of_version = list(self._missing_of_all(listing))
        if len(listing.files) > MAX_FILES:
            of_version.append(f"larger files: the version has more than {MAX_FILES:,}")
        for split in self.pipeline.data.splits:
            files = [file for file in listing.files if file.split == split and not file.is_left_out]
            missing = [file.name for file in files if file.accepted is None]
            if not files:
                missing.append(f"{split}: no file of this split with records has come yet")
            yield SplitState(
                split=split,
                num_shards=len(files) if files and self._is_counted(listing) else None,
                rows=[file.row for file in files if file.row is not None],
                missing=[*missing, *self._missing_of_split(files, listing), *of_version],
            )
            of_version = []

    @abstractmethod
    def _is_final(self, listing: _Listing) -> bool:
        """Whether no more files are to come."""

    @abstractmethod
    def _is_counted(self, listing: _Listing) -> bool:
        """Whether the number of files says something."""

    def _missing_of_all(self, listing: _Listing) -> Iterator[str]:
        """Yield what the whole version waits for, beside its files."""
        del listing
        yield from ()

    def _missing_of_split(self, files: list[_File], listing: _Listing) -> Iterator[str]:
        """Yield what a split waits for, beside its files."""
        del files, listing
        yield from ()

    def _listing(self, rows: Iterable[ShardRecord]) -> _Listing:
        layout, prefix = self.pipeline.data.layout, f"{self.version}/"
        verdicts = {(row.split, row.name): row for row in rows if not row.num_shards}
        files, markers = list[_File](), dict[str, BlobFacts]()
        for facts in self.services.shards.list(prefix):
            name = facts.path.removeprefix(prefix)
            if layout.is_marker(name):
                markers[name.rpartition("/")[0]] = facts
            try:
                shard = shard_place(facts.path, self.services.pipelines).shard
            except NotAShardError:
                continue
            row = verdicts.get((shard.split, name))
            files.append(_File(name=name, split=shard.split, index=shard.index, facts=facts, row=row))
            if len(files) > MAX_FILES:
                break
        return _Listing(files=files, markers=markers)

    def _noted(self) -> dict[str, Any] | None:
        text = self.services.ledger.mark(self._note_name)
        note: dict[str, Any] | None = json.loads(text) if text else None
        return note

    def _note(self, note: Mapping[str, Any]) -> None:
        self.services.ledger.set_mark(self._note_name, json.dumps(note))

    @property
    def _note_name(self) -> str:
        return f"{self.pipeline.data.layout.kind}/{self.version}"


class MarkedVersion(ListedVersion):
    """Files of any names, whole when a marker says so.

    When a marker comes, it is noted with which counters the version is whole, so that a verdict after it only
    compares its own. The note is written before the counters are read, and a verdict before the note is read: one of
    the two handlers sees that the version is whole. Where neither does, because files were deleted, the sweep does.
    The number of files is noted too: where it differs later, files were deleted and more may be, or some came back.
    """

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. A file that is newer than all markers waits for another one."""
        note = self._noted()
        if note is None or written_at > datetime.fromisoformat(note["newest_marker"]):
            return False
        sizes: dict[str, list[int]] = note["sizes"]
        if accepted is None:
            accepted = self.services.ledger.accepted_in_bucket(self.version, shard.split, shard.bucket)
        is_full = shard.split in sizes and accepted == sizes[shard.split][shard.bucket]
        return is_full and self.are_full(sizes)

    def may_be_whole(self) -> bool:
        """See VersionLayout. Notes with which counters the version is whole."""
        rows = list(self.services.ledger.shards(self.version))
        listing = self._listing(rows)
        if not listing.markers or self._has_moved_on(listing):
            return False
        sizes = self._sizes(listing, rows)
        note = {
            "markers": digest_of(listing.markers.values()),
            "newest_marker": max(marker.last_modified for marker in listing.markers.values()).isoformat(),
            "num_files": len(listing.covered),
            "sizes": sizes,
        }
        if note != self._noted():
            self._note(note)
        return self.are_full(sizes)

    def _is_final(self, listing: _Listing) -> bool:
        return len(listing.covered) == len(listing.files) and not self._has_moved_on(listing)

    def _is_counted(self, listing: _Listing) -> bool:
        return bool(listing.markers)

    def _missing_of_all(self, listing: _Listing) -> Iterator[str]:
        if self._has_moved_on(listing) and len(listing.covered) == len(listing.files):
            marker = self.pipeline.data.layout.marker
            yield f"{marker}, written again: files have come or gone since it was first seen"

    def _missing_of_split(self, files: list[_File], listing: _Listing) -> Iterator[str]:
        marker, covered = self.pipeline.data.layout.marker, {file.name for file in listing.covered}
        newer = [file.name for file in files if file.name not in covered]
        if newer and listing.markers:
            more = f" and {len(newer) - 1:,} more" if len(newer) > 1 else ""
            yield f"{marker}, written again: it is older than {newer[0]}{more}"
        elif newer:
            yield f"{marker}, which says that all files have come"

    def _sizes(self, listing: _Listing, rows: list[ShardRecord]) -> dict[str, list[int]]:
        """Return the counters of the whole version: its files, and those that were deleted after their verdicts."""
        listed = {(file.split, file.index) for file in listing.files if not file.is_left_out}
        accepted = {(row.split, row.index) for row in accepted_rows(rows, self.pipeline)}
        counts = Counter((split, index % NUM_BUCKETS) for split, index in listed | accepted)
        return {
            split: [counts[split, bucket] for bucket in range(NUM_BUCKETS)] for split in self.pipeline.data.splits
        }

    def _has_moved_on(self, listing: _Listing) -> bool:
        """Whether the same markers counted for another number of files before."""
        note = self._noted()
        is_same = note is not None and note["markers"] == digest_of(listing.markers.values())
        return note is not None and is_same and note["num_files"] != len(listing.covered)


class QuietVersion(ListedVersion):
    """Files of any names, taken for whole when none was written or deleted for a while.

    Only the sweep can see that, by two listings; it notes since when the listing is the same.
    """

    @property
    def guess(self) -> str | None:
        """See VersionLayout."""
        return f"no file had changed for {in_words(self.pipeline.data.layout.quiet_s)}"

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. No verdict can be the last one."""
        del shard, accepted, written_at
        return False

    def may_be_whole(self) -> bool:
        """See VersionLayout. Notes when the listing has changed."""
        listing = self._listing(())
        files, note = digest_of(file.facts for file in listing.files), self._noted()
        if note is None or note["files"] != files:
            self._note({"files": files, "since": self.services.clock().isoformat()})
        return self._is_final(listing)

    def _is_final(self, listing: _Listing) -> bool:
        ends_at = self._quiet_until(listing)
        return ends_at is not None and self.services.clock() >= ends_at

    def _is_counted(self, listing: _Listing) -> bool:
        return self._is_final(listing)

    def _missing_of_all(self, listing: _Listing) -> Iterator[str]:
        if not self._is_final(listing):
            ends_at = self._quiet_until(listing)
            at = f", until {ends_at:%Y-%m-%d %H:%M:%S} UTC" if ends_at is not None else ""
            quiet = in_words(self.pipeline.data.layout.quiet_s)
            yield f"{quiet} without a change{at}, from which it is guessed that all files have come"

    def _quiet_until(self, listing: _Listing) -> datetime | None:
        """Return when the files will not have changed for long enough; None where they have changed just now."""
        note = self._noted()
        if note is None or note["files"] != digest_of(file.facts for file in listing.files):
            return None
        return datetime.fromisoformat(note["since"]) + timedelta(seconds=self.pipeline.data.layout.quiet_s)


LAYOUTS: Mapping[str, type[VersionLayout]] = {"names": NamedVersion, "marker": MarkedVersion, "quiet": QuietVersion}


def layout_of(pipeline: Pipeline, version: DatasetVersion, services: IngestServices | RunServices) -> VersionLayout:
    """Return a version as the layout of its pipeline sees it."""
    return LAYOUTS[pipeline.data.layout.kind](pipeline=pipeline, version=version, services=services)


def digest_of(blobs: Iterable[BlobFacts]) -> str:
    """Return what tells these blobs, each with its content, from others."""
    lines = "\n".join(f"{blob.path} {blob.etag}" for blob in blobs)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
