"""What trainings took in a span of time: node-hours and cost, of each pipeline and of each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from function_app.domain.records import RunRecord
from function_app.runs.attempts import known_cost, spent_node_hours
from function_app.runs.comparison import as_if_ended
from function_app.services import Services

LONGEST_RUN = timedelta(days=30)
"""A run that was requested longer before the span is not looked for: jobs end much earlier."""
MAX_READ = 10_000
"""Runs that are read; the ledger returns 1,000 with one request."""
PER_REQUEST = 1000


@dataclass(frozen=True, kw_only=True)
class SpentByRun:
    """What one run, one attempt, took within the span."""

    run: RunRecord
    node_hours: float
    cost: float | None
    """In the currency of prices.yaml; None where no file has a price for the cluster."""


@dataclass(frozen=True, kw_only=True)
class SpentByDataset:
    """What the runs of one dataset took within the span."""

    dataset: str
    num_runs: int
    node_hours: float
    cost: float | None
    """Sum over the runs whose clusters have a price; None without any."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What all runs took from ``since`` to ``until``."""

    since: datetime
    until: datetime
    datasets: tuple[SpentByDataset, ...]
    """The one with most node-hours first."""
    runs: tuple[SpentByRun, ...]
    """Those that had nodes within the span, the newest first."""
    unpriced_node_hours: float
    """Node-hours of clusters without a price, which ``cost`` leaves out."""
    is_whole: bool
    """False where there were more than `MAX_READ` runs to look at, so that older ones are left out."""

    @property
    def node_hours(self) -> float:
        """Node-hours of all runs."""
        return sum(each.node_hours for each in self.runs)

    @property
    def cost(self) -> float | None:
        """In the currency of prices.yaml; None where no run has a price."""
        return _sum_of_known(self.runs)


def spending(span: timedelta, services: Services, *, dataset: str | None = None) -> Spending:
    """Return what all runs, or those of one dataset, took in the last ``span``, also those that still train."""
    until = services.clock()
    since = until - span
    read, is_whole = _runs_since(since - LONGEST_RUN, services, dataset)
    runs = [found for run in read if (found := _spent(run, since, until, services)) is not None]
    names = sorted({each.run.dataset_version.dataset for each in runs})
    rows = [_of_dataset(name, [each for each in runs if each.run.dataset_version.dataset == name]) for name in names]
    return Spending(
        since=since,
        until=until,
        datasets=tuple(sorted(rows, key=lambda row: -row.node_hours)),
        runs=tuple(runs),
        unpriced_node_hours=sum(each.node_hours for each in runs if each.cost is None),
        is_whole=is_whole,
    )


def _runs_since(first: datetime, services: Services, dataset: str | None) -> tuple[list[RunRecord], bool]:
    """Return the runs requested since a time, newest first, and whether these are all of them."""
    found: list[RunRecord] = []
    for part in _parts(services, dataset):
        found += [run for run in part if run.created_at >= first]
        if part[-1].created_at < first:
            return found, True
        if len(found) >= MAX_READ:
            return found, False
    return found, True


def _parts(services: Services, dataset: str | None) -> Iterator[Sequence[RunRecord]]:
    last: RunRecord | None = None
    while part := services.ledger.runs(limit=PER_REQUEST, dataset=dataset, older_than=last):
        yield part
        last = part[-1]


def _spent(run: RunRecord, since: datetime, until: datetime, services: Services) -> SpentByRun | None:
    """Return what a run took within the span; None where it had no nodes in it."""
    ended = as_if_ended(run, until)
    began = ended.started_at or ended.submitted_at
    if began is None or ended.ended_at is None or ended.ended_at <= since or began >= until:
        return None
    within = replace(ended, started_at=max(began, since), ended_at=min(ended.ended_at, until))
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    return SpentByRun(
        run=run, node_hours=spent_node_hours([within]), cost=known_cost(pipeline, [within], services.plan_facts)
    )


def _of_dataset(dataset: str, runs: Sequence[SpentByRun]) -> SpentByDataset:
    return SpentByDataset(
        dataset=dataset,
        num_runs=len(runs),
        node_hours=sum(each.node_hours for each in runs),
        cost=_sum_of_known(runs),
    )


def _sum_of_known(runs: Sequence[SpentByRun]) -> float | None:
    known = [each.cost for each in runs if each.cost is not None]
    return sum(known) if known else None
