"""The table of verdicts: a shard's row and its bucket's counter share a partition, and change in one transaction."""

from __future__ import annotations

from collections.abc import Iterator

from function_app.adapters.tables.bounds import bounded_shard
from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.rows import after, escaped, from_columns, joined, to_columns
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord, counter_change, same_verdict


class TableShards:
    """Verdicts and counters. Partition ``dataset|version|bNN``; rows ``shard|split|index`` and ``count|split``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def shard(self, version: DatasetVersion, split: str, index: int) -> ShardRecord | None:
        """See Ledger."""
        row = self._tables.get("shards", shard_partition(version, index % NUM_BUCKETS), shard_key(split, index))
        return _verdict(row) if row is not None else None

    def record_shard(self, shard: ShardRecord) -> ShardRecord | None:
        """See Ledger. At most three operations without concurrent writers, however many shards there are."""
        shard, writer = bounded_shard(shard), new_writer()
        partition = shard_partition(shard.dataset_version, shard.bucket)
        replaced: ShardRecord | None = None
        for _ in tries(f"{shard.dataset_version}/{shard.name}"):
            row = self._tables.get("shards", partition, shard_key(shard.split, shard.index))
            if row is not None and row.writer == writer:  # our own write, whose answer was lost
                break
            replaced = _verdict(row) if row is not None else None
            if same_verdict(replaced, shard) or self._replace(partition, row, replaced, shard, writer):
                break
        return replaced

    def accepted_in_bucket(self, version: DatasetVersion, split: str, bucket: int) -> int:
        """See Ledger."""
        row = self._tables.get("shards", shard_partition(version, bucket), counter_key(split))
        return 0 if row is None else _accepted(row)

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """See Ledger."""
        rows = self._tables.scan(
            "shards",
            "PartitionKey ge @first and PartitionKey le @last and RowKey ge @low and RowKey lt @high",
            first=shard_partition(version, 0),
            last=shard_partition(version, NUM_BUCKETS - 1),
            low="shard|",
            high=after("shard"),
        )
        return map(_verdict, rows)

    def _replace(
        self, partition: str, row: Row | None, replaced: ShardRecord | None, shard: ShardRecord, writer: str
    ) -> bool:
        """Try once; False where the shard's row or the counter was changed meanwhile."""
        columns = to_columns(shard) | {"writer": writer}
        key = shard_key(shard.split, shard.index)
        changes = [Change(key=key, columns=columns, etag=_etag(row))]
        change = counter_change(replaced, shard)
        if change:
            changes.append(self._counter_change(partition, shard.split, change))
        try:
            self._tables.commit("shards", partition, changes)
        except LedgerConflictError:
            return False
        return True

    def _counter_change(self, partition: str, split: str, change: int) -> Change:
        row = self._tables.get("shards", partition, counter_key(split))
        accepted = change + (0 if row is None else _accepted(row))
        columns = {"split": split, "accepted": (accepted, "Edm.Int64")}
        return Change(key=counter_key(split), columns=columns, etag=_etag(row))


def shard_partition(version: DatasetVersion, bucket: int) -> str:
    """Return the partition of a bucket."""
    return joined(escaped(version.dataset), escaped(version.version), f"b{bucket:02d}")


def shard_key(split: str, index: int) -> str:
    """Return the key of a verdict, within its bucket's partition."""
    return joined("shard", escaped(split), f"{index:06d}")


def counter_key(split: str) -> str:
    """Return the key of a split's counter, within a bucket's partition."""
    return joined("count", escaped(split))


def _verdict(row: Row) -> ShardRecord:
    return from_columns(ShardRecord, row.columns)


def _etag(row: Row | None) -> str | None:
    return None if row is None else row.etag


def _accepted(row: Row) -> int:
    return int(row.columns["accepted"].value)
