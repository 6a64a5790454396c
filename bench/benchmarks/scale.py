"""Load of the ledger's partitions and the queues at a million shards a day and 1,000 pipelines (docs/scale.md).

The flows run on tables in memory that count requests and rows per partition, because Azure limits these. From the
counts, the benchmark computes the rates of a day, and the queue that forms while shards arrive faster than the
instances judge them.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from bench.figures import BenchmarkError, Context, Figure
from bench.ledger_world import DATASET, services
from function_app.adapters.tables import TableLedger
from function_app.adapters.tables.client import Change, Row, Table, Tables
from function_app.adapters.tables.runs import _queue_columns
from function_app.adapters.tables.versions import TableShards
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DatasetVersion
from function_app.domain.run_queue import MAX_QUEUED, QueueEntry, QueueRules, RunQueue, admit
from function_app.domain.run_states import RunState
from function_app.domain.shard_paths import shard_place
from function_app.ingest.uploads import judge_shard
from function_app.ports import utcnow
from function_app.runs.following import handle_run_event
from function_app.runs.submission import handle_request
from function_app.services import Services
from function_app.testing.azure_ml import MemoryJobs, MemoryNotifier
from function_app.testing.stores import MemoryShardStore

SHARDS_A_DAY = 1_000_000
DAY_S = 86_400
PIPELINES = 1_000
MEASURED_SHARDS, MEASURED_PIPELINES = 1_000, 200
PARTITION_PER_S, ACCOUNT_PER_S = 2_000, 20_000
"""Azure's targets per second: rows of a partition, and requests to tables, queues and blobs of a standard account."""
MAX_ROW_BYTES = 1 << 20
ALL_REQUESTS = 9.7
"""Requests of all components to the host account and the data account for one shard, measured by `flood`."""
JUDGED_PER_S = 10.0
"""Assumed: small shards that one instance judges in a second, with 0.1 s for the requests of each."""


class CountedTables(Tables):
    """Tables in memory, with transactions and ETags, that count requests and rows by partition, as Azure does."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """By table and partition; a query of several partitions counts for the first."""
        self.rows: Counter[tuple[str, str]] = Counter()
        self.written: Counter[str] = Counter()
        """Writes by key."""
        self._stored: defaultdict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        self._turn = threading.RLock()

    def clear(self) -> None:
        """Count from zero."""
        for counter in (self.requests, self.rows, self.written):
            counter.clear()

    def get(self, table: Table, partition: str, key: str) -> Row | None:
        """See Tables."""
        self._count(table, partition, 1)
        return self._stored[table, partition].get(key)

    def scan(
        self,
        table: Table,
        condition: str,
        /,
        limit: int | None = None,
        columns: Sequence[str] | None = None,  # noqa: ARG002 - requests and rows count alike, however wide they are
        **parameters: str,
    ) -> Iterator[Row]:
        """See Tables. Every condition of the ledger states bounds of both keys, and at most one column."""
        found = list(self._matching(table, condition, parameters))[:limit]
        first = parameters.get("partition") or parameters.get("first") or condition.split("'")[1]
        self._count(table, first, 0 if found else 1)
        for partition, row in found:
            self.rows[table, partition] += 1
            yield row

    def commit(self, table: Table, partition: str, changes: list[Change]) -> None:
        """See Tables."""
        self._count(table, partition, len(changes))
        with self._turn:
            stored = self._stored[table, partition]
            for change in changes:
                row = stored.get(change.key)
                # A deletion in the ledger states no ETag.
                if change.columns is not None and (row.etag if row else None) != change.etag:
                    raise LedgerConflictError(f"{change.key} was changed")
            for change in changes:
                self.written[change.key] += 1
                if change.columns is None:
                    stored.pop(change.key, None)
                else:
                    stored[change.key] = Row(key=change.key, columns=_typed(change.columns), etag=uuid.uuid4().hex)

    def _matching(self, table: Table, condition: str, parameters: dict[str, str]) -> Iterator[tuple[str, Row]]:
        for (name, partition), rows in sorted(self._stored.items()):
            for key, row in sorted(rows.items()) if name == table else ():
                values = {**row.columns, "PartitionKey": partition, "RowKey": key}
                if all(_holds(clause, values, parameters) for clause in condition.split(" and ")):
                    yield partition, row

    def _count(self, table: str, partition: str, rows: int) -> None:
        self.requests[table, partition] += 1
        self.rows[table, partition] += rows


def _typed(columns: Any) -> dict[str, Any]:
    return {name: SimpleNamespace(value=it[0]) if isinstance(it, tuple) else it for name, it in columns.items()}


def _holds(clause: str, values: dict[str, Any], parameters: dict[str, str]) -> bool:
    column, operator, operand = clause.split()
    wanted = parameters[operand[1:]] if operand.startswith("@") else operand.strip("'")
    value = values.get(column, "")
    return bool({"eq": value == wanted, "ge": value >= wanted, "le": value <= wanted, "lt": value < wanted}[operator])


class CountedLedger(TableLedger):
    """The ledger on counted tables."""

    def __init__(self, tables: CountedTables) -> None:
        TableShards.__init__(self, tables)


@dataclass(kw_only=True)
class ScaleWorld:
    """Services in memory with the ledger's real adapter."""

    services: Services
    tables: CountedTables
    shards: MemoryShardStore
    jobs: MemoryJobs

    def judge(self, version: DatasetVersion, names: Sequence[str]) -> None:
        """Upload shards and judge them one after the other."""
        for name in names:
            self.shards.put(f"{version}/{name}", name.encode())
            judge_shard(shard_place(f"{version}/{name}", self.services.pipelines), self.services)


def scale_world(context: Context, num_pipelines: int) -> ScaleWorld:
    """Return a world with this many pipelines, all like the demo's."""
    tables, shards, jobs = CountedTables(), MemoryShardStore(), MemoryJobs()
    own = services(context.root / "pipelines", CountedLedger(tables), shards)
    demo = own.pipelines[DATASET]
    names = [f"p{number:04}" for number in range(num_pipelines)]
    own = replace(
        own,
        pipelines={DATASET: demo, **{n: demo.model_copy(update={"dataset": n, "pipeline": n}) for n in names}},
        max_concurrent_runs=PIPELINES,
        jobs=jobs,
        start=handle_request,
        notifiers=dict.fromkeys(("topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"), MemoryNotifier()),
    )
    return ScaleWorld(services=own, tables=tables, shards=shards, jobs=jobs)


def run(context: Context) -> list[Figure]:
    """Judge a thousand shards, train two hundred pipelines, and compute the day's rates: half a minute."""
    context.say(f"a version of {MEASURED_SHARDS:,} shards")
    shards = shard_figures(scale_world(context, 0))
    context.say(f"{MEASURED_PIPELINES} pipelines, all active at once")
    runs = run_figures(scale_world(context, MEASURED_PIPELINES))
    return [*shards, *runs, row_figure(), *day_figures()]


def shard_figures(world: ScaleWorld, num_shards: int = MEASURED_SHARDS) -> list[Figure]:
    """Judge one version to its closing. Raises BenchmarkError if it stays open."""
    version, tables = DatasetVersion(dataset=DATASET, version="large"), world.tables
    names = [f"train-{index:05}-of-{num_shards:05}.tfrecord" for index in range(num_shards)]
    world.judge(version, ["validation-00000-of-00001.tfrecord"])
    tables.clear()
    world.judge(version, names)
    if world.services.ledger.latest_generation(version) is None:
        raise BenchmarkError(f"{version} is open after its last shard")
    total, hottest = tables.requests.total() / num_shards, max(tables.rows.values()) / num_shards
    bucket = max(count for (table, _), count in tables.rows.items() if table == "shards") / num_shards
    return [
        Figure(name="requests to tables for a shard", value=total, unit="requests", at_most=6.0),
        Figure(name="rows of the busiest bucket for a shard", value=bucket, unit="rows", at_most=0.5),
        Figure(name="rows of the busiest partition for a shard", value=hottest, unit="rows", at_most=1.5),
        Figure(name="shards of one version at a partition's target", value=PARTITION_PER_S / hottest, unit="per s"),
    ]


def run_figures(world: ScaleWorld) -> list[Figure]:
    """Train one version of each pipeline, all at the same time. Raises BenchmarkError if a run does not end."""
    datasets = [name for name in world.services.pipelines if name != DATASET]
    world.tables.clear()
    files = [f"{split}-00000-of-00001.tfrecord" for split in ("train", "validation")]
    for dataset in datasets:
        world.judge(DatasetVersion(dataset=dataset, version="v1"), files)
    for status in ("Running", "Completed"):
        for job in list(world.jobs.submitted):
            world.jobs.become(job, status)
            handle_run_event(job, world.services)
    states = Counter(run.state for run in world.services.ledger.runs(limit=len(datasets) + 1))
    if states != {RunState.NOT_REGISTERED: len(datasets)}:
        raise BenchmarkError(f"not every run has ended: {states}")
    number, place = len(datasets), ("runs", "runs")
    requests, rows = world.tables.requests[place] / number, world.tables.rows[place] / number
    return [
        Figure(name="requests to the partition of runs for a run", value=requests, unit="requests", at_most=40.0),
        Figure(name="rows of the partition of runs for a run", value=rows, unit="rows", at_most=60.0),
        Figure(
            name="writes of the run queue's row for a run",
            value=world.tables.written["board"] / number,
            unit="writes",
        ),
        Figure(name="runs at a partition's target", value=PARTITION_PER_S / rows, unit="per s"),
    ]


def row_figure() -> Figure:
    """Return the size of the run queue's row while each pipeline has an active run and the line is full."""
    entry = QueueEntry(
        logical_run="landfall-some-dataset-of-images-2026-11-20-0123456789abcdef",
        pipeline="some-pipeline-of-images",
        dataset="some-dataset-of-images",
        version="2026-11-20",
        generation=1,
        asked_at=utcnow(),
        waiting_since=utcnow(),
    )
    entries = [
        replace(entry, logical_run=f"{entry.logical_run}-{number}", pipeline=f"{entry.pipeline}-{number % PIPELINES}")
        for number in range(PIPELINES + MAX_QUEUED)
    ]
    full = RunQueue(running=tuple(entries[:PIPELINES]), queued=tuple(entries[PIPELINES:]))
    queue = admit(full, QueueRules(limit=PIPELINES))
    size = sum(2 * len(text) for text in _queue_columns(queue).values())  # The service stores text as UTF-16.
    return Figure(name="row of the run queue, full", value=size, unit="bytes", at_most=MAX_ROW_BYTES)


@dataclass(frozen=True, kw_only=True)
class Line:
    """The queue that a day's uploads formed."""

    longest_wait_s: int
    most_waiting: int
    busiest_per_s: float
    """Shards judged in the busiest second."""


def line_of(arrivals: Sequence[float], judged_per_s: float) -> Line:
    """Simulate the queue second by second; ``arrivals`` are the numbers of shards that arrive in each second."""
    waiting, most, busiest, longest = 0.0, 0.0, 0.0, 0.0
    for number in arrivals:
        waiting += number
        judged = min(waiting, judged_per_s)
        most, busiest, longest = max(most, waiting), max(busiest, judged), max(longest, waiting / judged_per_s)
        waiting -= judged
    return Line(longest_wait_s=round(longest), most_waiting=round(most), busiest_per_s=busiest)


def uploads(bursts: int, burst_s: int) -> list[float]:
    """Return a day of uploads in equal bursts of some seconds."""
    arrivals = [0.0] * DAY_S
    for burst in range(bursts):
        start = burst * DAY_S // bursts
        arrivals[start : start + burst_s] = [SHARDS_A_DAY / bursts / burst_s] * burst_s
    return arrivals


def day_figures() -> Iterator[Figure]:
    """Yield the rates of a day: with uploads spread evenly, with a burst every hour, and with all in ten minutes."""
    for name, bursts, burst_s in (("spread", 1, DAY_S), ("24 bursts of 10 min", 24, 600), ("one of 10 min", 1, 600)):
        for instances in (40, 250):
            line = line_of(uploads(bursts, burst_s), instances * JUDGED_PER_S)
            what = f"{name}, {instances} instances"
            yield Figure(name=f"{what}: longest wait", value=line.longest_wait_s, unit="s")
            yield Figure(name=f"{what}: most waiting", value=line.most_waiting, unit="messages")
            share = line.busiest_per_s * ALL_REQUESTS / ACCOUNT_PER_S
            yield Figure(name=f"{what}: requests of all parts", value=share, unit="of one account's target")
