"""A training that is killed and goes on ends where one ends that was never killed."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.landed import Landed
from tests.distributed.ranks import Outcome, Running, end_all, job_arguments, program, start, train
from tests.support.processes import wait_until
from training_job.checkpoints.store import CheckpointStore

pytestmark = pytest.mark.distributed

OPTIONS = {
    "epochs": 8,
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


@pytest.fixture(scope="module")
def undisturbed(digits: Landed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks from beginning to end."""
    return train(2, job_arguments(digits, tmp_path_factory.mktemp("undisturbed"), **OPTIONS))


def test_a_killed_training_resumes_exactly(undisturbed: Outcome, digits: Landed, tmp_path: Path) -> None:
    """Kill -9 of a rank at a random step; the next attempt's weights, state and metrics are the same to the bit."""
    assert 0 == undisturbed.exit_code, undisturbed.log
    killed_after = random.randrange(5, 120)  # noqa: S311 (any step will do)
    arguments = job_arguments(digits, tmp_path, **OPTIONS)
    interrupt(arguments.checkpoints, start(2, arguments), killed_after)
    resumed = train(2, arguments)
    assert 0 == resumed.exit_code, resumed.log
    assert resumed.report.details["resumed_at_step"] >= killed_after
    for name, expected in undisturbed.variables.items():
        np.testing.assert_array_equal(expected, resumed.variables[name], err_msg=name)
    assert undisturbed.report.metrics == resumed.report.metrics


def interrupt(checkpoints: str, running: Running, after_step: int) -> None:
    """Kill a rank once a checkpoint from that step or later is there."""
    store = CheckpointStore(Path(checkpoints), keep=3)
    try:
        wait_until(lambda: (p := store.latest_position()) and p.step >= after_step, what="a checkpoint", timeout_s=90)
        running.send(signal.SIGKILL, 1)
        assert 0 != running.ended().exit_code
    finally:
        end_all(running)
