"""A training that is resumed with more or fewer ranks than it began with."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.manifest import FeatureSpec
from tests.ranks.ranks import Outcome, observed, program, train, variables
from tests.ranks.versions import ClosedVersion, job_arguments, write_version
from tests.support.example_bytes import example_bytes

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

NUM_RECORDS = 48
EPOCHS = 4
STEPS_OF_EPOCH = 4
"""Steps of twelve records each: an epoch uses each record once, without a remainder."""
STOOD_AT = 6
"""The number of steps at which it was stopped: in the middle of the second epoch."""
ROUNDING = 1e-5
"""Rounding error of weights and velocities up to 1, after ten steps summed in another order.

A float32 is off by 6e-8 of itself, a step adds a few such errors, and a momentum of 0.9 carries each on at most ten
times: 10 steps x 10 x a few 6e-8. One record that another step sees moves the weights a hundred times as far.
"""
PIXELS = np.random.default_rng(5).normal(size=(NUM_RECORDS, 4)).astype(np.float32)
FEATURES = (FeatureSpec(name="image", kind="float", shape=(2, 2, 1)), FeatureSpec(name="label", kind="int64"))


@dataclass(frozen=True, kw_only=True)
class World:
    """A number of ranks, and the batch size of each."""

    ranks: int
    batch: int

    @property
    def steps_of_epoch(self) -> int:
        """The steps of an epoch, which has no remainder in any of these worlds."""
        return NUM_RECORDS // (self.ranks * self.batch)


TWO, ONE = World(ranks=2, batch=6), World(ranks=1, batch=12)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A training that has ended, and the sorted records of its steps, over all ranks."""

    outcome: Outcome
    steps: list[list[int]]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> ClosedVersion:
    """A version of records that their labels identify, in shards of 5, 20 and 23."""
    payloads = [example_bytes({"image": PIXELS[n].tolist(), "label": n}) for n in range(NUM_RECORDS)]
    shards = {"train": [payloads[:5], payloads[5:25], payloads[25:]], "validation": [payloads[:7]]}
    return write_version(tmp_path_factory.mktemp("versions") / "numbered", shards, FEATURES)


def arguments(version: ClosedVersion, output: Path, world: World, **options: Any) -> Any:
    """The arguments of a linear model with momentum, of which every step changes the weights."""
    return job_arguments(
        version,
        output,
        epochs=EPOCHS,
        per_process_batch_size=world.batch,
        num_classes=NUM_RECORDS,
        model_module=program("linear"),
        optimizer="sgd",
        learning_rate=0.05,
        checkpoint_steps=1,
        **options,
    )


def stopped(version: ClosedVersion, output: Path, world: World, **options: Any) -> Path:
    """Train until the root is killed in the middle of an epoch; return the outputs."""
    job = arguments(version, output, world, **options)
    trap = variables(KILLED=f"0:{STOOD_AT + 1}:pointer")
    outcome = train(world.ranks, job, instead=[program("killed")], launcher=trap)
    assert 0 != outcome.exit_code, outcome.log
    position = outcome.pointer["position"]
    assert (1, 2, STOOD_AT) == (position["epoch"], position["step_of_epoch"], position["step"])
    return output


def ended(version: ClosedVersion, output: Path, world: World, **options: Any) -> Seen:
    """Continue a training from its outputs to the end."""
    seen = observed(world.ranks, arguments(version, output, world, **options))
    by_rank = [notes["labels"] for notes in seen.notes]
    return Seen(outcome=seen.outcome, steps=[sorted(chain(*parts)) for parts in zip(*by_rank, strict=True)])


@pytest.fixture(scope="module")
def undisturbed(version: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two ranks that were never stopped."""
    output = tmp_path_factory.mktemp("undisturbed")
    return ended(version, output, TWO)


@pytest.fixture(scope="module")
def stopped_two(version: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of two ranks that were stopped."""
    return stopped(version, tmp_path_factory.mktemp("stopped"), TWO)


def assert_later_epochs_show_each_record_once(seen: Seen, world: World, first: int) -> None:
    """Check the steps from ``first``, the first one after the epoch that was resumed."""
    later = list(chain(*seen.steps[first:]))
    epochs = [later[start : start + NUM_RECORDS] for start in range(0, len(later), NUM_RECORDS)]
    assert [list(range(NUM_RECORDS))] * (EPOCHS - 2) == [sorted(epoch) for epoch in epochs]
    assert (EPOCHS - 2) * world.steps_of_epoch == len(seen.steps[first:])


def assert_ended_as_planned(seen: Seen, world: World, *, lanes: int, steps: int) -> None:
    """Check that the position is the plan's: all epochs, and the total number of steps."""
    report, position = seen.outcome.report, seen.outcome.pointer["position"]
    assert (world.ranks, STOOD_AT) == (report.world_size, report.details["resumed_at_step"])
    assert [1, 2, 3, 4] == [epoch["epoch"] for epoch in report.epochs]
    assert {
        "epoch": EPOCHS,
        "step_of_epoch": 0,
        "step": steps,
        "num_lanes": lanes,
        "global_batch_size": world.ranks * world.batch,
    }.items() <= position.items()


@pytest.mark.parametrize("fewer", [True, False], ids=["two-then-one", "one-then-two"])
def test_with_the_same_global_batch_and_lanes_the_steps_are_those_of_a_run_that_was_never_stopped(
    version: ClosedVersion, undisturbed: Seen, stopped_two: Path, tmp_path: Path, *, fewer: bool
) -> None:
    """Each step has the same records and metrics; the weights differ only by rounding."""
    if fewer:
        world, output = ONE, shutil.copytree(stopped_two, tmp_path / "one")
        seen = ended(version, output, world)
    else:
        world, output = TWO, stopped(version, tmp_path / "two", ONE, num_lanes=2)
        seen = ended(version, output, world, num_lanes=2)
    assert_ended_as_planned(seen, world, lanes=2, steps=EPOCHS * STEPS_OF_EPOCH)
    assert undisturbed.steps[STOOD_AT:] == seen.steps
    assert_later_epochs_show_each_record_once(seen, world, 2 * STEPS_OF_EPOCH - STOOD_AT)
    assert undisturbed.outcome.report.metrics == pytest.approx(seen.outcome.report.metrics, rel=1e-4)
    for expected, found in zip(undisturbed.outcome.report.epochs, seen.outcome.report.epochs, strict=True):
        assert expected["loss"] == pytest.approx(found["loss"], rel=1e-4)
    assert undisturbed.outcome.variables.keys() == seen.outcome.variables.keys()
    for name, expected_values in undisturbed.outcome.variables.items():
        np.testing.assert_allclose(seen.outcome.variables[name], expected_values, rtol=0, atol=ROUNDING, err_msg=name)


def test_with_half_the_global_batch_the_epoch_goes_on_after_the_same_part_of_it(
    version: ClosedVersion, stopped_two: Path, tmp_path: Path
) -> None:
    """One of two ranks remains with its batch: two steps of twelve become four of six; later epochs are complete."""
    world = World(ranks=1, batch=6)
    seen = ended(version, shutil.copytree(stopped_two, tmp_path / "one"), world)
    assert_ended_as_planned(seen, world, lanes=1, steps=STOOD_AT + 4 + 2 * 8)
    assert_later_epochs_show_each_record_once(seen, world, 4)
    assert ended(version, tmp_path / "never stopped", world).steps[8 + 4 :] == seen.steps


def test_with_lanes_that_cannot_be_kept_the_epoch_goes_on_after_the_same_part_of_it(
    version: ClosedVersion, undisturbed: Seen, tmp_path: Path
) -> None:
    """Two ranks cannot share the one lane of one rank: the batch is the same, but in the order of two lanes."""
    output = stopped(version, tmp_path, ONE)
    seen = ended(version, output, TWO)
    assert_ended_as_planned(seen, TWO, lanes=2, steps=EPOCHS * STEPS_OF_EPOCH)
    assert_later_epochs_show_each_record_once(seen, TWO, 2)
    assert undisturbed.steps[STOOD_AT:] == seen.steps
