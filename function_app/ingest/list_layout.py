"""Versions with a list of files: complete when every listed file is accepted and matches the list.

The list is compared with the verdicts whenever one of the two is new: at the verdict, at the list's event and in the
sweep. A file that differs is rejected; a list that agrees later reverts that rejection. The closing compares again,
so the order of events does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import NUM_BUCKETS, BlobFacts, ShardRecord, ShardState
from function_app.domain.shard_paths import shard_place
from function_app.ingest.listed_layouts import MAX_FILES, ListedVersion, Listing, StoredFile
from function_app.ingest.rejections import add_first_rejection
from function_app.ingest.stored_shards import accepted_rows, has_no_records, is_rejected_by_list, was_judged_for
from function_app.notify.outbox import deliver
from shard_validation import Reason, SourceError
from shard_validation.file_lists import (
    MAX_LIST_BYTES,
    FileList,
    FileListError,
    read_file_list,
    reason_against,
)
from shared.shard_names import ShardName

MAX_KEPT_LISTS = 2
"""Maximum lists in memory: every verdict is compared with one, and one may name 100,000 files."""
MAX_PROBLEMS = 5
"""Maximum problems of a list that are reported at once."""

_Read = TypeVar("_Read")


@dataclass(frozen=True, kw_only=True)
class Compared(Listing):
    """What storage lists, together with what the version's list states. ``files`` are those that the list names."""

    stated: FileList | None = None
    """None if there is no list or it cannot be read."""
    problems: Sequence[str] = ()
    """Problems of the list itself, in words."""
    absent: Sequence[ShardName] = ()
    """Listed files that are not in storage."""
    others: Sequence[StoredFile] = ()
    """Files in storage that the list does not name."""

    @property
    def newer(self) -> list[str]:
        """Files that were written after the list and have no checksum in it."""
        if self.stated is None or "" not in self.markers:
            return []
        written_at, stated = self.markers[""].last_modified, self.stated.files
        return [
            file.name
            for file in self.files
            if file.facts.last_modified > written_at and not (file.name in stated and stated[file.name].checksums)
        ]


class ListVersion(ListedVersion[Compared]):
    """Files with any names, complete when all files in a list are present and match it.

    When the list arrives, the counters of the complete version are noted, so a later verdict only compares its own;
    see MarkedVersion.
    """

    list_meaning = "the list of the version's files"

    @property
    def list_name(self) -> str:
        """Path of the list within the version."""
        return self.pipeline.data.layout.manifest

    def may_be_last(self, shard: ShardRecord, accepted: int | None, written_at: datetime) -> bool:
        """See VersionLayout. Rejects a shard that differs from the list."""
        note = self._noted()
        try:
            stated = None if note is None else self._noted_list(note)
        except (FileListError, ServiceUnavailableError):
            return False  # the list was replaced: its event, or the sweep, compares everything
        if note is None or stated is None:
            return False
        if self._settle(shard, stated):
            return self._may_pass_over(stated)
        return not self._is_late(shard.name, written_at, stated, note) and self.is_full_with(
            shard, accepted, note["sizes"]
        )

    def may_be_whole(self) -> bool:
        """See VersionLayout. Brings the verdicts in line with the list and notes with which counters it is whole."""
        return self._are_noted_counters_full(self._look)

    def may_be_whole_without(self, shard: ShardRecord, replaced: ShardRecord | None) -> bool:
        """See VersionLayout. What is noted counts the accepted files that the list does not name."""
        was_accepted = replaced is not None and replaced.state is ShardState.ACCEPTED
        return was_accepted or super().may_be_whole_without(shard, replaced)

    def _may_pass_over(self, stated: FileList) -> bool:
        """Whether a later list (a newer commit) may be closed instead if a file of this one is rejected."""
        del stated
        return False

    def _look(self) -> tuple[dict[str, Any], bool] | None:
        rows = list(self.services.ledger.shards(self.version))
        found = self._found(rows)
        listing = self._compared(found)
        if listing.stated is None:
            return None
        if self._settle_all(found, listing.stated):
            rows = list(self.services.ledger.shards(self.version))
            listing = self._listing(rows)
        note = {**self._note_of(listing), "sizes": self._sizes(listing, rows)}
        return note, listing.is_settled and not listing.absent

    def _note_of(self, listing: Compared) -> dict[str, Any]:
        """Return the note by which a later verdict finds the list."""
        facts = listing.markers[""]
        return {"list": facts.etag, "size_bytes": facts.size_bytes, "written_at": facts.last_modified.isoformat()}

    def _is_final(self, listing: Compared) -> bool:
        return listing.stated is not None and not (listing.problems or listing.absent or listing.newer)

    def _is_counted(self, listing: Compared) -> bool:
        return listing.stated is not None

    def _missing_of_all(self, listing: Compared) -> Iterator[str]:
        name = self.list_name
        if not listing.markers:
            yield f"{name}, {self.list_meaning}"
        yield from (f"{name}, corrected: {problem}" for problem in listing.problems[:MAX_PROBLEMS])
        if newer := listing.newer:
            more = f" and {len(newer) - 1:,} more" if len(newer) > 1 else ""
            yield f"{name}, written again: it is older than {newer[0]}{more} and states no checksum"

    def _missing_of_split(self, split: str, files: list[StoredFile], listing: Compared) -> Iterator[str]:
        del files
        yield from (shard.name for shard in listing.absent if shard.split == split)

    def _unlisted(self, split: str, listing: Compared) -> Iterator[str]:
        yield from (file.name for file in listing.others if file.split == split)

    def _listing(self, rows: Iterable[ShardRecord]) -> Compared:
        return self._compared(self._found(rows))

    def _found(self, rows: Iterable[ShardRecord]) -> Listing:
        """Return what storage lists; a verdict without the digests that a list may state is ignored."""
        return self._in_storage(row for row in rows if was_judged_for(row, self.pipeline.data.layout))

    def _stated(self, found: Listing) -> FileList | None:
        """Return the list; None if there is none. Raises FileListError."""
        return self._read(found.markers[""]) if "" in found.markers else None

    def _compared(self, found: Listing) -> Compared:
        listing = Compared(files=found.files, markers=found.markers)
        there = {file.name for file in found.files}
        try:
            stated = self._stated(found)
            members = {} if stated is None else stated.among(there)
        except FileListError as error:
            return replace(listing, problems=[str(error)])
        if stated is None:
            return listing
        data = self.pipeline.data
        asked, problems = data.layout.asked(members.values(), data.splits)
        problems += self.problems_of(stated)
        if len(found.files) > MAX_FILES:
            problems.append(f"the folder has more than {MAX_FILES:,} files; delete those that are not listed")
        files = [
            as_stated(replace(file, split=asked[file.name].split), stated)
            for file in found.files
            if file.name in asked
        ]
        return replace(
            listing,
            files=files,
            others=[file for file in found.files if file.name not in asked],
            absent=[shard for name, shard in asked.items() if name not in there],
            stated=stated,
            problems=[*problems, *self._wrong_totals(files, stated)],
        )

    def _wrong_totals(self, files: Sequence[StoredFile], stated: FileList) -> Iterator[str]:
        """Yield the splits whose files are all accepted but whose totals differ from the list."""
        for split in self.pipeline.data.splits:
            rows = [file.accepted for file in files if file.split == split and not file.is_left_out]
            accepted = [row for row in rows if row is not None]
            if accepted and len(accepted) == len(rows):
                problem = stated.wrong_total(split, sum(row.num_records for row in accepted), _sizes_of(accepted))
                yield from [problem] if problem else ()

    def _sizes(self, listing: Compared, rows: Sequence[ShardRecord]) -> dict[str, list[int]]:
        """Return the counters of the complete version: the listed files, and others that were accepted.

        Verdicts are counted in the split of their path, see Layout.shard.
        """
        layout, splits = self.pipeline.data.layout, self.pipeline.data.splits
        names = [file.name for file in listing.files if not file.is_left_out] + [file.name for file in listing.absent]
        kept = [layout.shard(name, splits) for name in names]
        listed = {(shard.split, shard.index) for shard in kept}
        accepted = {(row.split, row.index) for row in accepted_rows(rows, self.pipeline)}
        counts = Counter((split, index % NUM_BUCKETS) for split, index in listed | accepted)
        return {split: [counts[split, bucket] for bucket in range(NUM_BUCKETS)] for split in splits}

    # -- verdicts that the list changes ------------------------------------------------------------------------
    def _settle_all(self, found: Listing, stated: FileList) -> bool:
        settled = [
            self._settle(file.row, stated)
            for file in found.files
            if file.row is not None and file.row.etag == file.facts.etag
        ]
        return any(settled)

    def _settle(self, row: ShardRecord, stated: FileList) -> bool:
        """Reject an accepted shard that differs from the list, or accept one that no longer does; True if either."""
        is_by_list = is_rejected_by_list(row)
        if row.state is not ShardState.ACCEPTED and not is_by_list:
            return False
        reason = _difference(row, stated)
        if (reason is not None) == is_by_list:
            return False
        place = shard_place(f"{self.version}/{row.name}", self.services.pipelines)
        state = ShardState.ACCEPTED if reason is None else ShardState.REJECTED
        # The notification is written first, as for other rejections, because a recorded verdict is not repeated.
        is_first = reason is not None and add_first_rejection(place, [reason], self.services, etag=row.etag)
        reasons = () if reason is None else (reason,)
        self.services.ledger.record_shard(
            replace(row, state=state, reasons=reasons, validated_at=self.services.clock())
        )
        text = f"it is as {stated.source} states now" if reason is None else reason.message
        self.services.history.record(place.path, f"shard_{state}", text, etag=row.etag)
        if is_first:
            deliver(str(self.version), self.services)
        return True

    # -- reading the list --------------------------------------------------------------------------------------
    def _kept(self, key: tuple[str, str], read: Callable[[], _Read]) -> _Read:
        """Return a list with this path and content, from memory if possible."""
        kept: dict[tuple[str, str], Any] = self.services.kept_lists
        found: _Read | None = kept.get(key)
        if found is None:
            found = read()
            for old in list(kept)[: len(kept) + 1 - MAX_KEPT_LISTS]:
                kept.pop(old, None)  # another thread may have read it
            kept[key] = found
        return found

    def _noted_list(self, note: Mapping[str, Any]) -> FileList | None:
        """Return the list of a note, None if it was replaced. Raises FileListError, ServiceUnavailableError."""
        return self._read(
            BlobFacts(
                path=f"{self.version}/{self.pipeline.data.layout.manifest}",
                etag=note["list"],
                size_bytes=note["size_bytes"],
                last_modified=datetime.fromisoformat(note["written_at"]),
            )
        )

    def _is_late(self, name: str, written_at: datetime, stated: FileList, note: Mapping[str, Any]) -> bool:
        """Whether a file was written after the list and has no checksum in it."""
        file = stated.files.get(name)
        is_found = file is None and stated.find is not None
        is_unsure = is_found or (file is not None and not file.checksums)
        return is_unsure and written_at > datetime.fromisoformat(note["written_at"])

    def problems_of(self, stated: FileList) -> list[str]:
        """Return why the files cannot be read although they match the list."""
        del stated
        return []

    def _read(self, facts: BlobFacts) -> FileList:
        """Return the list with this content. Raises FileListError, ServiceUnavailableError."""
        name = self.pipeline.data.layout.manifest
        key = (facts.path, facts.etag)
        return self._kept(key, lambda: read_file_list(name, self._content(facts, MAX_LIST_BYTES)))

    def _content(self, facts: BlobFacts, max_bytes: int) -> bytes:
        """Return a blob's content; a larger blob is cut just above the limit. Raises ServiceUnavailableError."""
        try:
            source = self.services.shards.open(facts)
            return source.read(0, min(facts.size_bytes, max_bytes + 1)) if facts.size_bytes else b""
        except SourceError as error:
            raise ServiceUnavailableError(f"{facts.path} could not be read: {error}") from error


def as_stated(file: StoredFile, stated: FileList) -> StoredFile:
    """Return a file with its verdict after comparison with the list."""
    row = file.row
    if row is None or row.etag != file.facts.etag:
        return file
    reason = _difference(row, stated)
    if reason is None or not (file.accepted or is_rejected_by_list(row) or has_no_records(row, file.facts)):
        return file
    others = row.reasons if has_no_records(row, file.facts) else ()
    return replace(file, row=replace(row, state=ShardState.REJECTED, reasons=(*others, reason)))


def _difference(row: ShardRecord, stated: FileList) -> Reason | None:
    checksums = {"crc32c": row.crc32c, **(row.digests or {})}
    return reason_against(
        stated, row.name, size_bytes=row.size_bytes, num_records=row.num_records, checksums=checksums
    )


def _sizes_of(accepted: Sequence[ShardRecord]) -> tuple[int, ...]:
    """Return the bytes of all records and of all files; nothing if the ledger lacks the former."""
    sizes = [row.statistics.get("num_bytes") for row in accepted]
    known = [size for size in sizes if isinstance(size, int)]
    return (sum(known), sum(row.size_bytes for row in accepted)) if len(known) == len(sizes) else ()
