"""A training that is killed and goes on ends where one ends that was never killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks.landed import Landed
from tests.ranks.ranks import Outcome, job_arguments, program, train, variables

pytestmark = pytest.mark.distributed

STEPS_OF_EPOCH = 22
SEED = 5
"""Of the moments: change it, and the test has to hold as well."""
OPTIONS: dict[str, Any] = {
    "epochs": 5,
    "checkpoint_steps": 5,
    "model_module": program("dropout_and_batch_norm"),
    "augmentation": "crop_flip",
    "crop_padding": 1,
    "optimizer": "sgd",
    "learning_rate": 0.02,
    "warm_up_epochs": 1.0,
    "schedule": "cosine",
    "export": "best",
    "plateau_patience": 2,
}
"""All that has a state: batch norm, dropout, augmentation, momentum, schedules, decisions."""


def drawn_moments(count: int) -> list[int]:
    """Steps in rising order, each in the middle of an epoch, at least two checkpoints after the one before."""
    generator, moments = random.Random(SEED), [0]  # noqa: S311 (any step will do, and the same again)
    while len(moments) <= count:
        step = generator.randrange(moments[-1] + 11, moments[-1] + 30)
        if step % STEPS_OF_EPOCH > 5:
            moments.append(step)
    return moments[1:]


def killed(ranks: int, arguments: Any, moment: str) -> dict[str, Any]:
    """Train until it is killed; return where the checkpoint stands that counts."""
    outcome = train(ranks, arguments, instead=[program("killed")], launcher=variables(KILLED=moment))
    assert 0 != outcome.exit_code, outcome.log
    position: dict[str, Any] = outcome.pointer["position"]
    return position


def learned(outcome: Outcome) -> list[dict[str, float]]:
    """What each epoch came to, but for how long it took."""
    return [
        {k: v for k, v in epoch.items() if k not in ("duration_s", "images_per_s")} for epoch in outcome.report.epochs
    ]


def test_a_training_killed_at_random_steps_ends_to_the_bit_where_one_does_that_never_was(
    digits: Landed, tmp_path: Path
) -> None:
    """Killed within a step, while a checkpoint is half written, and before the pointer names it."""
    undisturbed = train(2, job_arguments(digits, tmp_path / "undisturbed", **OPTIONS))
    assert 0 == undisturbed.exit_code, undisturbed.log
    arguments = job_arguments(digits, tmp_path / "killed", **OPTIONS)
    in_step, in_file, in_pointer = drawn_moments(3)
    stood = killed(2, arguments, f"1:{in_step}:step")
    assert in_step - 5 < stood["step"] <= in_step
    assert 0 < stood["step_of_epoch"] < STEPS_OF_EPOCH
    for moment, where in ((in_file, "file"), (in_pointer, "pointer")):
        before, stood = stood, killed(2, arguments, f"0:{moment}:{where}")
        assert before["step"] < stood["step"] < moment
    resumed = train(2, arguments)
    assert 0 == resumed.exit_code, resumed.log
    assert stood["step"] == resumed.report.details["resumed_at_step"]
    assert undisturbed.variables.keys() == resumed.variables.keys()
    for name, expected in undisturbed.variables.items():
        np.testing.assert_array_equal(expected, resumed.variables[name], err_msg=name)
    assert (learned(undisturbed), undisturbed.report.metrics) == (learned(resumed), resumed.report.metrics)
