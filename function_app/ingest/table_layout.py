"""Versions that are Delta tables: each commit of the table's log is a list of files, and closes once.

Commits close in the order of the log, whatever the order of events. A commit is skipped if it can never be complete
because of a file that a later commit removes: the file was rejected, or is not in storage (Delta writers write files
before the commit that names them). If several commits close at once, only the newest starts a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import BlobFacts, ShardRecord, ShardState
from function_app.domain.shard_paths import NotAShardError, shard_place
from function_app.ingest.layouts import Whole
from function_app.ingest.list_layout import Compared, ListVersion, as_stated
from function_app.ingest.listed_layouts import Listing, StoredFile, digest_of
from function_app.ingest.stored_shards import is_rejected_by_list
from shard_validation.delta_log import LOG_FOLDER, MAX_LOG_BYTES, TableLog, TableVersion, is_of_log, read_log
from shard_validation.file_lists import FileList, FileListError, StatedFile


@dataclass(frozen=True, kw_only=True)
class TableOfVersion(ListVersion):
    """The files of a Delta table, whole when all that the next commit names are there and as it states."""

    list_meaning = "the log of the Delta table"

    @property
    def list_name(self) -> str:
        """See ListVersion."""
        return LOG_FOLDER

    def _stated(self, found: Listing) -> TableVersion | None:
        log = self._log(found.markers)
        if log is None:
            return None
        latest = self.services.ledger.latest_generation(self.version)
        outlook = _Outlook(table=self, stored={file.name: file for file in found.files}, splits={})
        state = log.next_after(latest.table_version if latest else None, outlook.is_passed_over)
        return replace(state, problems=[*state.problems, log.problem]) if log.problem else state

    def problems_of(self, stated: FileList) -> list[str]:
        """See ListVersion."""
        return list(stated.problems) if isinstance(stated, TableVersion) else []

    def _closing_of(self, shards: list[ShardRecord], listing: Compared) -> Whole:
        stated = listing.stated
        if not isinstance(stated, TableVersion):
            raise TypeError(f"{self.version}: a closing without a version of the table")
        return Whole(
            shards=shards,
            table_version=stated.version,
            is_rearranged=not stated.changes_data,
            is_newest=stated.is_newest,
        )

    def split_of(self, name: str) -> str | None:
        """Return the split of a file that the pipeline asks for."""
        try:
            return shard_place(f"{self.version}/{name}", self.services.pipelines).shard.split
        except NotAShardError:
            return None

    def may_be_whole_without(self, shard: ShardRecord, replaced: ShardRecord | None) -> bool:
        """See VersionLayout. A commit with a rejected file is passed over where a later one removes it."""
        if super().may_be_whole_without(shard, replaced):
            return True
        note = self._noted()
        try:
            stated = None if note is None else self._noted_list(note)
        except (FileListError, ServiceUnavailableError):
            return False  # the event of the new commit, or the sweep, compares everything
        return stated is not None and self._may_pass_over(stated)

    def _may_pass_over(self, stated: FileList) -> bool:
        return isinstance(stated, TableVersion) and not stated.is_newest

    # -- the log, and what a verdict is compared with ----------------------------------------------------------
    def _note_of(self, listing: Compared) -> dict[str, Any]:
        version = listing.stated.version if isinstance(listing.stated, TableVersion) else None
        return {"log": digest_of(listing.markers.values()), "table_version": version}

    def _noted_list(self, note: Mapping[str, Any]) -> FileList | None:
        folder = f"{self.version}/{LOG_FOLDER}"
        files = {
            facts.path.removeprefix(f"{self.version}/"): facts for facts in self.services.shards.list(f"{folder}/")
        }
        facts = {name: one for name, one in files.items() if is_of_log(name)}
        log = self._log(facts) if digest_of(facts.values()) == note["log"] else None
        return None if log is None else log.at(note["table_version"])

    def _is_late(self, name: str, written_at: datetime, stated: FileList, note: Mapping[str, Any]) -> bool:
        # A commit states the size and the records of each file, so it does not matter when the file is copied.
        del name, written_at, stated, note
        return False

    def _log(self, files: Mapping[str, BlobFacts]) -> TableLog | None:
        """Return the log. Raises FileListError, ServiceUnavailableError."""
        sizes = {name: facts.size_bytes for name, facts in files.items()}
        key = (f"{self.version}/{LOG_FOLDER}", digest_of(files.values()))
        return self._kept(key, lambda: read_log(sizes, lambda name: self._content(files[name], MAX_LOG_BYTES)))


@dataclass(frozen=True, kw_only=True)
class _Outlook:
    """Whether commits can still become complete, by the blobs in storage and their verdicts."""

    table: TableOfVersion
    stored: Mapping[str, StoredFile]
    splits: dict[str, str | None]
    """Name of a file → its split, as far as it was looked up."""

    def is_passed_over(self, state: TableVersion, newest: Mapping[str, StatedFile]) -> bool:
        """Whether a commit can never be complete, although a later one may; or was looked at before."""
        if state.problems or (self.table.after is not None and state.version <= self.table.after):
            return True
        with_records = set[str | None]()
        for name, file in state.files.items():
            split, there = self._split_of(name), self.stored.get(name)
            if split is None:
                continue
            if not _is_same(file, newest.get(name)) and (there is None or _is_refused(there, state)):
                return True
            if there is None or not there.is_left_out:
                with_records.add(split)
        return not with_records.issuperset(self.table.pipeline.data.splits)

    def _split_of(self, name: str) -> str | None:
        if name not in self.splits:
            self.splits[name] = self.table.split_of(name)
        return self.splits[name]


def _is_same(file: StatedFile, other: StatedFile | None) -> bool:
    return other is not None and (file.size_bytes, file.num_records) == (other.size_bytes, other.num_records)


def _is_refused(file: StoredFile, state: FileList) -> bool:
    """Whether the verdict on a file is against it, and stays so as long as its content does."""
    judged = as_stated(file, state)
    row = judged.row
    if row is None or row.etag != file.facts.etag or judged.is_left_out:
        return False
    is_as_stated_now = judged is file and is_rejected_by_list(row)
    return row.state is ShardState.REJECTED and not is_as_stated_now
