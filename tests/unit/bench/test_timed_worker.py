"""Only rounds on undisturbed cores count, and too few of them give no figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.figures import MIN_SAMPLES, BenchmarkError
from bench.timed_worker import MAX_OTHERS_SHARE, MAX_ROUNDS, Sample, undisturbed


def samples(others: Iterable[float], first_s: float) -> Callable[[], Sample]:
    """Return measurements that take a second longer each time, with these shares used by other processes."""
    each = (Sample(wall_s=first_s + number, others=share, result=1) for number, share in enumerate(others))
    return lambda: next(each)


def test_a_round_that_was_disturbed_on_either_side_is_measured_again() -> None:
    """The first one warms up, the third and the fourth do not count; pairs stay pairs."""
    busy, calm = MAX_OTHERS_SHARE + 0.01, MAX_OTHERS_SHARE
    ours = samples([0.0, calm, busy, calm, calm, calm, calm, calm], first_s=0.0)
    theirs = samples([busy, calm, calm, busy, calm, calm, calm, calm], first_s=10.0)
    expected = [1.0, 4.0, 5.0, 6.0, 7.0]
    assert (expected, [10.0 + number for number in expected]) == undisturbed(ours, theirs)


def test_a_machine_that_is_never_alone_gives_no_figure() -> None:
    """One calm round too few is an error that says so."""
    calm = [0.0] * MIN_SAMPLES  # the first of them warms up
    shares = [*calm, *[1.0] * (MAX_ROUNDS + 1 - len(calm))]
    with pytest.raises(BenchmarkError, match=f"only {MIN_SAMPLES - 1} of {MAX_ROUNDS} rounds were undisturbed"):
        undisturbed(samples(shares, 0.0), samples(shares, 0.0))
