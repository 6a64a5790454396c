"""Waiting for the end of a storm: sweeps count, and seconds only where no sweep ends any more."""

from __future__ import annotations

import itertools

from tests.chaos.patience import LONGEST_SWEEP_S, TURNS, Patience


def test_a_busy_machine_may_take_as_long_as_it_likes_for_its_sweeps() -> None:
    """Each look is ten minutes later; the fourth sweep in vain is one too many."""
    ended, seconds = itertools.count(), itertools.count(0, 600)
    patience = Patience(ended=lambda: next(ended), sweeps=3, clock=lambda: float(next(seconds)))
    assert [False, False, False, False, True] == [patience.is_over(1) for _ in range(5)]
    assert "4 sweeps" in str(patience)


def test_what_gets_less_is_waited_for() -> None:
    """Sweeps are counted from the last time that fewer things were left; the same number again is no progress."""
    ended = itertools.count()
    patience = Patience(ended=lambda: next(ended), sweeps=2, clock=lambda: 0.0)
    assert [False] * 4 + [True] == [patience.is_over(left) for left in (5, 4, 5, 4, 4)]


def test_work_is_waited_for_though_more_is_left_than_at_first() -> None:
    """Late events lead to messages; once nothing more is handled, sweeps count."""
    ended = itertools.count()
    patience = Patience(ended=lambda: next(ended), sweeps=2, clock=lambda: 0.0)
    looks = [(1, 10), (87, 10), (87, 11), (88, 12), (87, 13), (87, 13), (87, 13), (87, 13)]
    assert [False] * 7 + [True] == [patience.is_over(left, done) for left, done in looks]


def test_work_that_goes_round_in_circles_is_none() -> None:
    """A message that is sent again whenever it was handled."""
    ended = itertools.count()
    patience = Patience(ended=lambda: next(ended), sweeps=2, clock=lambda: 0.0)
    assert TURNS + 3 == next(look for look in itertools.count() if patience.is_over(1, look))


def test_without_the_end_of_a_sweep_it_is_over() -> None:
    """A host that is dead or hangs."""
    now = [0.0]
    patience = Patience(ended=lambda: 7, sweeps=90, clock=lambda: now[0])
    now[0] = LONGEST_SWEEP_S
    assert not patience.is_over(1)
    now[0] += 1
    assert patience.is_over(1)
