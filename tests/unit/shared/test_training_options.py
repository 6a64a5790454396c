"""How to train."""

from __future__ import annotations

from typing import Any

import pytest

from shared.training_options import OptionsError, TrainingOptions, numbers


def test_the_defaults_contradict_nothing() -> None:
    """A pipeline that states nothing trains."""
    assert "small_cnn" == TrainingOptions().model_name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more, got -1.0"),
        ({"momentum": 1.0}, "momentum must be 0 or more, below 1, got 1.0"),
        ({"task": "binary"}, "task binary needs num_classes 2"),
        ({"monitor": "val_auc"}, "monitor val_auc needs task binary"),
        ({"monitor": "val_top5_accuracy", "num_classes": 5}, "needs more than 5 classes"),
        ({"warm_up_epochs": 11.0}, "warm_up_epochs must be at most epochs"),
        ({"pixel_mean": "1,2,3"}, "pixel_mean and pixel_std must be set together"),
        ({"pixel_mean": "1,x", "pixel_std": "1,1"}, "pixel_mean must be numbers separated by commas"),
        ({"decay_epochs": "ten"}, "decay_epochs must be numbers separated by commas"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], message: str) -> None:
    """The message names the option and what was expected."""
    with pytest.raises(OptionsError, match=message):
        TrainingOptions(**options)


def test_all_mistakes_are_reported_at_once() -> None:
    """One error lists both."""
    with pytest.raises(OptionsError, match=r"epochs must be .*; momentum must be"):
        TrainingOptions(epochs=0, momentum=2.0)


@pytest.mark.parametrize(("text", "expected"), [("", ()), ("30", (30.0,)), ("0.5, 60,80", (0.5, 60.0, 80.0))])
def test_numbers_stand_between_commas(text: str, expected: tuple[float, ...]) -> None:
    """As flags have no lists."""
    assert expected == numbers(text)
