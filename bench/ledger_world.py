"""A world in which only the ledger is real: what the ledger benchmark judges shards in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from crc32c import crc32c

from bench.figures import BenchmarkError, Context
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.adapters.tables.client import Change, Tables
from function_app.adapters.tables.rows import to_columns
from function_app.adapters.tables.shards import counter_key, shard_key, shard_partition
from function_app.config.pipeline_files import load_pipelines
from function_app.domain.clock import utcnow
from function_app.domain.jobs import Workspace
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord, ShardState
from function_app.domain.shard_paths import shard_place
from function_app.ingest.uploads import judge_shard
from function_app.ports import Ledger
from function_app.services import Services
from function_app.testing.memory_azure_ml import MemoryJobs, MemoryModels
from function_app.testing.memory_stores import (
    MemoryDocumentStore,
    MemoryQuarantine,
    MemoryRequestQueue,
    MemoryShardStore,
)
from local_azure.azurite import Azurite, start_azurite
from shard_validation import DataRequirements, FeatureStatistics, ShardSource, ShardStatistics, ShardVerdict

DATASET = "digits"
"""The pipeline of the demo, which asks for the splits train and validation."""
THREADS = 4
"""Handlers at once: enough to meet in a counter now and then, and to keep two cores busy."""
ROWS_OF_A_TRANSACTION = 99
"""A hundred is the service's limit; the counter is one of them."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What some shards cost the ledger."""

    operations: int
    duration_s: float


class LedgerWorld:
    """Services whose ledger is in Azure tables on Azurite, and whose every request to it is counted."""

    def __init__(self, context: Context, azurite: Azurite) -> None:
        connection = ConnectionSettings(name="AzureWebJobsStorage", connection_string=azurite.connection_string())
        self._answers: list[int] = []
        self.storage = StorageConnection(connection, raw_response_hook=lambda _: self._answers.append(1))
        self.tables = Tables(self.storage, TABLE_PREFIX)
        self.shards = MemoryShardStore()
        self.services = services(context.root / "pipelines", TableLedger(self.storage), self.shards)

    def judge(self, paths: Sequence[str]) -> Cost:
        """Let handlers judge shards, several at a time, as the queue's triggers do."""
        places = [shard_place(path, self.services.pipelines) for path in paths]
        before, begun = len(self._answers), time.perf_counter()
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            list(pool.map(lambda place: judge_shard(place, self.services), places))
        return Cost(operations=len(self._answers) - before, duration_s=time.perf_counter() - begun)

    def begin(self, version: DatasetVersion, num_shards: int, *, known: int = 0) -> list[str]:
        """Upload a version, of which ``known`` shards were judged before; return the paths of the others."""
        names = [f"train-{index:05}-of-{num_shards:05}.tfrecord" for index in range(num_shards)]
        for name in ("validation-00000-of-00001.tfrecord", *names):
            self.shards.put(f"{version}/{name}", b"")
        self.judge([f"{version}/validation-00000-of-00001.tfrecord"])
        for bucket in range(NUM_BUCKETS):
            self._know(version, names, range(bucket, known, NUM_BUCKETS), bucket)
        return [f"{version}/{name}" for name in names[known:]]

    def is_closed(self, version: DatasetVersion) -> bool:
        """Whether the version was found to be whole."""
        return self.services.ledger.latest_generation(version) is not None

    def _know(self, version: DatasetVersion, names: Sequence[str], indices: range, bucket: int) -> None:
        """Write verdicts as they stand after their judgement, many in a transaction: this is not measured."""
        partition = shard_partition(version, bucket)
        for start in range(0, len(indices), ROWS_OF_A_TRANSACTION):
            rows = [verdict_row(version, names, index) for index in indices[start : start + ROWS_OF_A_TRANSACTION]]
            self.tables.commit("shards", partition, rows)
        if indices:
            counter = {"split": "train", "accepted": (len(indices), "Edm.Int64")}
            self.tables.commit("shards", partition, [Change(key=counter_key("train"), columns=counter)])


@contextlib.contextmanager
def ledger_world(context: Context) -> Iterator[LedgerWorld]:
    """Start Azurite, and end it. Raises BenchmarkError where it is not installed."""
    try:
        azurite = start_azurite(context.scratch)
    except pytest.skip.Exception as error:
        raise BenchmarkError(str(error)) from None
    try:
        world = LedgerWorld(context, azurite)
        with contextlib.closing(world.storage):
            yield world
    finally:
        azurite.stop()


def services(pipelines: Path, ledger: Ledger, shards: MemoryShardStore) -> Services:
    """Services in memory, but for the ledger; validation takes no time, for it is not measured."""
    return Services(
        pipelines=load_pipelines(pipelines),
        workspace=Workspace(
            subscription_id="0", resource_group="r", name="w", environment_id="e", code_id="c",
            data_datastore="d", state_datastore="s", runs_datastore="r",
        ),
        data_container="datasets",
        ledger=ledger,
        shards=shards,
        quarantine=MemoryQuarantine(shards),
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
    """Accept a shard with statistics as the digits have them."""
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
    """Return a CRC that no other shard of the version has: equal contents would be refused as a set."""
    return f"{crc32c(name.rpartition('/')[2].encode()):08x}"


def verdict_row(version: DatasetVersion, names: Sequence[str], index: int) -> Change:
    """The row that judging the shard would have left."""
    record = ShardRecord(
        dataset_version=version,
        split="train",
        index=index,
        num_shards=len(names),
        name=names[index],
        etag="0X1",
        state=ShardState.ACCEPTED,
        size_bytes=0,
        crc32c=crc_of(names[index]),
        num_records=100,
        validated_at=utcnow(),
        statistics=STATISTICS.to_json(),
    )
    return Change(key=shard_key("train", index), columns=to_columns(record))


STATISTICS = ShardStatistics(
    num_records=100,
    num_bytes=20_000,
    features={
        "image": FeatureStatistics(num_present=100, histogram={"8x8x1": 100}, minimum=90, maximum=120),
        "label": FeatureStatistics(num_present=100, histogram={str(n): 10 for n in range(10)}, minimum=0, maximum=9),
    },
)
