"""Drawings of the pages, as numbers for SVG: cells of shards, curves, bars and timelines. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from function_app.domain.records import ShardMark, ShardRecord, ShardState
from function_app.planning.estimates import Estimate

CELL = 12
"""Width and height of a shard's cell, with the gap to the next one."""
FEW_CELLS = 100
FEW_SHARDS = 1000
MAX_CELLS = 100_000
"""Maximum cells drawn for one split; the page says how many are omitted."""
MAX_LINKS = 1000
"""Maximum rejected cells that can be opened, and rows of the table below."""
CURVE_WIDTH, CURVE_HEIGHT = 600, 240
MAX_POINTS = 500
MAX_DOTS = 200
"""Points of a chart that have a dot, which says its value to a mouse."""
_INTERVALS = 4
"""Aim for so many intervals between ticks."""
_HOUR_S, _MINUTE_S, _MANY_HOURS = 3600, 60, 2
MAX_COMPARED_EPOCHS = 100
MAX_COMPARED_CHARTS = 8
MAX_DRAWN = 1e307
"""Larger numbers are drawn as if they were this one, because differences between them overflow."""
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
    shard: ShardRecord | ShardMark

    @property
    def message(self) -> str:
        """Its first reason, as far as it was read."""
        reasons = self.shard.reasons if isinstance(self.shard, ShardRecord) else ()
        return f"{self.shard.name}: {reasons[0].message}" if reasons else self.shard.name


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


def shard_grid(shards: Sequence[ShardRecord | ShardMark | None]) -> Grid | None:
    """Return the cells of a split's shards; None where there is nothing to draw."""
    verdicts = shards[:MAX_CELLS]
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
        num_left_out=len(shards) - len(verdicts),
    )


def _stretches(verdicts: Sequence[ShardRecord | ShardMark | None], per_row: int) -> Iterator[Stretch]:
    for first in range(0, len(verdicts), per_row):
        x = 0
        states = ("missing" if row is None else str(row.state) for row in verdicts[first : first + per_row])
        for name, cells in groupby(states):
            width = len(list(cells)) * CELL
            yield Stretch(x=x, y=first // per_row * CELL, width=width, state=name)
            x += width


@dataclass(frozen=True, kw_only=True)
class Tick:
    """One line across a chart."""

    y: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One point of a curve."""

    x: float
    y: float
    epoch: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One measure over the epochs."""

    name: str
    dots: tuple[Dot, ...]
    values: Mapping[float, float]
    """Epoch → value."""
    last: float
    stroke: str
    """Classes of colour and dashes."""

    @property
    def points(self) -> str:
        """``x,y x,y …`` for an SVG polyline."""
        return " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in self.dots)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves on one axis."""

    title: str
    unit: str
    """Unit of the horizontal axis: ``epoch`` or ``node``."""
    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]
    first_epoch: int
    last_epoch: int

    @property
    def has_dots(self) -> bool:
        """Whether its points are few enough to be seen one by one."""
        return sum(len(curve.dots) for curve in self.curves) <= MAX_DOTS

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
_FROM_ZERO = frozenset({"Throughput", "images_per_s", "duration_s", "Minutes", "Hours", "Cost"})
"""Charts in which a length is an amount: noise looks like noise."""
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
    """Return time and cost over the number of nodes, with a curve for each cluster that has any."""
    clusters = list(dict.fromkeys(one.cluster for one in estimates))
    longest_s = max((one.total_s for one in estimates if one.total_s is not None), default=0.0)
    name, unit_s = ("Hours", _HOUR_S) if longest_s >= _MANY_HOURS * _HOUR_S else ("Minutes", _MINUTE_S)
    measures: dict[str, dict[str, dict[float, float]]] = {name: {}, "Cost": {}}
    for cluster in clusters:
        own = [one for one in estimates if one.cluster == cluster]
        measures[name][cluster] = {one.num_nodes: one.total_s / unit_s for one in own if one.total_s is not None}
        measures["Cost"][cluster] = {one.num_nodes: one.cost for one in own if one.cost is not None}
    found = (_chart(title, series, unit="node") for title, series in measures.items())
    return [chart for chart in found if chart is not None]


def _values(measure: str, epochs: Sequence[Mapping[str, float]]) -> dict[float, float]:
    return {epoch["epoch"]: epoch[measure] for epoch in epochs if measure in epoch}


def stroke(number: int) -> str:
    """Return the CSS classes of a curve's colour and dashes, which are unique among the first 32 curves."""
    return f"curve-{number % NUM_COLOURS} dash-{(number + number // NUM_COLOURS) % NUM_DASHES}"


def _chart(title: str, series: Mapping[str, Mapping[float, float]], *, unit: str = "epoch") -> Chart | None:
    values = [_drawable(value) for points in series.values() for value in points.values()]
    numbers = [epoch for points in series.values() for epoch in points]
    if not values:
        return None
    ticks = _ticks([*values, 0.0] if title in _FROM_ZERO else values)
    low, high, first, last = ticks[0], ticks[-1], min(numbers), max(numbers)

    def height(value: float) -> float:
        return CURVE_HEIGHT * (1 - (_drawable(value) - low) / (high - low))

    def placed(epoch: float, value: float) -> Dot:
        x = CURVE_WIDTH * ((epoch - first) / (last - first) if last > first else 0.5)
        return Dot(x=x, y=height(value), epoch=epoch, value=value)

    curves = tuple(
        Curve(
            name=name,
            dots=tuple(placed(*point) for point in sorted(points.items())),
            values=points,
            last=points[max(points)],
            stroke=stroke(number),
        )
        for number, (name, points) in enumerate(series.items())
        if points
    )
    lines = tuple(Tick(y=height(value), value=value) for value in ticks)
    return Chart(title=title, unit=unit, curves=curves, ticks=lines, first_epoch=int(first), last_epoch=int(last))


def _drawable(value: float) -> float:
    return max(-MAX_DRAWN, min(MAX_DRAWN, value))


def _ticks(values: Sequence[float]) -> list[float]:
    """Return round numbers at the same distance, of which the first and the last enclose all values."""
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-300, 1e-12 * largest):  # one value, as far as a float can tell: in the middle
        room = largest if largest > 1e-300 else 1.0  # noqa: PLR2004
        low, high = low - room, high + room
    rough = (high - low) / _INTERVALS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [n * step for n in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def shares(numbers: Sequence[float], width: int) -> list[float]:
    """Return the lengths of bars, scaled so that the largest fills the width."""
    most = max(numbers, default=0) or 1
    return [round(width * max(0.0, number) / most, 1) for number in numbers]
