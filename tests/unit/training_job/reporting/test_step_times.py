"""How long steps take."""

from __future__ import annotations

import pytest

from training_job.reporting.step_times import KEPT_STEPS, TIMING_WARM_UP_STEPS, StepTimes


def after_warm_up() -> StepTimes:
    times = StepTimes(64)
    for _ in range(TIMING_WARM_UP_STEPS):
        times.note(wait_s=5, step_s=50)
    return times


def test_steps_of_the_timing_warm_up_are_not_timed() -> None:
    """Tracing and compiling say nothing about the machines."""
    times = after_warm_up()
    assert (None, {}) == (times.images_per_s, times.summary())


def test_throughput_counts_waiting_and_computing() -> None:
    """64 images in half a second."""
    times = after_warm_up()
    times.note(wait_s=0.1, step_s=0.4)
    assert pytest.approx(128) == times.images_per_s


def test_percentiles_are_of_computing_and_the_wait_is_a_share() -> None:
    """A hundred steps of 1 to 100 ms, each after as long a wait for data."""
    times = after_warm_up()
    for ms in range(1, 101):
        times.note(wait_s=ms / 1e3, step_s=ms / 1e3)
    expected = {"timed_steps": 100, "p50_ms": 50.5, "p90_ms": 90.1, "p99_ms": 99.01, "input_wait_share": 0.5}
    assert expected == times.summary()


def test_an_epochs_own_time_starts_where_the_last_one_ended() -> None:
    """Its steps and nothing else, warm-up included."""
    times = StepTimes(10)
    times.note(wait_s=1, step_s=1)
    assert {"duration_s": 2.0, "images_per_s": 5.0} == times.take_epoch()
    times.note(wait_s=0, step_s=1)
    assert {"duration_s": 1.0, "images_per_s": 10.0} == times.take_epoch()


def test_memory_is_bounded() -> None:
    """The newest steps are kept, however many there are."""
    times = after_warm_up()
    for _ in range(KEPT_STEPS + 1):
        times.note(wait_s=0, step_s=1)
    assert times.summary()["timed_steps"] <= KEPT_STEPS
