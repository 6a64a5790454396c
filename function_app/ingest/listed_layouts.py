"""Versions whose files have any names: storage lists them, and a marker or a quiet while says that all are there."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from function_app.config.layouts import folders_above
from function_app.domain.records import NUM_BUCKETS, BlobFacts, ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, shard_place
from function_app.ingest.layouts import SplitState, VersionLayout, Whole
from function_app.ingest.stored_shards import accepted_rows, has_no_records, is_without_records
from function_app.notify.messages import in_words
from shared.shard_names import MAX_SHARDS_PER_SPLIT

MAX_FILES = MAX_SHARDS_PER_SPLIT
"""Files of a version without ``-of-N`` in their names."""
MAX_LOOKS = 5
"""How often one handler looks at a version to which verdicts come meanwhile; the sweep looks later."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
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
class Listing:
    """What storage lists of a version, beside the verdicts."""

    files: list[StoredFile]
    """In the order of their names; one more than `MAX_FILES` if there are too many."""
    markers: Mapping[str, BlobFacts]
    """Folder within the version → its marker; for a Delta table, path within the version → file of its log."""

    @property
    def is_settled(self) -> bool:
        """Whether each file has a verdict with which the version can be whole."""
        return all(file.accepted is not None or file.is_left_out for file in self.files)

    @property
    def covered(self) -> list[StoredFile]:
        """The files that are not newer than a marker for them. Storage states times in seconds."""
        return [file for file in self.files if self._is_covered(file)]

    def _is_covered(self, file: StoredFile) -> bool:
        above = (self.markers.get(folder) for folder in folders_above(file.name))
        return any(one is not None and one.last_modified >= file.facts.last_modified for one in above)


_Looked = tuple[dict[str, Any], bool]
"""What to note, with the counters of the whole version under ``sizes``; and whether no more verdicts are to come."""
L = TypeVar("L", bound=Listing)


class ListedVersion(VersionLayout, Generic[L]):
    """Files of any names: storage's listing says which there are, and is compared with the verdicts."""

    def whole(self, rows: Iterable[ShardRecord]) -> Whole | None:
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
            shards += [replace(row, split=split, index=n, num_shards=len(accepted)) for n, row in enumerate(accepted)]
        return self._closing_of(sorted(shards, key=lambda row: (row.split, row.index)), listing)

    def _closing_of(self, shards: list[ShardRecord], listing: L) -> Whole:
        """Return what a closing with these shards would be of."""
        del listing
        return Whole(shards=shards)

    def may_be_whole_without(self, shard: ShardRecord, replaced: ShardRecord | None) -> bool:
        """See VersionLayout. What is noted counts a file without records until its verdict is known."""
        del replaced
        return is_without_records(shard)

    def is_full_with(self, shard: ShardRecord, accepted: int | None, sizes: Mapping[str, list[int]]) -> bool:
        """Whether all counters are full, see `are_full`; the others are read only if that of this shard is."""
        if accepted is None:
            accepted = self.services.ledger.accepted_in_bucket(self.version, shard.split, shard.bucket)
        is_full = shard.split in sizes and accepted >= sizes[shard.split][shard.bucket]
        return is_full and self.are_full(sizes)

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
                missing=[*missing, *self._missing_of_split(split, files, listing), *of_version],
                unlisted=list(self._unlisted(split, listing)),
            )
            of_version = []

    @abstractmethod
    def _is_final(self, listing: L) -> bool:
        """Whether no more files are to come."""

    @abstractmethod
    def _is_counted(self, listing: L) -> bool:
        """Whether the number of files says something."""

    def _missing_of_all(self, listing: L) -> Iterator[str]:
        """Yield what the whole version waits for, beside its files."""
        del listing
        yield from ()

    def _missing_of_split(self, split: str, files: list[StoredFile], listing: L) -> Iterator[str]:
        """Yield what a split waits for, beside its files."""
        del split, files, listing
        yield from ()

    def _unlisted(self, split: str, listing: L) -> Iterator[str]:
        """Yield the files of a split that are no part of the version."""
        del split, listing
        yield from ()

    @abstractmethod
    def _listing(self, rows: Iterable[ShardRecord]) -> L:
        """Return what storage lists, as the layout sees it."""

    def _in_storage(self, rows: Iterable[ShardRecord]) -> Listing:
        layout, prefix = self.pipeline.data.layout, f"{self.version}/"
        verdicts = {(row.split, row.name): row for row in rows if not row.num_shards}
        files, markers = list[StoredFile](), dict[str, BlobFacts]()
        for facts in self.services.shards.list(prefix):
            name = facts.path.removeprefix(prefix)
            if layout.is_marker(name):
                markers[name if layout.kind == "delta" else name.rpartition("/")[0]] = facts
            try:
                shard = shard_place(facts.path, self.services.pipelines).shard
            except NotAShardError:
                continue
            row = verdicts.get((shard.split, name))
            files.append(StoredFile(name=name, split=shard.split, index=shard.index, facts=facts, row=row))
            if len(files) > MAX_FILES:
                break
        return Listing(files=files, markers=markers)

    def _are_noted_counters_full(self, look: Callable[[], _Looked | None]) -> bool:
        """Note with which counters the version is whole; whether they are full.

        ``look`` looks at storage and the verdicts; it returns None where nothing says yet which files there are. A
        verdict that is written between the look and the note is compared with an older note, and may change with
        which counters the version is whole. So while verdicts are to come, look again after the note is written.
        """
        looked = look()
        for _ in range(MAX_LOOKS):
            if looked is None:
                return False
            note, is_settled = looked
            if note == self._noted():
                break
            self._note(note)
            looked = looked if is_settled else look()
            if looked is not None and looked[0] == note:
                break
        return looked is not None and self.are_full(looked[0]["sizes"])

    def _noted(self) -> dict[str, Any] | None:
        text = self.services.ledger.mark(self._note_name)
        note: dict[str, Any] | None = json.loads(text) if text else None
        return note

    def _note(self, note: Mapping[str, Any]) -> None:
        self.services.ledger.set_mark(self._note_name, json.dumps(note))

    @property
    def _note_name(self) -> str:
        return f"{self.pipeline.data.layout.kind}/{self.version}"


class MarkedVersion(ListedVersion[Listing]):
    """Files of any names, whole when a marker says so.

    When a marker comes, it is noted with which counters the version is complete, so that a verdict after it only
    compares its own. The note is written before the counters are read, and a verdict before the note is read: one of
    the two handlers sees that the version is whole. A file without records counts until its verdict, which has
    everything noted again. Where no handler sees it, because files were deleted, the sweep does.
    The number of files is noted too. If it differs later under the same markers, files were deleted or came back, so
    the markers no longer say that all files are there.
    """

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. A file that is newer than all markers waits for another one."""
        note = self._noted()
        if note is None or written_at > datetime.fromisoformat(note["newest_marker"]):
            return False
        return self.is_full_with(shard, accepted, note["sizes"])

    def may_be_whole(self) -> bool:
        """See VersionLayout. Notes with which counters the version is whole."""
        return self._are_noted_counters_full(self._look)

    def _look(self) -> _Looked | None:
        rows = list(self.services.ledger.shards(self.version))
        listing = self._listing(rows)
        if not listing.markers or self._has_moved_on(listing):
            return None
        note = {
            "markers": digest_of(listing.markers.values()),
            "newest_marker": max(marker.last_modified for marker in listing.markers.values()).isoformat(),
            "num_files": len(listing.covered),
            "sizes": self._sizes(listing, rows),
        }
        return note, listing.is_settled

    def _listing(self, rows: Iterable[ShardRecord]) -> Listing:
        return self._in_storage(rows)

    def _is_final(self, listing: Listing) -> bool:
        return len(listing.covered) == len(listing.files) and not self._has_moved_on(listing)

    def _is_counted(self, listing: Listing) -> bool:
        return bool(listing.markers)

    def _missing_of_all(self, listing: Listing) -> Iterator[str]:
        if self._has_moved_on(listing) and len(listing.covered) == len(listing.files):
            marker = self.pipeline.data.layout.marker
            yield f"{marker}, written again: files have come or gone since it was first seen"

    def _missing_of_split(self, split: str, files: list[StoredFile], listing: Listing) -> Iterator[str]:
        del split
        marker, covered = self.pipeline.data.layout.marker, {file.name for file in listing.covered}
        newer = [file.name for file in files if file.name not in covered]
        if newer and listing.markers:
            more = f" and {len(newer) - 1:,} more" if len(newer) > 1 else ""
            yield f"{marker}, written again: it is older than {newer[0]}{more}"
        elif newer:
            yield f"{marker}, which says that all files have come"

    def _sizes(self, listing: Listing, rows: list[ShardRecord]) -> dict[str, list[int]]:
        """Return the counters of the whole version: its files, and those that were deleted after their verdicts."""
        listed = {(file.split, file.index) for file in listing.files if not file.is_left_out}
        accepted = {(row.split, row.index) for row in accepted_rows(rows, self.pipeline)}
        counts = Counter((split, index % NUM_BUCKETS) for split, index in listed | accepted)
        return {
            split: [counts[split, bucket] for bucket in range(NUM_BUCKETS)] for split in self.pipeline.data.splits
        }

    def _has_moved_on(self, listing: Listing) -> bool:
        """Whether the same markers counted for another number of files before."""
        note = self._noted()
        is_same = note is not None and note["markers"] == digest_of(listing.markers.values())
        return note is not None and is_same and note["num_files"] != len(listing.covered)


class QuietVersion(ListedVersion[Listing]):
    """Files of any names, taken for whole when none was written or deleted for a while.

    Only the sweep can see that, by two listings; it notes since when the listing is the same.
    """

    def _closing_of(self, shards: list[ShardRecord], listing: Listing) -> Whole:
        """See VersionLayout."""
        del listing
        return Whole(shards=shards, guess=f"no file had changed for {in_words(self.pipeline.data.layout.quiet_s)}")

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

    def _listing(self, rows: Iterable[ShardRecord]) -> Listing:
        return self._in_storage(rows)

    def _is_final(self, listing: Listing) -> bool:
        ends_at = self._quiet_until(listing)
        return ends_at is not None and self.services.clock() >= ends_at

    def _is_counted(self, listing: Listing) -> bool:
        return self._is_final(listing)

    def _missing_of_all(self, listing: Listing) -> Iterator[str]:
        if not self._is_final(listing):
            ends_at = self._quiet_until(listing)
            at = f", until {ends_at:%Y-%m-%d %H:%M:%S} UTC" if ends_at is not None else ""
            quiet = in_words(self.pipeline.data.layout.quiet_s)
            yield f"{quiet} without a change{at}, from which it is guessed that all files have come"

    def _quiet_until(self, listing: Listing) -> datetime | None:
        """Return when the files will not have changed for long enough; None if they have changed just now."""
        note = self._noted()
        if note is None or note["files"] != digest_of(file.facts for file in listing.files):
            return None
        return datetime.fromisoformat(note["since"]) + timedelta(seconds=self.pipeline.data.layout.quiet_s)


def digest_of(blobs: Iterable[BlobFacts]) -> str:
    """Return what tells these blobs, each with its content, from others."""
    lines = "\n".join(f"{blob.path} {blob.etag}" for blob in blobs)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
