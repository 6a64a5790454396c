"""Rounds in which two take turns, and of which only those count in which nobody else used the cores."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import MIN_SAMPLES, BenchmarkError
from bench.validator_worker import Sample

MAX_ROUNDS = 60
MAX_OTHERS_SHARE = 0.10
"""Of both cores' time; a sample of a tenth of a second is measured to about this much."""

Ask = Callable[[], Sample]


def undisturbed(ours: Ask, theirs: Ask) -> tuple[list[float], list[float]]:
    """Return the times of undisturbed rounds, as (ours, theirs). Raises BenchmarkError where there are too few."""
    ours()
    theirs()
    kept: list[tuple[float, float]] = []
    for _ in range(MAX_ROUNDS):
        pair = ours(), theirs()
        if max(sample.others for sample in pair) <= MAX_OTHERS_SHARE:
            kept.append((pair[0].wall_s, pair[1].wall_s))
        if len(kept) == MIN_SAMPLES:
            return [own for own, _ in kept], [other for _, other in kept]
    raise BenchmarkError(
        f"only {len(kept)} of {MAX_ROUNDS} rounds were undisturbed: others used more than {MAX_OTHERS_SHARE:.0%} "
        "of the cores; measure on a machine that does nothing else"
    )
