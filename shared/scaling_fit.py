"""Finding the link behind measured efficiencies, so that others can be foretold with `shared.scaling_model`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.scaling_model import BACKWARD_SHARE, FUSION_BUFFER_BYTES, Link, Workload, scaling_efficiency

_BOUNDS = ((math.log(1e7), math.log(1e12)), (math.log(1e-7), math.log(1.0)), (0.0, BACKWARD_SHARE))
"""Of rate (bytes a second: a slow wire, the fastest memory), latency (seconds) and overlap."""
_POINTS = 9
_ROUNDS = 14
_NARROWING = 0.6
"""Each round looks at so much of the last one's range, around what was best."""
_FEWEST = 2

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One training that was measured with one rank and with several."""

    name: str
    workload: Workload
    num_ranks: int
    efficiency: float


def fitted(measured: Sequence[Measured], *, buffer_bytes: int = FUSION_BUFFER_BYTES) -> Link:
    """Return the link with the least squared error of the efficiencies; the buffer's size is known, not found.

    A grid over all three parameters at once, rate and latency by their logarithms, narrowed round by round: the
    error has kinks, where an exchange just hides, that a descent would stop at.

    Raises ValueError for fewer than two: one alone is explained by rate or by latency, as one likes.
    """
    if len(measured) < _FEWEST:
        raise ValueError(f"measured should be at least {_FEWEST}, were {len(measured)}")
    ranges, best = list(_BOUNDS), _link([low for low, _ in _BOUNDS], buffer_bytes)
    for _ in range(_ROUNDS):
        links = ((point, _link(point, buffer_bytes)) for point in itertools.product(*map(_grid, ranges)))
        point, best = min(links, key=lambda pair: _squared_error(measured, pair[1]))
        ranges = [_around(at, around, bounds) for at, around, bounds in zip(point, ranges, _BOUNDS, strict=True)]
    return best


def held_out_errors(measured: Sequence[Measured], *, buffer_bytes: int = FUSION_BUFFER_BYTES) -> dict[str, float]:
    """Return by how much each efficiency is off when it is foretold by a link fitted on all the others."""
    errors: dict[str, float] = {}
    for one in measured:
        link = fitted([other for other in measured if other is not one], buffer_bytes=buffer_bytes)
        errors[one.name] = abs(one.efficiency - scaling_efficiency(one.workload, link, one.num_ranks))
    return errors


def _link(point: Sequence[float], buffer_bytes: int) -> Link:
    rate, latency, overlap = point
    return Link(bytes_per_s=math.exp(rate), latency_s=math.exp(latency), overlap=overlap, buffer_bytes=buffer_bytes)


def _squared_error(measured: Sequence[Measured], link: Link) -> float:
    return sum((m.efficiency - scaling_efficiency(m.workload, link, m.num_ranks)) ** 2 for m in measured)


def _grid(bounds: Range) -> list[float]:
    low, high = bounds
    return [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]


def _around(at: float, last: Range, bounds: Range) -> Range:
    half = (last[1] - last[0]) * _NARROWING / 2
    return max(bounds[0], at - half), min(bounds[1], at + half)
