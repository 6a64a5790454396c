"""The benchmark `scale`: requests by partition, a day of uploads, and the line that they form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.benchmarks.scale import (
    SHARDS_A_DAY,
    CountedTables,
    Line,
    line_of,
    row_figure,
    run_figures,
    scale_world,
    shard_figures,
    uploads,
)
from function_app.adapters.tables.client import Change
from function_app.domain.errors import LedgerConflictError
from tests.support.processes import REPOSITORY


@pytest.fixture(scope="module")
def context() -> Any:
    """All that the simulation needs of a benchmark's context."""
    return SimpleNamespace(root=REPOSITORY)


def test_a_shard_costs_few_requests_and_spreads_them_over_partitions(context: Any) -> None:
    """About as many as `flood` measures on Azurite, and no partition gets much more than one row."""
    figures = {figure.name: figure for figure in shard_figures(scale_world(context, 0), 500)}
    assert [] == [figure for figure in figures.values() if not figure.holds]
    assert 4 < figures["requests to tables for a shard"].value < 6


def test_a_run_costs_the_one_partition_of_runs_little(context: Any) -> None:
    """Each of some runs that are active at the same time ends, and changes the run queue twice."""
    figures = {figure.name: figure for figure in run_figures(scale_world(context, 5))}
    assert [] == [figure for figure in figures.values() if not figure.holds]
    assert 2 == figures["writes of the run queue's row for a run"].value


def test_the_simulated_tables_refuse_what_azure_refuses() -> None:
    """A row that is there already, and one that was changed meanwhile; then nothing of a transaction is kept."""
    tables = CountedTables()
    tables.commit("notes", "p", [Change(key="a", columns={"number": (1, "Edm.Int64")})])
    for refused in (Change(key="a", columns={}), Change(key="a", columns={}, etag="old")):
        with pytest.raises(LedgerConflictError):
            tables.commit("notes", "p", [Change(key="b", columns={}), refused])
    assert (None, 1) == (tables.get("notes", "p", "b"), len(list(tables.scan("notes", "PartitionKey eq 'p'"))))
    assert ({("notes", "p"): 5}, {("notes", "p"): 7}) == (tables.requests, tables.rows)


@pytest.mark.parametrize(("bursts", "burst_s"), [(1, 86_400), (24, 600), (1, 600)])
def test_a_day_has_a_million_uploads(bursts: int, burst_s: int) -> None:
    """The distribution over the day does not matter."""
    assert SHARDS_A_DAY == pytest.approx(sum(uploads(bursts, burst_s)))


def test_shards_wait_where_they_come_faster_than_they_are_judged() -> None:
    """Thirty come, ten are judged in a second: the last waits for three."""
    assert Line(longest_wait_s=3, most_waiting=30, busiest_per_s=10) == line_of([30, 0, 0, 0, 1], 10)
    assert Line(longest_wait_s=0, most_waiting=2, busiest_per_s=2) == line_of([2, 2, 2], 10)


def test_the_row_of_a_full_run_queue_fits_into_a_row() -> None:
    """A thousand active runs, and as many that wait: beyond that Azure would refuse the row."""
    assert row_figure().holds, row_figure()
