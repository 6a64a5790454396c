"""The compare-and-swap loop of the table ledger."""

from __future__ import annotations

import pytest

from function_app.adapters.tables.client import MAX_BACKOFF_S, MAX_TRIES, tries
from function_app.domain.errors import LedgerConflictError


def test_the_first_try_comes_at_once() -> None:
    """A caller without competition does not wait."""
    pauses: list[float] = []
    assert (0, []) == (next(tries("shard", sleep=pauses.append)), pauses)


def test_tries_end_in_a_conflict_after_bounded_pauses() -> None:
    """It says what was being done; pauses never exceed their limit."""
    pauses: list[float] = []
    with pytest.raises(LedgerConflictError, match="digits/v1/train-00000: other writers kept winning, 24 times"):
        list(tries("digits/v1/train-00000", sleep=pauses.append))
    assert len(pauses) == MAX_TRIES - 1
    assert max(pauses) <= MAX_BACKOFF_S
