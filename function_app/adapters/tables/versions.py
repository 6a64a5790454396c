"""The tables of verdicts, and of dataset versions with the sizes of their splits and their closings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, groupby

from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.row_limits import bounded_generation, bounded_shard
from function_app.adapters.tables.rows import after, escaped, from_columns, joined, to_columns
from function_app.domain.errors import LedgerConflictError, NotFoundError
from function_app.domain.records import (
    NUM_BUCKETS,
    DatasetVersion,
    Generation,
    RecordedShard,
    ShardMark,
    ShardRecord,
    ShardState,
    counter_change,
    same_verdict,
)

MAX_TRANSACTION_CHARS = 1 << 20
"""Maximum characters of all columns: each has up to three bytes, and a transaction up to 4 MiB."""
_LAST_GENERATION = 10**9 - 1
_MARK_COLUMNS = ("RowKey", "split", "index", "num_shards", "name", "state")
_AT_A_TIME = 4
"""Buckets that are read at the same time; more would take connections from other calls of the process."""
_IN_RANGE = "PartitionKey eq @partition and RowKey ge @low and RowKey lt @high"


class TableShards:
    """Verdicts and counters, which change in one transaction.

    Partition ``dataset|version|bNN``; rows ``shard|split|index`` and ``count|split``.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def shard(self, version: DatasetVersion, split: str, index: int) -> ShardRecord | None:
        """See Ledger."""
        row = self._tables.get("shards", shard_partition(version, index % NUM_BUCKETS), shard_key(split, index))
        return _verdict(row) if row is not None else None

    def record_shard(self, shard: ShardRecord, *, is_first: bool = False) -> RecordedShard:
        """See Ledger. Three operations, or two for a first verdict, however many shards there are."""
        shard, writer = bounded_shard(shard), new_writer()
        partition = shard_partition(shard.dataset_version, shard.bucket)
        row, replaced = None, None
        for number in tries(f"{shard.dataset_version}/{shard.name}"):
            if number or not is_first:  # A first verdict is inserted, which fails if another one exists.
                row = self._tables.get("shards", partition, shard_key(shard.split, shard.index))
                if row is not None and row.writer == writer:  # our own write, whose response was lost
                    break
                replaced = _verdict(row) if row is not None else None
                if same_verdict(replaced, shard):
                    break
            try:
                return RecordedShard(replaced=replaced, accepted=self._replace(row, replaced, shard, writer))
            except LedgerConflictError:  # The shard's row or the counter was changed in the meantime.
                continue
        return RecordedShard(replaced=replaced)

    def record_first_verdicts(self, shards: Sequence[ShardRecord]) -> int | None:
        """See Ledger. Two operations without concurrent writers."""
        first, writer = shards[0], new_writer()
        partition = shard_partition(first.dataset_version, first.bucket)
        rows = [_new_row(bounded_shard(shard), writer) for shard in shards]
        if sum(len(str(row.columns)) for row in rows) > MAX_TRANSACTION_CHARS:
            return None
        counter = None
        for number in tries(f"{len(shards)} shards of {first.dataset_version}"):
            before, counter = counter, self._tables.get("shards", partition, counter_key(first.split))
            if number and _etag(before) == _etag(counter):
                return None  # Another writer changed a row other than the counter.
            accepted = len(shards) + (0 if counter is None else _accepted(counter))
            try:
                self._tables.commit("shards", partition, [*rows, _counter_row(first.split, accepted, counter)])
            except LedgerConflictError:
                row = self._tables.get("shards", partition, rows[0].key)
                if row is None or row.writer != writer:  # Otherwise it is our own write, whose response was lost.
                    continue
            return accepted
        return None

    def accepted_in_bucket(self, version: DatasetVersion, split: str, bucket: int) -> int:
        """See Ledger."""
        row = self._tables.get("shards", shard_partition(version, bucket), counter_key(split))
        return 0 if row is None else _accepted(row)

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """See Ledger."""
        return map(_verdict, self._verdicts(version, 0, NUM_BUCKETS - 1))

    def shard_marks(self, version: DatasetVersion) -> list[ShardMark]:
        """See Ledger. Buckets are read at the same time, with only the columns of a mark."""

        def in_bucket(number: int) -> list[ShardMark]:
            return [_mark(row) for row in self._verdicts(version, number, number, columns=_MARK_COLUMNS)]

        with ThreadPoolExecutor(_AT_A_TIME) as readers:
            return list(chain.from_iterable(readers.map(in_bucket, range(NUM_BUCKETS))))

    def _verdicts(
        self, version: DatasetVersion, first: int, last: int, columns: Sequence[str] | None = None
    ) -> Iterator[Row]:
        return self._tables.scan(
            "shards",
            "PartitionKey ge @first and PartitionKey le @last and RowKey ge @low and RowKey lt @high",
            columns=columns,
            first=shard_partition(version, first),
            last=shard_partition(version, last),
            low="shard|",
            high=after("shard"),
        )

    def _replace(self, row: Row | None, replaced: ShardRecord | None, shard: ShardRecord, writer: str) -> int | None:
        """Try once; return the counter if it changed. Raises LedgerConflictError."""
        partition = shard_partition(shard.dataset_version, shard.bucket)
        columns = to_columns(shard) | {"writer": writer}
        changes = [Change(key=shard_key(shard.split, shard.index), columns=columns, etag=_etag(row))]
        accepted, change = None, counter_change(replaced, shard)
        if change:
            counter = self._tables.get("shards", partition, counter_key(shard.split))
            accepted = change + (0 if counter is None else _accepted(counter))
            changes.append(_counter_row(shard.split, accepted, counter))
        self._tables.commit("shards", partition, changes)
        return accepted


def shard_partition(version: DatasetVersion, bucket: int) -> str:
    """Return the partition of a bucket."""
    return joined(escaped(version.dataset), escaped(version.version), f"b{bucket:02d}")


def shard_key(split: str, index: int) -> str:
    """Return the key of a verdict, within its bucket's partition."""
    return joined("shard", escaped(split), f"{index:06d}")


def counter_key(split: str) -> str:
    """Return the key of a split's counter, within a bucket's partition."""
    return joined("count", escaped(split))


def _new_row(shard: ShardRecord, writer: str) -> Change:
    return Change(key=shard_key(shard.split, shard.index), columns=to_columns(shard) | {"writer": writer})


def _counter_row(split: str, accepted: int, stored: Row | None) -> Change:
    columns = {"split": split, "accepted": (accepted, "Edm.Int64")}
    return Change(key=counter_key(split), columns=columns, etag=_etag(stored))


def _verdict(row: Row) -> ShardRecord:
    return from_columns(ShardRecord, row.columns)


def _mark(row: Row) -> ShardMark:
    columns = row.columns
    return ShardMark(
        split=columns["split"],
        index=columns["index"].value,
        num_shards=columns["num_shards"].value,
        name=columns["name"],
        state=ShardState(columns["state"]),
    )


def _etag(row: Row | None) -> str | None:
    return None if row is None else row.etag


def _accepted(row: Row) -> int:
    return int(row.columns["accepted"].value)


class TableVersions:
    """Partition ``dataset|version``; rows ``split|name`` and ``generation|number``, the last closing first."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def claim_split_size(self, version: DatasetVersion, split: str, num_shards: int) -> int:
        """See Ledger. One operation for every caller except the first."""
        partition, key = _partition(version), joined("split", escaped(split))
        columns = _size_columns(version, split, num_shards)
        for _ in tries(f"{version}, split {split}"):
            row = self._tables.get("versions", partition, key)
            if row is not None:
                return int(row.columns["num_shards"].value)
            if self._tables.create("versions", partition, [Change(key=key, columns=columns)], new_writer()):
                break
        return num_shards

    def move_split_size(self, version: DatasetVersion, split: str, *, held: int, num_shards: int) -> int:
        """See Ledger. Two operations without concurrent writers."""
        partition, key = _partition(version), joined("split", escaped(split))
        columns = _size_columns(version, split, num_shards)
        for _ in tries(f"{version}, split {split}"):
            row = self._tables.get("versions", partition, key)
            if row is None:
                return num_shards
            if (size := int(row.columns["num_shards"].value)) != held:
                return size
            if self._replaced(partition, Change(key=key, columns=columns, etag=row.etag)):
                break
        return num_shards

    def split_sizes(self, version: DatasetVersion) -> Mapping[str, int]:
        """See Ledger."""
        rows = self._scan(version, "split")
        return {row.columns["split"]: int(row.columns["num_shards"].value) for row in rows}

    def versions(self, dataset: str | None = None) -> Iterator[DatasetVersion]:
        """See Ledger. Scans the table, or the partitions of one dataset: a few rows for each version."""
        condition, names = "RowKey ge @low and RowKey lt @high", {"low": "split|", "high": after("split")}
        if dataset is not None:
            condition = f"PartitionKey ge @first and PartitionKey lt @last and {condition}"
            names |= {"first": joined(escaped(dataset), ""), "last": after(escaped(dataset))}
        last: DatasetVersion | None = None
        for row in self._tables.scan("versions", condition, None, **names):
            version = DatasetVersion(dataset=row.columns["dataset"], version=row.columns["version"])
            if version != last:  # The splits of a version are consecutive, because they share a partition.
                yield version
            last = version

    def add_generation(self, generation: Generation) -> bool:
        """See Ledger."""
        change = Change(key=_generation_key(generation), columns=to_columns(bounded_generation(generation)))
        return self._tables.create("versions", _partition(generation.dataset_version), [change], new_writer())

    def latest_generation(self, version: DatasetVersion) -> Generation | None:
        """See Ledger."""
        row = next(self._scan(version, "generation", limit=1), None)
        return None if row is None else from_columns(Generation, row.columns)

    def generations(self, version: DatasetVersion) -> list[Generation]:
        """See Ledger."""
        return [from_columns(Generation, row.columns) for row in self._scan(version, "generation")]

    def latest_generations(self, dataset: str) -> Iterator[Generation]:
        """See Ledger."""
        rows = self._tables.scan(
            "versions",
            "PartitionKey ge @first and PartitionKey lt @last and RowKey ge @low and RowKey lt @high",
            first=joined(escaped(dataset), ""),
            last=after(escaped(dataset)),
            low="generation|",
            high=after("generation"),
        )
        found = (from_columns(Generation, row.columns) for row in rows)
        for _, closings in groupby(found, key=lambda closing: closing.dataset_version):
            yield next(closings)  # The closings of a version share a partition, the last one first.

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """See Ledger."""
        partition, key = _partition(generation.dataset_version), _generation_key(generation)
        for _ in tries(f"closing {generation.number} of {generation.dataset_version}"):
            row = self._tables.get("versions", partition, key)
            if row is None:
                raise NotFoundError(
                    f"generation {generation.number} of {generation.dataset_version} is not on record"
                )
            stored = from_columns(Generation, row.columns)
            if stored.auto_run_id is not None:
                return stored.auto_run_id
            if self._name_auto_run(partition, row, replace(stored, auto_run_id=run_id)):
                break
        return run_id

    def _name_auto_run(self, partition: str, row: Row, generation: Generation) -> bool:
        return self._replaced(partition, Change(key=row.key, columns=to_columns(generation), etag=row.etag))

    def _replaced(self, partition: str, change: Change) -> bool:
        """Try once; return False if the row was changed in the meantime."""
        try:
            self._tables.replace("versions", partition, [change], new_writer())
        except LedgerConflictError:
            return False
        return True

    def _scan(self, version: DatasetVersion, kind: str, limit: int | None = None) -> Iterator[Row]:
        return self._tables.scan(
            "versions", _IN_RANGE, limit, partition=_partition(version), low=f"{kind}|", high=after(kind)
        )


def _size_columns(version: DatasetVersion, split: str, num_shards: int) -> dict[str, object]:
    size = (num_shards, "Edm.Int64")
    return {"dataset": version.dataset, "version": version.version, "split": split, "num_shards": size}


def _partition(version: DatasetVersion) -> str:
    return joined(escaped(version.dataset), escaped(version.version))


def _generation_key(generation: Generation) -> str:
    return joined("generation", f"{_LAST_GENERATION - generation.number:09d}")
