"""Overrides: a short typed list with limits, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from function_app.domain.errors import OverrideError
from function_app.runs.requests import overridden
from tests.support.world import pipeline


def test_what_is_within_the_limits_is_taken() -> None:
    """A whole number is a learning rate, too."""
    options = overridden(pipeline(), {"epochs": 100, "learning_rate": 0.05, "optimizer": "sgd"})
    assert (100, 0.05, "sgd") == (options.epochs, options.learning_rate, options.optimizer)


def test_nothing_overridden_is_the_pipeline() -> None:
    """Then the run is the one that a closing would start."""
    assert pipeline().train.options == overridden(pipeline(), {})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"num_nodes": 8},
            "num_nodes may not be overridden; pipeline digits offers epochs, learning_rate, optimizer",
        ),
        ({"seed": 1}, "seed may not be overridden"),
        ({"epochs": 0}, "epochs should be at least 1, was 0"),
        ({"epochs": 101}, "epochs should be at most 100, was 101"),
        ({"epochs": 2.0}, "epochs should be int, was '2.0'"),
        ({"epochs": True}, "epochs should be int, was 'True'"),
        ({"epochs": "2"}, "epochs should be int, was '2'"),
        ({"learning_rate": math.nan}, "learning_rate should be a finite number, was nan"),
        ({"learning_rate": 1}, "learning_rate should be at most 0.1, was 1"),
        ({"optimizer": "${{inputs.data}}; rm -r /"}, "optimizer should be one of"),
        ({"optimizer": "x" * 201}, "optimizer should be at most 200 characters, was 201"),
    ],
)
def test_what_is_beyond_is_refused_with_the_limit(overrides: dict[str, Any], message: str) -> None:
    """A caller of the API has no say over code, cluster size or cost."""
    with pytest.raises(OverrideError) as caught:
        overridden(pipeline(), overrides)
    assert str(caught.value).startswith(message)
