"""The learning rate of every step, and what is decided after an epoch."""

from __future__ import annotations

import pytest

from training_job.schedule import RateSchedule, Rules, Standing, after_epoch


def test_without_options_the_rate_is_constant() -> None:
    """It is the stated rate, from the first step to the last."""
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


def follow(rules: Rules, values: list[float]) -> list[Standing]:
    standing, history = Standing(), []
    for epoch, value in enumerate(values, start=1):
        standing = after_epoch(standing, rules, {rules.monitor: value}, epoch)
        history.append(standing)
    return history


@pytest.mark.parametrize(("monitor", "values"), [("val_loss", [3.0, 1.0, 2.0]), ("val_accuracy", [0.1, 0.9, 0.5])])
def test_the_best_epoch_is_the_lowest_loss_or_the_highest_of_all_else(monitor: str, values: list[float]) -> None:
    """The second epoch is best either way."""
    assert [1, 2, 2] == [standing.best_epoch for standing in follow(Rules(monitor=monitor), values)]


def test_a_gain_within_the_minimum_delta_is_none() -> None:
    """Noise does not count as improvement."""
    history = follow(Rules(monitor="val_loss", minimum_delta=0.1), [1.0, 0.95, 0.85])
    assert [1, 1, 3] == [standing.best_epoch for standing in history]


def test_every_number_beats_nan() -> None:
    """A validation loss may overflow before the statistics of batch norm have settled; later epochs still count."""
    nan = float("nan")
    history = follow(Rules(monitor="val_loss", early_stopping_patience=2), [nan, nan, 3.0, nan, 2.0])
    assert [1, 1, 3, 3, 5] == [standing.best_epoch for standing in history]
    assert not history[-1].stopped


def test_early_stopping_waits_as_many_epochs_as_its_patience() -> None:
    """Two epochs without improvement end it, not one."""
    history = follow(Rules(monitor="val_loss", early_stopping_patience=2), [1.0, 1.1, 0.9, 0.9, 1.0])
    assert [False, False, False, False, True] == [standing.stopped for standing in history]


def test_a_patience_of_zero_waits_for_ever() -> None:
    """It neither stops the training nor lowers the rate."""
    last = follow(Rules(monitor="val_loss"), [1.0] * 50)[-1]
    assert (False, 1.0) == (last.stopped, last.rate_factor)


def test_a_plateau_lowers_the_rate_and_starts_to_wait_again() -> None:
    """Every two epochs without improvement the rate halves."""
    history = follow(Rules(monitor="val_loss", plateau_patience=2, plateau_factor=0.5), [1.0, 1.0, 1.0, 1.0, 1.0])
    assert [1.0, 1.0, 0.5, 0.5, 0.25] == [standing.rate_factor for standing in history]


def test_an_improvement_keeps_a_lowered_rate() -> None:
    """What a plateau has lowered stays low."""
    history = follow(Rules(monitor="val_loss", plateau_patience=1, plateau_factor=0.1), [1.0, 1.0, 0.5])
    assert [1.0, 0.1, 0.1] == [standing.rate_factor for standing in history]
