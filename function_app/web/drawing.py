"""Drawings of the pages, as numbers for SVG: cells of shards, curves, bars and timelines. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from function_app.domain.records import ShardRecord, ShardState
from function_app.ingest.completeness import SplitDescription
from function_app.planning.estimates import Estimate

CELL = 12
"""Width and height of a shard's cell, with the gap to the next one."""
FEW_CELLS = 100
FEW_SHARDS = 1000
MAX_CELLS = 100_000
"""Maximum cells drawn for one split; the page says how many are omitted."""
MAX_LINKS = 1000
"""Maximum rejected cells that can be opened, and rows of the table below."""
CURVE_WIDTH, CURVE_HEIGHT = 600, 160
MAX_POINTS = 500
MAX_COMPARED_EPOCHS = 100
MAX_COMPARED_CHARTS = 8
NUM_COLOURS, NUM_DASHES = 8, 4


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Adjacent cells with the same state in one row, drawn as one rectangle."""

    x: int
    y: int
    width: int
    state: str
    """``accepted``, ``rejected`` or ``missing``."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The cell of one rejected shard."""

    x: int
    y: int
    shard: ShardRecord


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One split's cells."""

    width: int
    height: int
    stretches: tuple[Stretch, ...]
    rejected: tuple[Cell, ...]
    num_left_out: int

    @property
    def scale(self) -> int:
        """Pixels per unit; a grid of few cells is drawn larger, for touch screens."""
        return 2 if self.width * self.height <= FEW_CELLS * CELL**2 else 1


def shard_grid(split: SplitDescription) -> Grid | None:
    """Return the cells of a split; None if there is nothing to draw."""
    verdicts = split.verdicts[:MAX_CELLS]
    if not verdicts:
        return None
    per_row = 50 if len(verdicts) <= FEW_SHARDS else 100
    rejected = (n for n, row in enumerate(verdicts) if row is not None and row.state is ShardState.REJECTED)
    return Grid(
        width=min(per_row, len(verdicts)) * CELL,
        height=-(-len(verdicts) // per_row) * CELL,
        stretches=tuple(_stretches(verdicts, per_row)),
        rejected=tuple(
            Cell(x=n % per_row * CELL, y=n // per_row * CELL, shard=shard)
            for n in islice(rejected, MAX_LINKS)
            if (shard := verdicts[n]) is not None
        ),
        num_left_out=len(split.verdicts) - len(verdicts),
    )


def _stretches(verdicts: Sequence[ShardRecord | None], per_row: int) -> Iterator[Stretch]:
    for first in range(0, len(verdicts), per_row):
        x = 0
        states = ("missing" if row is None else str(row.state) for row in verdicts[first : first + per_row])
        for name, cells in groupby(states):
            width = len(list(cells)) * CELL
            yield Stretch(x=x, y=first // per_row * CELL, width=width, state=name)
            x += width


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One measure over the epochs."""

    name: str
    points: str
    """``x,y x,y …`` for an SVG polyline."""
    values: Mapping[float, float]
    """Epoch → value."""
    last: float
    stroke: str
    """Classes of colour and dashes."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves on one axis."""

    title: str
    curves: tuple[Curve, ...]
    lowest: float
    highest: float
    first_epoch: int
    last_epoch: int

    @property
    def epochs(self) -> list[float]:
        """The epochs of which any curve has a value."""
        return sorted({epoch for curve in self.curves for epoch in curve.values})


_CHARTS: Mapping[str, Mapping[str, str]] = {
    "Loss": {"loss": "training", "val_loss": "validation"},
    "Accuracy": {"accuracy": "training", "val_accuracy": "validation"},
    "Throughput": {"images_per_s": "images/s"},
}
"""Title → measure of an epoch → the curve's name."""
_FIRST = tuple(measure for names in _CHARTS.values() for measure in names)
_NOT_MEASURES = frozenset({"epoch", "epochs", "step"})


def charts(epochs: Sequence[Mapping[str, float]]) -> list[Chart]:
    """Return the charts of a run: loss, accuracy and throughput, if the epochs have them."""
    step = -(-len(epochs) // MAX_POINTS) or 1
    thinned = [*epochs[::step], *(epochs[-1:] if (len(epochs) - 1) % step else [])]
    found = (
        _chart(title, {name: _values(measure, thinned) for measure, name in names.items()})
        for title, names in _CHARTS.items()
    )
    return [chart for chart in found if chart is not None]


def compared_charts(runs: Sequence[Sequence[Mapping[str, float]]]) -> list[Chart]:
    """Return a chart for each metric with a curve for each run; many epochs are thinned, keeping each run's last."""
    numbers = sorted({epoch["epoch"] for epochs in runs for epoch in epochs})
    step = -(-len(numbers) // MAX_COMPARED_EPOCHS) or 1
    kept = {*numbers[::step], *(max(epoch["epoch"] for epoch in epochs) for epochs in runs if epochs)}
    thinned = [[epoch for epoch in epochs if epoch["epoch"] in kept] for epochs in runs]
    known = {name for epochs in thinned for epoch in epochs for name in epoch} - _NOT_MEASURES
    measures = [*(name for name in _FIRST if name in known), *sorted(known.difference(_FIRST))]
    found = (
        _chart(measure, {f"run {number}": _values(measure, epochs) for number, epochs in enumerate(thinned, start=1)})
        for measure in measures[:MAX_COMPARED_CHARTS]
    )
    return [chart for chart in found if chart is not None]


def plan_charts(estimates: Sequence[Estimate]) -> list[Chart]:
    """Return charts of hours and cost by number of nodes, with a curve for each cluster."""
    clusters = list(dict.fromkeys(one.cluster for one in estimates))
    measures: dict[str, dict[str, dict[float, float]]] = {"Hours": {}, "Cost": {}}
    for cluster in clusters:
        own = [one for one in estimates if one.cluster == cluster]
        measures["Hours"][cluster] = {one.num_nodes: one.total_s / 3600 for one in own if one.total_s is not None}
        measures["Cost"][cluster] = {one.num_nodes: one.cost for one in own if one.cost is not None}
    found = (_chart(title, series) for title, series in measures.items())
    return [chart for chart in found if chart is not None]


def _values(measure: str, epochs: Sequence[Mapping[str, float]]) -> dict[float, float]:
    return {epoch["epoch"]: epoch[measure] for epoch in epochs if measure in epoch}


def stroke(number: int) -> str:
    """Return the CSS classes of a curve's colour and dashes, which are unique among the first 32 curves."""
    return f"curve-{number % NUM_COLOURS} dash-{(number + number // NUM_COLOURS) % NUM_DASHES}"


def _chart(title: str, series: Mapping[str, Mapping[float, float]]) -> Chart | None:
    values = [value for points in series.values() for value in points.values()]
    numbers = [epoch for points in series.values() for epoch in points]
    if not values:
        return None
    low, high, first, last = min(values), max(values), min(numbers), max(numbers)

    def placed(epoch: float, value: float) -> str:
        x = CURVE_WIDTH * ((epoch - first) / (last - first) if last > first else 0.5)
        y = CURVE_HEIGHT * (1 - (value - low) / (high - low)) if high > low else CURVE_HEIGHT / 2
        return f"{x:.1f},{y:.1f}"

    curves = tuple(
        Curve(
            name=name,
            points=" ".join(placed(*point) for point in sorted(points.items())),
            values=points,
            last=points[max(points)],
            stroke=stroke(number),
        )
        for number, (name, points) in enumerate(series.items())
        if points
    )
    return Chart(title=title, curves=curves, lowest=low, highest=high, first_epoch=int(first), last_epoch=int(last))


def shares(numbers: Sequence[float], width: int) -> list[float]:
    """Return the lengths of bars, scaled so that the largest fills the width."""
    most = max(numbers, default=0) or 1
    return [round(width * max(0.0, number) / most, 1) for number in numbers]
