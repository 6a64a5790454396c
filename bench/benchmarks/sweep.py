"""Cost of a sweep that lists all of storage, compares it with the ledger and finds nothing to do.

100,000 blobs are listed from memory, which measures the computation of the sweep alone. 4,000 blobs are listed from
Azurite, with real tables, and every request is counted; to fill Azurite with more would take minutes. Versions have
1,000 shards each and are closed; one open version is measured in addition.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta

from bench.figures import BenchmarkError, Context, Figure, median
from bench.ledger_world import DATASET, counted_storage, services, verdict, write_verdicts
from function_app.adapters.blobs import BlobShardStore
from function_app.adapters.connections import StorageConnection
from function_app.adapters.queues import StorageRequestQueue
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.adapters.tables.client import Tables
from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import DatasetVersion, Generation, RunRecord, ShardRecord
from function_app.domain.run_states import RunState
from function_app.ports import Ledger, ShardStore, utcnow
from function_app.services import Services
from function_app.sweep.sweep import SweepReport, run_sweep
from function_app.testing.ledger import MemoryLedger
from function_app.testing.stores import MemoryShardStore
from local_azure.azurite import running_azurite

IN_MEMORY, ON_AZURITE = 100_000, 4_000
SAMPLES = 5
MAX_S = 30.0
"""Seconds of computation for 100,000 blobs: a tenth of the timer's five minutes."""
MAX_OPERATIONS = 10.0
"""Requests for 1,000 unchanged blobs: a hundredth of one request per blob."""
MISSED = 2000
MAX_MISSED_S = 45.0
"""Seconds to send all missed uploads: the request for a sweep gives up after 60 s."""
SHARDS_PER_VERSION = 1000
CONTAINER = "datasets"
UPLOAD_THREADS = 8
FINGERPRINT = "f" * 64


def run(context: Context) -> list[Figure]:
    """Sweep some twenty times: about four minutes on two cores, most of it for filling Azurite."""
    context.say(f"{IN_MEMORY:,} blobs in memory")
    in_memory = memory_world(context, IN_MEMORY)
    first_s = timed(in_memory)
    unchanged_s = median(timed(in_memory) for _ in range(SAMPLES))
    context.say(f"filling Azurite with {ON_AZURITE:,} blobs")
    with azurite_world(context, ON_AZURITE) as world:
        first = measured(world)
        context.say(f"the first sweep took {first[0]:.1f} s")
        unchanged = [measured(world) for _ in range(SAMPLES)]
        world.open_version(SHARDS_PER_VERSION)
        opened = [measured(world) for _ in range(SAMPLES)]
        context.say(f"uploading {MISSED:,} shards without events")
        missed_s = world.missed_s(MISSED)
    return [
        *memory_figures(first_s, unchanged_s),
        *azurite_figures(first, unchanged, opened),
        Figure(
            name=f"sweep that sends {MISSED:,} missed shards",
            value=missed_s,
            unit="s on Azurite",
            at_most=MAX_MISSED_S,
        ),
    ]


def timed(world: SweepWorld) -> float:
    """Sweep once; return the seconds. Raises BenchmarkError if the sweep found something to do."""
    begun = time.perf_counter()
    world.check(run_sweep(world.services))
    return time.perf_counter() - begun


def measured(world: SweepWorld) -> tuple[float, int]:
    """Sweep once; return the seconds and the number of requests to tables and blobs."""
    before = world.operations
    return timed(world), world.operations - before


def memory_figures(first_s: float, unchanged_s: float) -> Iterator[Figure]:
    """Yield the computing times for 100,000 blobs."""
    name = f"sweep of {IN_MEMORY:,} blobs in memory"
    yield Figure(name=f"{name}, nothing changed", value=unchanged_s, unit="s", at_most=MAX_S)
    yield Figure(name=f"{name}, the first look", value=first_s, unit="s")


def azurite_figures(
    first: tuple[float, int], unchanged: list[tuple[float, int]], opened: list[tuple[float, int]]
) -> Iterator[Figure]:
    """Yield requests and times of the real listing, and the increase for one open version."""
    name, thousands = f"sweep of {ON_AZURITE:,} blobs", ON_AZURITE / 1000
    operations = median(float(count) for _, count in unchanged)
    yield Figure(
        name="operations for 1,000 blobs that have not changed",
        value=operations / thousands,
        unit="operations",
        at_most=MAX_OPERATIONS,
    )
    yield Figure(name=f"{name}, nothing changed", value=median(s for s, _ in unchanged), unit="s on Azurite")
    yield Figure(name=f"{name}, the first look", value=first[0], unit="s on Azurite")
    yield Figure(name="operations for 1,000 blobs, the first look", value=first[1] / thousands, unit="operations")
    more = median(float(count) for _, count in opened) - operations
    yield Figure(
        name=f"operations that an open version of {SHARDS_PER_VERSION:,} adds", value=more, unit="operations"
    )
    yield Figure(name=f"{name} and an open version", value=median(s for s, _ in opened), unit="s on Azurite")


@dataclass(kw_only=True)
class SweepWorld:
    """Services whose sweep finds nothing to do, and a counter of its requests."""

    services: Services
    answers: list[int] = field(default_factory=list)
    """One item per response from storage."""
    put: Callable[[Sequence[str]], object]
    """Uploads blobs."""
    record: Callable[[Sequence[ShardRecord]], object]
    """Writes verdicts of one version."""

    @property
    def operations(self) -> int:
        """Number of requests to blobs and tables so far."""
        return len(self.answers)

    def fill(self, num_blobs: int) -> None:
        """Upload and close versions whose runs have ended."""
        for number in range(num_blobs // SHARDS_PER_VERSION):
            version = DatasetVersion(dataset=DATASET, version=f"v{number}")
            self._upload(version, SHARDS_PER_VERSION)
            self._close(version)

    def open_version(self, num_shards: int) -> None:
        """Upload a version with one shard missing."""
        self._upload(DatasetVersion(dataset=DATASET, version="open"), num_shards, missing=1)

    def missed_s(self, num_shards: int) -> float:
        """Upload shards whose events are lost, and sweep; return the sweep's seconds."""
        names = [f"train-{index:05}-of-{num_shards:05}.tfrecord" for index in range(num_shards)]
        self.put([f"{DATASET}/missed/{name}" for name in names])
        begun = time.perf_counter()
        report = run_sweep(self.services)
        duration_s = time.perf_counter() - begun
        if report.shards_missed != num_shards or report.problems:
            raise BenchmarkError(f"the sweep should have sent {num_shards:,} shards: {report}")
        return duration_s

    def check(self, report: SweepReport) -> None:
        """Raise BenchmarkError if a sweep had something to do, or could not do it."""
        if report.shards_missed or report.problems:
            raise BenchmarkError(f"the sweep found work where nothing was missed: {report}")

    def _upload(self, version: DatasetVersion, num_shards: int, *, missing: int = 0) -> None:
        """Upload train shards and the one validation shard that the demo's pipeline requires."""
        train = [f"train-{index:05}-of-{num_shards - 1:05}.tfrecord" for index in range(num_shards - 1)]
        validation = ["validation-00000-of-00001.tfrecord"]
        present = [*train[: len(train) - missing], *validation]
        self.put([f"{version}/{name}" for name in present])
        etags = {fact.path.rpartition("/")[2]: fact.etag for fact in self.services.shards.list(f"{version}/")}
        judged = utcnow() - timedelta(hours=1)
        self.record(
            [
                verdict(version, split, index, names, etag=etags[name], validated_at=judged)
                for split, names in (("train", train), ("validation", validation))
                for index, name in enumerate(names)
                if name in etags
            ]
        )
        for split, names in (("train", train), ("validation", validation)):
            self.services.ledger.claim_split_size(version, split, len(names))

    def _close(self, version: DatasetVersion) -> None:
        ledger, closed_at = self.services.ledger, utcnow() - timedelta(minutes=30)
        generation = Generation(
            dataset_version=version,
            number=1,
            fingerprint=FINGERPRINT,
            manifest_path=f"manifests/{version}/g1-{FINGERPRINT[:12]}.json",
            num_shards=SHARDS_PER_VERSION,
            num_records=100 * SHARDS_PER_VERSION,
            closed_at=closed_at,
        )
        ledger.add_generation(generation)
        run = ended_run(generation)
        ledger.add_run(run)
        ledger.claim_auto_run(generation, run.run_id)


def ended_run(generation: Generation) -> RunRecord:
    """Return a run of a generation that registered its model and notified its recipients."""
    logical_run = f"landfall-{generation.dataset_version.dataset}-{generation.dataset_version.version}"
    return RunRecord(
        run_id=f"{logical_run}-a1",
        logical_run=logical_run,
        attempt=1,
        dataset_version=generation.dataset_version,
        generation=generation.number,
        fingerprint=generation.fingerprint,
        pipeline=DATASET,
        trigger="closed",
        spec={"name": f"{logical_run}-a1", "num_nodes": 2, "tags": {"landfall.pipeline": DATASET}},
        spec_hash="5" * 64,
        created_at=generation.closed_at,
        state=RunState.REGISTERED,
        state_since=generation.closed_at,
        ended_at=generation.closed_at,
        notified_at=generation.closed_at,
    )


def memory_world(context: Context, num_blobs: int) -> SweepWorld:
    """Return a world in memory with closed versions."""
    ledger, shards = MemoryLedger(), MemoryShardStore()
    world = SweepWorld(
        services=sweep_services(context, ledger, shards),
        put=lambda paths: [shards.put(path, b"") for path in paths],
        record=lambda rows: [ledger.record_shard(row) for row in rows],
    )
    world.fill(num_blobs)
    return world


@contextlib.contextmanager
def azurite_world(context: Context, num_blobs: int) -> Iterator[SweepWorld]:
    """Run a world with closed versions on its own Azurite. Raises BenchmarkError if Azurite is not installed."""
    answers: list[int] = []
    with (
        running_azurite(context.scratch / "sweep") as azurite,
        contextlib.closing(counted_storage(azurite, answers)) as storage,
    ):
        world = world_on(storage, context, answers)
        world.fill(num_blobs)
        yield world


def world_on(storage: StorageConnection, context: Context, answers: list[int]) -> SweepWorld:
    """Return an empty world in a storage account."""
    container = storage.blob_service.create_container(CONTAINER)
    tables = Tables(storage, TABLE_PREFIX)

    def put(paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(max_workers=UPLOAD_THREADS) as pool:
            list(pool.map(lambda path: container.upload_blob(path, b""), paths))

    in_tables = sweep_services(context, TableLedger(storage), BlobShardStore(storage, CONTAINER))
    return SweepWorld(
        services=replace(in_tables, queues={SHARD_UPLOADED: StorageRequestQueue(storage, SHARD_UPLOADED)}),
        answers=answers,
        put=put,
        record=lambda rows: write_verdicts(tables, rows),
    )


def sweep_services(context: Context, ledger: Ledger, shards: ShardStore) -> Services:
    """Return services without a grace period, because the blobs have just been uploaded."""
    in_memory = services(context.root / "pipelines", ledger, MemoryShardStore())
    return replace(in_memory, shards=shards, sweep_grace=timedelta(0))
