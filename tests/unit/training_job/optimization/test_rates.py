"""The learning rate of every step."""

from __future__ import annotations

import pytest

from training_job.optimization.rates import RateSchedule


def test_without_options_the_rate_is_constant() -> None:
    """As stated, from the first step to the last."""
    schedule = RateSchedule(base=0.1, scale=1, epochs=90)
    assert [0.1, 0.1, 0.1] == [schedule.rate(epoch) for epoch in (0, 45, 90)]


def test_warm_up_rises_from_the_unscaled_rate_to_the_scaled_one() -> None:
    """Goyal et al. 2017: batch 8192 against 256, rate 0.1 to 3.2 over five epochs."""
    schedule = RateSchedule(base=0.1, scale=32, epochs=90, warm_up_epochs=5)
    assert pytest.approx([0.1, 1.65, 3.2, 3.2]) == [schedule.rate(epoch) for epoch in (0, 2.5, 5, 6)]


def test_warm_up_without_scaling_starts_at_a_tenth() -> None:
    """There is no lower rate to start from, and zero would waste the first steps."""
    schedule = RateSchedule(base=0.1, scale=1, epochs=10, warm_up_epochs=2)
    assert pytest.approx([0.01, 0.055, 0.1]) == [schedule.rate(epoch) for epoch in (0, 1, 2)]


def test_steps_lower_the_rate_at_their_epochs() -> None:
    """The recipe of ResNet-50: a tenth at epochs 30, 60 and 80."""
    schedule = RateSchedule(base=1, scale=1, epochs=90, schedule="step", decay_epochs=(30, 60, 80))
    assert pytest.approx([1, 0.1, 0.01, 0.001]) == [schedule.rate(epoch) for epoch in (29.99, 30, 79.9, 80)]


def test_cosine_falls_to_zero_after_the_warm_up() -> None:
    """Half way between warm-up and end the rate is half."""
    schedule = RateSchedule(base=1, scale=1, epochs=12, warm_up_epochs=2, schedule="cosine")
    assert pytest.approx([1, 0.5, 0]) == [schedule.rate(epoch) for epoch in (2, 7, 12)]
