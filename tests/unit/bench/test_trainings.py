"""What the training benchmarks compute from measurements; the trainings themselves are not run here."""

from __future__ import annotations

import importlib

import pytest

from bench.__main__ import BENCHMARKS, chosen_of
from bench.benchmarks.training import MAX_GROWTH_BYTES, growth_over
from bench.figures import BenchmarkError
from bench.trainings import MAX_OTHERS_SHARE, MAX_ROUNDS, ROUNDS, Turn, undisturbed

MIB = 1 << 20


def turn(step_s: float, others_share: float = 0.0) -> Turn:
    return Turn(step_s=step_s, cpu_s=step_s, others_share=others_share, resident_bytes=0)


def test_a_round_that_others_disturbed_counts_for_neither() -> None:
    """This holds even if only one of the two was disturbed; its duration does not matter."""
    rounds = [[turn(0.1), turn(0.1, MAX_OTHERS_SHARE + 0.01)], *[[turn(9.0), turn(8.0)]] * ROUNDS]
    assert [[turn(9.0)] * ROUNDS, [turn(8.0)] * ROUNDS] == undisturbed(iter(rounds))


def test_no_round_is_taken_that_is_not_needed() -> None:
    """Time on a quiet machine is dear."""
    rounds = iter([[turn(1.0)]] * (ROUNDS + 1))
    undisturbed(rounds)
    assert [[turn(1.0)]] == list(rounds)


def test_a_busy_machine_gives_no_figure() -> None:
    """It says what it saw instead."""
    with pytest.raises(BenchmarkError, match=f"of {MAX_ROUNDS} rounds only 0 had at least 97%"):
        undisturbed(iter([[turn(1.0, 0.5)]] * MAX_ROUNDS))


def test_memory_that_goes_up_and_down_does_not_grow() -> None:
    """A checkpoint's arrays come and go."""
    assert 0.0 == growth_over([100 * MIB, 104 * MIB] * 10, epochs=20)


def test_one_late_allocation_is_no_growth() -> None:
    """A buffer that is made once and kept is not made again."""
    assert 0.0 == growth_over([100 * MIB] * 14 + [130 * MIB] * 6, epochs=20)


def test_what_grows_with_every_step_is_growth() -> None:
    """One image batch of that training, kept at every step."""
    batch_bytes, steps_of_epoch = 16 * 16 * 16 * 3 * 4, 50
    readings = [500 * MIB + epoch * steps_of_epoch * batch_bytes for epoch in range(20)]
    assert MAX_GROWTH_BYTES < 40 * MIB < growth_over(readings, epochs=20)


def test_a_family_of_benchmarks_goes_by_its_first_words() -> None:
    """`training` is all of them, `train` is none, no name is all of them."""
    names = ["latency", "training_input", "training_loop"]
    assert names[1:] == chosen_of(names, "training")
    assert (["latency"], [], names) == (
        chosen_of(names, "latency"),
        chosen_of(names, "train"),
        chosen_of(names, None),
    )


@pytest.mark.parametrize("place", BENCHMARKS.values())
def test_every_name_belongs_to_a_function(place: str) -> None:
    """A wrong entry would otherwise show only when its benchmark runs."""
    module, _, function = place.partition(".")
    assert callable(getattr(importlib.import_module(f"bench.benchmarks.{module}"), function))
