"""Time per record with an interval, fitted to earlier runs if there are any, otherwise from the cost model.

Pure functions. docs/plan.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from function_app.planning.cost_model import Place

Source = Literal["fitted", "scaled", "published"]
"""A line fitted to runs of several sizes; the cost model, or a power law, scaled to runs; published figures only."""

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 %, two-sided, with 1 to 10 degrees of freedom."""
_T95_MANY = 2.0
MIN_SPREAD = 0.05
"""Minimum spread of runs of the same job."""
FEW, MANY = 1, 3
ONE_RUN, OTHER_SIZE, PUBLISHED, OTHER_NETWORK = math.log(1.5), math.log(2), math.log(2), math.log(3)
"""Half-widths of intervals in natural logarithms if they were not measured. Assumed."""
FAR = 0.1
"""Addition to the half-width for each doubling of processes beyond the measured numbers. Assumed."""
WIDEST = math.log(10)
NO_WEIGHT = 1e-12
"""If the runs of one size are a million times faster, rounding errors decide what the others add to a fit."""
GAIN = 0.9
"""Exponent without figures: twice the processes take 2 ** -0.9 of the time. Assumed."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The measurements of one earlier run."""

    place: Place
    record_s: float
    """Seconds per record with all processes."""
    job_s: float | None = None
    """Seconds of the job outside its epochs; None if it was resumed."""
    start_s: float | None = None
    """Seconds from the submission to the start."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The time per record on some machines, with its 95 % interval."""

    record_s: float
    low_s: float
    high_s: float
    source: Source
    num_runs: int


def pace(
    place: Place,
    observations: Sequence[Observation],
    model: Callable[[Place], float | None],
    *,
    is_reference: bool,
) -> Throughput | None:
    """Return the time per record; None if there are neither runs nor figures.

    ``model`` is the cost model; ``is_reference`` says that its figures were measured on this network.
    """
    here = [one for one in observations if one.place.vm_size.lower() == place.vm_size.lower()]
    can_be_fitted = len(here) >= MANY and len({one.place.num_ranks for one in here}) > FEW
    if can_be_fitted and (fitted := _fitted(place, here)) is not None:
        return fitted
    own = model(place)
    if own is not None:
        for known, widest in ((here, ONE_RUN), (observations, OTHER_SIZE)):
            ratios = [math.log(one.record_s / base) for one in known if (base := model(one.place)) is not None]
            if ratios:
                return _scaled(own, ratios, widest, _distance(place, known), is_here=known is here)
        width = PUBLISHED if is_reference else OTHER_NETWORK
        return _pace(own, width, "published", 0)
    if here:
        powers = [math.log(one.record_s * one.place.num_ranks**GAIN) for one in here]
        return _scaled(place.num_ranks**-GAIN, powers, ONE_RUN, _distance(place, here), is_here=True)
    return None


def _scaled(base: float, logs: Sequence[float], widest: float, distance: float, *, is_here: bool) -> Throughput:
    """Scale a shape to the mean of the runs."""
    mean, width = sum(logs) / len(logs), widest
    if is_here and len(logs) > 1:
        spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1))
        width = _t(len(logs) - 1) * max(spread, MIN_SPREAD) * math.sqrt(1 + 1 / len(logs))
    return _pace(base * math.exp(mean), width + FAR * distance, "scaled", len(logs))


def _fitted(place: Place, runs: Sequence[Observation]) -> Throughput | None:
    """Fit record_s = a + b / ranks, by least squares of relative errors; neither part is negative.

    None if the runs of one size are so much faster that the others have no weight: a script may report any rate.
    """
    points = [(1 / one.record_s, 1 / (one.place.num_ranks * one.record_s)) for one in runs]
    xx, xy, yy = (sum(p[i] * p[j] for p in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = sum(p[0] for p in points), sum(p[1] for p in points)
    determinant = xx * yy - xy * xy
    if determinant <= NO_WEIGHT * xx * yy:
        return None
    a, b = (x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant
    degrees = len(runs) - 2
    if a < 0 or b < 0:
        a, b, degrees = (0.0, y / yy, len(runs) - 1) if a < 0 else (x / xx, 0.0, len(runs) - 1)
    squares = sum((1 - a * p[0] - b * p[1]) ** 2 for p in points)
    value = a + b / place.num_ranks
    own = (1 / value, 1 / (place.num_ranks * value))
    leverage = (own[0] ** 2 * yy - 2 * own[0] * own[1] * xy + own[1] ** 2 * xx) / determinant
    spread = max(math.sqrt(squares / degrees), MIN_SPREAD)
    return _pace(value, _t(degrees) * spread * math.sqrt(1 + max(0.0, leverage)), "fitted", len(runs))


def _pace(value: float, width: float, source: Source, num_runs: int) -> Throughput:
    factor = math.exp(min(width, WIDEST))
    return Throughput(record_s=value, low_s=value / factor, high_s=value * factor, source=source, num_runs=num_runs)


def _distance(place: Place, runs: Iterable[Observation]) -> float:
    """Return the number of doublings of processes between a place and the nearest run."""
    return min(abs(math.log2(place.num_ranks / one.place.num_ranks)) for one in runs)


def _t(degrees: int) -> float:
    return _T95[degrees - 1] if degrees <= len(_T95) else _T95_MANY
