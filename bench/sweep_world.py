"""Worlds for the sweep's benchmark: many closed versions, in memory or on Azurite, of which nothing was missed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from bench.figures import BenchmarkError, Context
from bench.ledger_world import DATASET, ROWS_OF_A_TRANSACTION, services
from function_app.adapters.blobs import BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.adapters.tables.client import Change, Tables
from function_app.adapters.tables.rows import to_columns
from function_app.adapters.tables.shards import shard_key, shard_partition
from function_app.domain.clock import utcnow
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord
from function_app.domain.run_states import RunState
from function_app.domain.shard_paths import shard_place
from function_app.ports import Ledger, ShardStore
from function_app.services import Services
from function_app.sweep.sweep import SweepReport
from function_app.testing.memory_ledger import MemoryLedger
from function_app.testing.memory_stores import MemoryShardStore
from local_azure.azurite import Azurite, start_azurite
from tests.support.ledger_records import generation_record, run_record, shard_record

SHARDS_PER_VERSION = 1000
CONTAINER = "datasets"
UPLOAD_THREADS = 8


@dataclass(kw_only=True)
class SweepWorld:
    """Services whose sweep finds nothing to do, and the requests that it makes."""

    services: Services
    answers: list[int] = field(default_factory=list)
    put: Callable[[Sequence[str]], object]
    """Upload blobs."""
    know: Callable[[Sequence[ShardRecord]], object]
    """Write verdicts in bulk."""

    @property
    def operations(self) -> int:
        """Requests to blobs and tables so far."""
        return len(self.answers)

    def fill(self, num_blobs: int) -> None:
        """Upload and close versions, and let their runs have ended."""
        for number in range(num_blobs // SHARDS_PER_VERSION):
            version = DatasetVersion(dataset=DATASET, version=f"v{number}")
            self._upload(version, SHARDS_PER_VERSION)
            self._close(version, number)

    def open_version(self, num_shards: int) -> None:
        """Upload a version of which one shard is missing."""
        self._upload(DatasetVersion(dataset=DATASET, version="open"), num_shards, missing=1)

    def check(self, report: SweepReport) -> None:
        """Raise BenchmarkError where a sweep had something to do, or could not do it."""
        if report.shards_judged or report.problems:
            raise BenchmarkError(f"the sweep should find nothing to do, was {report}")

    def _upload(self, version: DatasetVersion, num_shards: int, *, missing: int = 0) -> None:
        """All shards are of the split train, but for one: the demo's pipeline asks for both."""
        names = [f"train-{index:05}-of-{num_shards - 1:05}.tfrecord" for index in range(num_shards - 1 - missing)]
        names.append("validation-00000-of-00001.tfrecord")
        self.put([f"{version}/{name}" for name in names])
        facts = {one.path: one for one in self.services.shards.list(f"{version}/")}
        self.know([self._verdict(facts[f"{version}/{name}"].path, facts[f"{version}/{name}"].etag) for name in names])
        for split, size in (("train", num_shards - 1), ("validation", 1)):
            self.services.ledger.claim_split_size(version, split, size)

    def _verdict(self, path: str, etag: str) -> ShardRecord:
        place = shard_place(path, self.services.pipelines)
        shard = place.shard
        return shard_record(
            shard.index,
            dataset_version=place.dataset_version,
            split=shard.split,
            num_shards=shard.num_shards,
            name=shard.name,
            etag=etag,
            validated_at=utcnow() - timedelta(hours=1),
        )

    def _close(self, version: DatasetVersion, number: int) -> None:
        ledger, closed_at = self.services.ledger, utcnow() - timedelta(minutes=30)
        generation = generation_record(dataset_version=version, closed_at=closed_at)
        ledger.add_generation(generation)
        run = run_record(
            number, dataset_version=version, state=RunState.REGISTERED, notified_at=closed_at, ended_at=closed_at
        )
        ledger.add_run(run)
        ledger.claim_auto_run(generation, run.run_id)


def memory_world(context: Context, num_blobs: int) -> SweepWorld:
    """Return a world in memory."""
    ledger, shards = MemoryLedger(), MemoryShardStore()
    world = SweepWorld(
        services=_services(context, ledger, shards),
        put=lambda paths: [shards.put(path, b"") for path in paths],
        know=lambda rows: [ledger.record_shard(row) for row in rows],
    )
    world.fill(num_blobs)
    return world


@contextlib.contextmanager
def azurite_world(context: Context, num_blobs: int) -> Iterator[SweepWorld]:
    """Start Azurite, fill it, and end it. Raises BenchmarkError where it is not installed."""
    try:
        azurite = start_azurite(context.scratch)
    except pytest.skip.Exception as error:
        raise BenchmarkError(str(error)) from None
    try:
        answers: list[int] = []
        with contextlib.closing(_counting(azurite, answers)) as storage:
            world = _on_azurite(context, storage, answers)
            world.fill(num_blobs)
            yield world
    finally:
        azurite.stop()


def _counting(azurite: Azurite, answers: list[int]) -> StorageConnection:
    settings = ConnectionSettings(name="AzureWebJobsStorage", connection_string=azurite.connection_string())
    return StorageConnection(settings, raw_response_hook=lambda _: answers.append(1))


def _on_azurite(context: Context, storage: StorageConnection, answers: list[int]) -> SweepWorld:
    container = storage.blob_service.create_container(CONTAINER)
    tables = Tables(storage, TABLE_PREFIX)

    def put(paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(max_workers=UPLOAD_THREADS) as pool:
            list(pool.map(lambda path: container.upload_blob(path, b""), paths))

    def know(rows: Sequence[ShardRecord]) -> None:
        for bucket in range(NUM_BUCKETS):
            own = [row for row in rows if row.bucket == bucket]
            for start in range(0, len(own), ROWS_OF_A_TRANSACTION):
                changes = [_change(row) for row in own[start : start + ROWS_OF_A_TRANSACTION]]
                tables.commit("shards", shard_partition(rows[0].dataset_version, bucket), changes)

    shards = BlobShardStore(storage, CONTAINER)
    return SweepWorld(services=_services(context, TableLedger(storage), shards), answers=answers, put=put, know=know)


def _change(row: ShardRecord) -> Change:
    return Change(key=shard_key(row.split, row.index), columns=to_columns(row))


def _services(context: Context, ledger: Ledger, shards: ShardStore) -> Services:
    """Nothing is too young to be looked at: the blobs were uploaded a moment ago."""
    in_memory = services(context.root / "pipelines", ledger, MemoryShardStore())
    return replace(in_memory, shards=shards, sweep_grace=timedelta(0))
