"""Who is to be named when nothing goes on any more."""

from __future__ import annotations

from collections.abc import Iterable

from training_job.survival.roll_call import Beat, RollCall


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def beat(rank: int, count: int, place: str = "step") -> Beat:
    return Beat(rank=rank, count=count, place=place, step=count // 2, host=f"node{rank}", process_id=100 + rank)


def watched(timeout_s: float = 10, awaited: Iterable[int] = ()) -> tuple[RollCall, Clock]:
    clock = Clock()
    return RollCall(timeout_s, awaited, clock), clock


def hear(roll: RollCall, clock: Clock, seconds: int, *beats: Beat) -> None:
    """Hear the same beats every second."""
    for _ in range(seconds):
        clock.now += 1
        for each in beats:
            roll.heard(each)


def test_all_is_well_while_ranks_move() -> None:
    """A hundred seconds of steps."""
    roll, clock = watched()
    for count in range(100):
        hear(roll, clock, 1, beat(0, count), beat(1, count))
        assert roll.verdict() is None


def test_a_silent_rank_is_named_with_its_node_and_where_it_was() -> None:
    """After the timeout, not before."""
    roll, clock = watched()
    roll.heard(beat(1, 8))
    hear(roll, clock, 10, beat(0, 8))
    assert roll.verdict() is None
    hear(roll, clock, 1, beat(0, 8))
    assert "Nothing was heard of rank 1 (host node1, process 101) for 11 s; it was in 'step' after step 4." in (
        roll.verdict() or ""
    )


def test_a_rank_that_lives_but_does_not_move_is_named() -> None:
    """The root waits in a step that rank 1 never comes to."""
    roll, clock = watched()
    hear(roll, clock, 13, beat(0, 9), beat(1, 8, "reading"))
    assert (roll.verdict() or "").startswith("rank 1 (host node1, process 101) has been in 'reading' after step 4")


def test_ranks_that_all_stand_still_in_one_place_blame_what_is_between_them() -> None:
    """Nobody is behind."""
    roll, clock = watched()
    hear(roll, clock, 13, beat(0, 9), beat(1, 9))
    assert "All 2 ranks have been in 'step' after step 4" in (roll.verdict() or "")


def test_a_rank_that_still_moves_is_no_standstill() -> None:
    """One slow reader that gets on is not stuck, however long another waits for it."""
    roll, clock = watched()
    for count in range(30):
        hear(roll, clock, 1, beat(0, 99), beat(1, count, "reading"))
    assert roll.verdict() is None


def test_compiling_and_exporting_may_take_ten_times_as_long() -> None:
    """But not for ever."""
    roll, clock = watched()
    hear(roll, clock, 100, beat(0, 9, "export"), beat(1, 9, "export"))
    assert roll.verdict() is None
    hear(roll, clock, 3, beat(0, 9, "export"), beat(1, 9, "export"))
    assert roll.verdict() is not None


def test_ranks_that_were_never_heard_of_are_named_once_the_others_stand_still() -> None:
    """After the timeout also where the others have all the time in the world: living ranks beat from the start."""
    roll, clock = watched(awaited=range(4))
    hear(roll, clock, 10, beat(0, 1, "start"), beat(2, 1, "start"))
    assert roll.verdict() is None
    hear(roll, clock, 2, beat(0, 1, "start"), beat(2, 1, "start"))
    assert (roll.verdict() or "").startswith(
        "Nothing was ever heard of ranks 1, 3 since the ranks met, "
        "and the others have stood still for 10 s, in 'start'."
    )


def test_a_rank_that_was_never_heard_of_is_alive_while_the_others_move() -> None:
    """No step is taken without it."""
    roll, clock = watched(awaited=range(2))
    for count in range(100):
        hear(roll, clock, 1, beat(0, count))
        assert roll.verdict() is None


def test_a_rank_that_was_awaited_and_came_is_not_missing() -> None:
    """Its own silence or standstill is judged from then on."""
    roll, clock = watched(awaited=range(2))
    hear(roll, clock, 1, beat(0, 1, "start"), beat(1, 1, "start"))
    hear(roll, clock, 50, beat(0, 1, "start"), beat(1, 1, "start"))
    assert roll.verdict() is None
