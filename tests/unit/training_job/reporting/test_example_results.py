"""Which examples are written where there are more than a file may have."""

from __future__ import annotations

import itertools

import pytest

from training_job.reporting.example_results import kept_examples


@pytest.mark.parametrize("number", [0, 1, 10, 100, 101, 999, 12_345])
def test_at_most_as_many_examples_are_kept_as_allowed_and_all_where_they_fit(number: int) -> None:
    """Ascending, each once, the same at each call, spread over all of them."""
    kept = list(kept_examples(number, 100))
    assert kept == sorted(set(kept)) == list(kept_examples(number, 100))
    assert len(kept) <= 100
    if number <= 100:
        assert list(range(number)) == kept
    else:
        assert len(kept) > 50
        assert kept[-1] < number
        assert max(after - before for before, after in itertools.pairwise(kept)) < 2 * -(-number // 100)


def test_a_period_of_the_data_does_not_decide_what_is_kept() -> None:
    """The left and the right eye of pairs are kept about as often."""
    odd = sum(index % 2 for index in kept_examples(100_000, 1000))
    assert 400 < odd < 600
