"""Rounds count where nobody else used the cores, and a figure without enough of them is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.figures import MIN_SAMPLES, BenchmarkError
from bench.validator_rounds import MAX_OTHERS_SHARE, MAX_ROUNDS, undisturbed
from bench.validator_worker import Sample


def asked(others: Iterable[float], first_s: float) -> Callable[[], Sample]:
    """Somebody who takes a second longer each time, with so much of the cores used by others."""
    samples = (Sample(wall_s=first_s + number, others=share, result=1) for number, share in enumerate(others))
    return lambda: next(samples)


def test_a_round_that_was_disturbed_on_either_side_is_measured_again() -> None:
    """The first one warms up, the third and the fourth do not count; pairs stay pairs."""
    busy, calm = MAX_OTHERS_SHARE + 0.01, MAX_OTHERS_SHARE
    ours = asked([0.0, calm, busy, calm, calm, calm, calm, calm], first_s=0.0)
    theirs = asked([busy, calm, calm, busy, calm, calm, calm, calm], first_s=10.0)
    expected = [1.0, 4.0, 5.0, 6.0, 7.0]
    assert (expected, [10.0 + number for number in expected]) == undisturbed(ours, theirs)


def test_a_machine_that_is_never_alone_gives_no_figure() -> None:
    """One calm round too few is an error that says so."""
    calm = [0.0] * MIN_SAMPLES  # the first of them warms up
    shares = [*calm, *[1.0] * (MAX_ROUNDS + 1 - len(calm))]
    with pytest.raises(BenchmarkError, match=f"only {MIN_SAMPLES - 1} of {MAX_ROUNDS} rounds were undisturbed"):
        undisturbed(asked(shares, 0.0), asked(shares, 0.0))
