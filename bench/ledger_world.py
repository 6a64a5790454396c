"""Services for the ledger and sweep benchmarks: a real ledger, everything else except storage in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from crc32c import crc32c

from bench.figures import Context
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.adapters.tables.client import Change, Tables
from function_app.adapters.tables.rows import to_columns
from function_app.adapters.tables.versions import counter_key, shard_key, shard_partition
from function_app.config.pipeline_files import load_pipelines
from function_app.domain.jobs import Workspace
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord, ShardState
from function_app.domain.shard_paths import shard_place
from function_app.ingest.uploads import judge_shard
from function_app.ports import Ledger, utcnow
from function_app.services import Services
from function_app.testing.azure_ml import MemoryJobs, MemoryModels
from function_app.testing.stores import (
    MemoryDocumentStore,
    MemoryRejectedCopies,
    MemoryRequestQueue,
    MemoryShardStore,
)
from local_azure.azurite import Azurite, running_azurite
from shard_validation import DataRequirements, FeatureStatistics, ShardSource, ShardStatistics, ShardVerdict

DATASET = "digits"
"""The dataset of the demo's pipeline, which requires the splits train and validation."""
THREADS = 4
"""Concurrent handlers: enough for occasional conflicts in a counter, and to keep two cores busy."""
ROWS_PER_TRANSACTION = 99
"""Verdicts per transaction: the service's limit of 100 rows includes the counter."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The ledger's cost of judging some shards."""

    operations: int
    duration_s: float


class LedgerWorld:
    """Services with the ledger in Azure tables on Azurite; every request to it is counted."""

    def __init__(self, context: Context, azurite: Azurite) -> None:
        self._answers: list[int] = []
        self.storage = counted_storage(azurite, self._answers)
        self.tables = Tables(self.storage, TABLE_PREFIX)
        self.shards = MemoryShardStore()
        self.services = services(context.root / "pipelines", TableLedger(self.storage), self.shards)

    def judge(self, paths: Sequence[str]) -> Cost:
        """Judge shards, several at a time, as the queue trigger does."""
        places = [shard_place(path, self.services.pipelines) for path in paths]
        before, begun = len(self._answers), time.perf_counter()
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            list(pool.map(lambda place: judge_shard(place, self.services), places))
        return Cost(operations=len(self._answers) - before, duration_s=time.perf_counter() - begun)

    def begin(self, version: DatasetVersion, num_shards: int, *, known: int = 0) -> list[str]:
        """Upload a version and write verdicts for its first ``known`` shards; return the paths of the others."""
        names = [f"train-{index:05}-of-{num_shards:05}.tfrecord" for index in range(num_shards)]
        etags = {
            name: self.shards.put(f"{version}/{name}", b"").etag
            for name in ("validation-00000-of-00001.tfrecord", *names)
        }
        self.judge([f"{version}/validation-00000-of-00001.tfrecord"])
        rows = [verdict(version, "train", index, names, etag=etags[names[index]]) for index in range(known)]
        write_verdicts(self.tables, rows)
        for bucket in range(NUM_BUCKETS):
            self._count(version, bucket, sum(row.bucket == bucket for row in rows))
        return [f"{version}/{name}" for name in names[known:]]

    def is_closed(self, version: DatasetVersion) -> bool:
        """Whether the version was closed."""
        return self.services.ledger.latest_generation(version) is not None

    def _count(self, version: DatasetVersion, bucket: int, accepted: int) -> None:
        if accepted:
            counter = {"split": "train", "accepted": (accepted, "Edm.Int64")}
            change = Change(key=counter_key("train"), columns=counter)
            self.tables.commit("shards", shard_partition(version, bucket), [change])


@contextlib.contextmanager
def ledger_world(context: Context) -> Iterator[LedgerWorld]:
    """Run a world on an Azurite of its own. Raises TwinError if Azurite is not installed."""
    with running_azurite(context.scratch / "ledger") as azurite:
        world = LedgerWorld(context, azurite)
        with contextlib.closing(world.storage):
            yield world


def counted_storage(azurite: Azurite, answers: list[int]) -> StorageConnection:
    """Connect to the host account; every response adds an item to ``answers``."""
    settings = ConnectionSettings(name="AzureWebJobsStorage", connection_string=azurite.connection_string())
    return StorageConnection(settings, raw_response_hook=lambda _: answers.append(1))


def services(pipelines: Path, ledger: Ledger, shards: MemoryShardStore) -> Services:
    """Return services in memory, except for the ledger. Validation is not measured, so it does nothing."""
    return Services(
        pipelines=load_pipelines(pipelines),
        workspace=Workspace(
            subscription_id="0", resource_group="r", name="w", environment_id="e", code_id="c",
            data_datastore="d", state_datastore="s", runs_datastore="r",
        ),
        data_container="datasets",
        ledger=ledger,
        shards=shards,
        rejected_copies=MemoryRejectedCopies(shards),
        documents=MemoryDocumentStore(),
        run_outputs=MemoryDocumentStore(),
        requests=MemoryRequestQueue(),
        jobs=MemoryJobs(),
        models=MemoryModels(),
        notifiers={},
        validate=accept,
        sweep_grace=timedelta(seconds=120),
    )  # fmt: skip


def accept(source: ShardSource, _: DataRequirements) -> ShardVerdict:
    """Accept a shard, with statistics like those of the digits."""
    return ShardVerdict(
        shard=source.name,
        accepted=True,
        num_records=100,
        size_bytes=source.size_bytes,
        crc32c=crc_of(source.name),
        data_format="tfrecord",
        statistics=STATISTICS,
    )


def crc_of(name: str) -> str:
    """Return a different CRC for each shard, because a version with two equal shards would not be closed."""
    return f"{crc32c(name.rpartition('/')[2].encode()):08x}"


def verdict(
    version: DatasetVersion,
    split: str,
    index: int,
    names: Sequence[str],
    *,
    etag: str = "0X1",
    validated_at: datetime | None = None,
) -> ShardRecord:
    """Return the row that is written when shard ``index`` of a split with these shard names is accepted."""
    return ShardRecord(
        dataset_version=version,
        split=split,
        index=index,
        num_shards=len(names),
        name=names[index],
        etag=etag,
        state=ShardState.ACCEPTED,
        size_bytes=0,
        crc32c=crc_of(names[index]),
        num_records=100,
        validated_at=validated_at or utcnow(),
        statistics=STATISTICS.to_json(),
    )


def write_verdicts(tables: Tables, rows: Sequence[ShardRecord]) -> None:
    """Write verdicts of one version, many in one transaction. This is not measured."""
    for bucket in range(NUM_BUCKETS):
        own = [row for row in rows if row.bucket == bucket]
        for start in range(0, len(own), ROWS_PER_TRANSACTION):
            part = own[start : start + ROWS_PER_TRANSACTION]
            changes = [Change(key=shard_key(row.split, row.index), columns=to_columns(row)) for row in part]
            tables.commit("shards", shard_partition(part[0].dataset_version, bucket), changes)


STATISTICS = ShardStatistics(
    num_records=100,
    num_bytes=20_000,
    features={
        "image": FeatureStatistics(num_present=100, histogram={"8x8x1": 100}, minimum=90, maximum=120),
        "label": FeatureStatistics(num_present=100, histogram={str(n): 10 for n in range(10)}, minimum=0, maximum=9),
    },
)
