"""The paired bootstrap: how much better one model is than another on the same examples, with an interval.

Efron's bootstrap: examples are resampled with replacement, both models are evaluated on the same sample, and the
middle 95 % of the differences are the interval. Sampling both models together removes the difficulty that examples
have for both, so it detects far smaller differences than comparing two separate intervals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]

RESAMPLES = 2000
CONFIDENCE = 0.95
MAX_GROUPS = 20_000
"""If there are more examples, they are put into this many groups of equal size, and groups are drawn instead. The
average varies just as much, and the time stays bounded.
"""
MAX_RANKED = 50_000
"""The area under the curve is computed for each draw, from so many examples, evenly taken."""
RANKED_RESAMPLES = 1000
_DRAWN_AT_ONCE = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What the area under the curve is made of: label (0 or 1) and score of each example, float64 [N] each."""

    labels: Values
    scores: Values


def seed_of(*names: str) -> int:
    """Return a seed derived from names, so repeating a comparison gives the same interval."""
    return int.from_bytes(hashlib.sha256("\n".join(names).encode()).digest()[:8], "big")


def interval_of_mean(values: Values, seed: int) -> Interval:
    """Return the mean of values [N] and its interval. Of paired differences, it is the difference of two means."""
    generator = np.random.Generator(np.random.PCG64(seed))
    sums, counts = _groups(values, generator)
    means = np.concatenate([sums[drawn].sum(1) / counts[drawn].sum(1) for drawn in _draws(len(sums), generator)])
    return _interval(float(values.mean()), means)


def interval_of_auc(first: Scored, second: Scored | None, seed: int) -> Interval:
    """Return the area under the ROC curve, or the first one less the second, on the same examples."""
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(first.labels)
    taken = np.linspace(0, count - 1, min(count, MAX_RANKED)).astype(np.int64)
    areas = [_area(one, taken) for one in (first, second) if one is not None]
    number = len(taken)

    def difference(weights: Values) -> float:
        found = [area(weights) for area in areas]
        return found[0] - found[1] if len(found) > 1 else found[0]

    drawn = [
        difference(np.bincount(generator.integers(0, number, number), minlength=number))
        for _ in range(RANKED_RESAMPLES)
    ]
    return _interval(difference(np.ones(number)), np.array(drawn))


def _groups(values: Values, generator: np.random.Generator) -> tuple[Values, Values]:
    """Return sums and sizes of what is drawn: each example, or random groups of nearly equal size."""
    if len(values) <= MAX_GROUPS:
        return values.astype(np.float64), np.ones(len(values))
    order = generator.permutation(len(values))
    starts = np.arange(MAX_GROUPS) * len(values) // MAX_GROUPS
    return np.add.reduceat(values[order].astype(np.float64), starts), np.diff([*starts, len(values)])


def _draws(number: int, generator: np.random.Generator) -> Iterator[Values]:
    """Yield indices [resamples, number], as many at once as memory allows."""
    at_once = max(1, _DRAWN_AT_ONCE // number)
    for start in range(0, RESAMPLES, at_once):
        yield generator.integers(0, number, (min(at_once, RESAMPLES - start), number))


def _area(scored: Scored, taken: Values) -> Callable[[Values], float]:
    """Return a function of the weight of each example; equal scores count half. 0.5 where a class is missing."""
    labels, scores = scored.labels[taken] > 0, scored.scores[taken]
    order = np.argsort(scores, kind="stable")
    labels, ordered = labels[order], scores[order]
    ties = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])

    def area(weights: Values) -> float:
        weights = weights[order]
        positives = np.add.reduceat(weights * labels, ties)
        negatives = np.add.reduceat(weights * ~labels, ties)
        pairs = positives.sum() * negatives.sum()
        below = np.cumsum(negatives) - negatives
        return float((positives * (below + negatives / 2)).sum() / pairs) if pairs else 0.5

    return area


def _interval(value: float, drawn: Values) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(value=value, low=float(low), high=float(high))
