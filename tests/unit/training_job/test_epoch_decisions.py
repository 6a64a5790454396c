"""What is decided after an epoch."""

from __future__ import annotations

import pytest

from training_job.epoch_decisions import Rules, Standing, after_epoch


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


def test_early_stopping_waits_as_many_epochs_as_its_patience() -> None:
    """Two epochs without improvement end it, not one."""
    history = follow(Rules(monitor="val_loss", early_stopping_patience=2), [1.0, 1.1, 0.9, 0.9, 1.0])
    assert [False, False, False, False, True] == [standing.stopped for standing in history]


def test_a_patience_of_zero_waits_for_ever() -> None:
    """Neither stops nor lowers the rate."""
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
