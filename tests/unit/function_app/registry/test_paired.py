"""The paired bootstrap: its intervals are those of the analysis where there is one, and the same at each try."""

from __future__ import annotations

import numpy as np
import pytest

from function_app.registry.paired import MAX_GROUPS, Scored, interval_of_auc, interval_of_mean

Z = 1.959964
"""Half of the 95 % interval of a normal distribution in standard errors."""


@pytest.mark.parametrize("number", [400, MAX_GROUPS + 30_000])
def test_the_interval_of_a_mean_is_that_of_the_central_limit_theorem(number: int) -> None:
    """Whether each example is drawn alone, or groups where there are many."""
    values = np.random.default_rng(1).normal(0.3, 2.0, number)
    found = interval_of_mean(values, seed=7)
    half = Z * values.std() / np.sqrt(number)
    assert (values.mean(), values.mean() - half, values.mean() + half) == pytest.approx(
        (found.value, found.low, found.high), abs=0.08 * half
    )


def test_the_interval_covers_the_true_difference_in_95_of_100_draws() -> None:
    """Paired accuracies with a known difference: model B is right on 3 % more of the examples, where A is wrong."""
    generator, covered, tries = np.random.default_rng(2), 0, 400
    for number in range(tries):
        drawn = generator.random(300)
        differences = np.where(drawn < 0.08, 1.0, np.where(drawn < 0.13, -1.0, 0.0))  # in truth 0.03
        found = interval_of_mean(differences, seed=number)
        covered += found.low <= 0.03 <= found.high
    assert 0.92 <= covered / tries <= 0.975


def test_the_interval_of_an_area_is_that_of_hanley_and_mcneil() -> None:
    """Scores of exponential distributions, for which their formula is exact."""
    generator = np.random.default_rng(3)
    labels = np.r_[np.ones(400), np.zeros(600)]
    scored = Scored(labels=labels, scores=generator.exponential(np.where(labels > 0, 3.0, 1.0)))
    found, area = interval_of_auc(scored, None, seed=1), 0.75
    pairs = area * (1 - area) + 399 * (area / (2 - area) - area**2) + 599 * (2 * area**2 / (1 + area) - area**2)
    half = Z * np.sqrt(pairs / (400 * 600))
    assert area == pytest.approx(found.value, abs=half)
    assert (half, half) == pytest.approx((found.value - found.low, found.high - found.value), rel=0.25)


def test_pairing_shows_a_difference_that_separate_intervals_would_hide() -> None:
    """The examples that are hard for both models weigh on neither."""
    hard = np.random.default_rng(4).normal(0, 1, 500)
    first, second = hard + 0.05, hard
    paired = interval_of_mean(first - second, seed=1)
    alone = interval_of_mean(first, seed=1)
    assert (True, True) == (paired.low > 0, alone.high - alone.low > 0.1)


def test_the_same_seed_gives_the_same_interval() -> None:
    """A repeated decision therefore has the same result."""
    values = np.random.default_rng(5).random(5_000)
    assert interval_of_mean(values, seed=3) == interval_of_mean(values, seed=3)
    scored = Scored(labels=(values > 0.5).astype(float), scores=values[::-1])
    assert interval_of_auc(scored, None, seed=3) == interval_of_auc(scored, None, seed=3)


def test_an_area_without_one_of_the_classes_is_a_half() -> None:
    """The training uses the same value."""
    scored = Scored(labels=np.ones(10), scores=np.arange(10.0))
    assert 0.5 == interval_of_auc(scored, None, seed=1).value
