"""A training that is killed and resumed ends with the same result as one that was never killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_azure.azure_ml.mounts import MountRules, compiler
from tests.ranks.ranks import RULES, Outcome, program, train, variables
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = pytest.mark.distributed

STEPS_OF_EPOCH = 22
SEED = 5
"""Seed of the moments; the test must pass with any seed."""
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
"""Everything that has state: batch norm, dropout, augmentation, momentum, schedules and decisions."""


def drawn_moments(count: int) -> list[int]:
    """Return rising steps, each in the middle of an epoch and at least two checkpoints after the previous one."""
    generator, moments = random.Random(SEED), [0]  # noqa: S311 (any step will do, and the same again)
    while len(moments) <= count:
        step = generator.randrange(moments[-1] + 11, moments[-1] + 30)
        if step % STEPS_OF_EPOCH > 5:
            moments.append(step)
    return moments[1:]


def killed(ranks: int, arguments: Any, moment: str, rules: MountRules = RULES) -> dict[str, Any]:
    """Train until it is killed; return the position of the current checkpoint."""
    outcome = train(ranks, arguments, instead=[program("killed")], launcher=variables(KILLED=moment), rules=rules)
    assert 0 != outcome.exit_code, outcome.log
    position: dict[str, Any] = outcome.pointer["position"]
    return position


def learned(outcome: Outcome) -> list[dict[str, float]]:
    """Return the metrics of each epoch, without the durations."""
    return [
        {k: v for k, v in epoch.items() if k not in ("duration_s", "images_per_s")} for epoch in outcome.report.epochs
    ]


@pytest.fixture(scope="session")
def undisturbed(digits: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks that were never killed."""
    outcome = train(2, job_arguments(digits, tmp_path_factory.mktemp("undisturbed"), **OPTIONS))
    assert 0 == outcome.exit_code, outcome.log
    return outcome


def assert_equal_to_the_bit(undisturbed: Outcome, resumed: Outcome) -> None:
    """Compare all variables, including the optimizer's, and all metrics of all epochs."""
    assert 0 == resumed.exit_code, resumed.log
    assert undisturbed.variables.keys() == resumed.variables.keys()
    for name, expected in undisturbed.variables.items():
        np.testing.assert_array_equal(expected, resumed.variables[name], err_msg=name)
    assert (learned(undisturbed), undisturbed.report.metrics) == (learned(resumed), resumed.report.metrics)


@pytest.mark.skipif(compiler() is None, reason="the mount needs a C compiler")
def test_a_training_killed_while_it_saves_ends_to_the_bit_where_one_does_that_never_was(
    undisturbed: Outcome, digits: ClosedVersion, tmp_path: Path
) -> None:
    """This holds even if the first call for every output fails and the newest checkpoint pointers are torn.

    The root alone reads checkpoints: it passes over the torn ones, and all ranks continue where it does, in the
    middle of the second epoch. Checkpoints, summaries, model and report are written by a second call, and are whole.
    """
    fails_first = MountRules(errors_permille=1000)
    arguments = job_arguments(digits, tmp_path, **OPTIONS, tensorboard=True)
    stood = killed(2, arguments, "0:35:file", fails_first)
    assert (1, 30) == (stood["epoch"], stood["step"])
    torn = sorted((tmp_path / "checkpoints").glob("pointer-*.json"))[-2:]
    for pointer in torn:
        pointer.write_bytes(pointer.read_bytes()[:40])
    resumed = train(2, arguments, rules=fails_first)
    assert_equal_to_the_bit(undisturbed, resumed)
    assert 25 == resumed.report.details["resumed_at_step"]
    assert f"is used, not {torn[1].name}" in resumed.log
    assert resumed.log.count("input/output error of the emulated mount") > 10


@pytest.mark.slow
def test_a_training_killed_at_random_steps_ends_to_the_bit_where_one_does_that_never_was(
    undisturbed: Outcome, digits: ClosedVersion, tmp_path: Path
) -> None:
    """It is killed within a step, while a checkpoint is half written, and before the pointer names it."""
    arguments = job_arguments(digits, tmp_path, **OPTIONS)
    in_step, in_file, in_pointer = drawn_moments(3)
    stood = killed(2, arguments, f"1:{in_step}:step")
    assert in_step - 5 < stood["step"] <= in_step
    assert 0 < stood["step_of_epoch"] < STEPS_OF_EPOCH
    for moment, where in ((in_file, "file"), (in_pointer, "pointer")):
        before, stood = stood, killed(2, arguments, f"0:{moment}:{where}")
        assert before["step"] < stood["step"] < moment
    resumed = train(2, arguments)
    assert_equal_to_the_bit(undisturbed, resumed)
    assert stood["step"] == resumed.report.details["resumed_at_step"]
