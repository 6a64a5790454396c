"""Single flight, decided on one board: any sequence of arrivals and ends keeps its rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from function_app.domain.run_queue import Flight, FlightBoard, entered, left, settled
from tests.support.ledger_records import NOON, run_record


def flight(number: int, pipeline: str = "digits", generation: int = 1) -> Flight:
    """The place that a run asks for; the higher the number, the later it asks."""
    return Flight.of(run_record(number, pipeline=pipeline, generation=generation))


def board(*flights: Flight, limit: int = 10) -> FlightBoard:
    """The board after some have arrived, in order."""
    result = FlightBoard()
    for one in flights:
        result = entered(result, one, limit=limit)
    return result


def names(flights: tuple[Flight, ...]) -> list[str]:
    """Whose places these are."""
    return [one.logical_run for one in flights]


def test_the_first_run_of_a_pipeline_goes_at_once_and_the_next_is_armed() -> None:
    """One goes, one waits."""
    first, second = flight(1), flight(2)
    result = board(first, second)
    assert ((first,), (second,), ()) == (result.going, result.armed, result.dropped)


def test_a_later_request_takes_the_place_of_the_armed_one() -> None:
    """It keeps its place in line, and the one that lost it is named with the reason."""
    result = board(flight(1), flight(2), flight(3))
    (armed,), (dropped,) = result.armed, result.dropped
    assert (flight(3).logical_run, flight(2).waiting_since) == (armed.logical_run, armed.waiting_since)
    assert (flight(2).logical_run, f"a later request took its place while it waited: {flight(3).first_run_id}") == (
        dropped.logical_run,
        dropped.reason,
    )


def test_the_newest_generation_wins_also_where_it_comes_first() -> None:
    """A handler that was slow with an older generation does not undo a newer one."""
    newer, older = flight(2, generation=3), flight(3, generation=2)
    result = board(flight(1), newer, older)
    assert [newer.logical_run] == names(result.armed)
    assert f"superseded by generation 3 while it waited: {newer.first_run_id}" == result.dropped[0].reason


def test_asking_again_changes_nothing() -> None:
    """Whether it goes, waits, or lost its place."""
    result = board(flight(1), flight(2), flight(3))
    assert [result] * 3 == [entered(result, flight(number), limit=10) for number in (1, 2, 3)]


def test_pipelines_do_not_wait_for_each_other_below_the_limit() -> None:
    """Each has one place of its own."""
    result = board(flight(1, "a"), flight(2, "b"), flight(3, "c"), limit=2)
    assert (2, ["c"]) == (len(result.going), [one.pipeline for one in result.armed])


def test_the_oldest_place_in_line_starts_first() -> None:
    """Whatever the order of arrival; a replaced request's successor has its place."""
    result = board(flight(1, "a"), flight(5, "c"), flight(3, "b"), flight(9, "b"), limit=1)
    result = left(result, flight(1).logical_run, limit=1)
    assert ([flight(9).logical_run], ["c"]) == (names(result.going), [one.pipeline for one in result.armed])


def test_what_waited_is_disarmed_where_that_is_asked_for() -> None:
    """Only what was asked for until then; a later request is another decision."""
    before = board(flight(1), flight(2))
    disarmed = left(before, flight(1).logical_run, limit=10, disarm_before=flight(2).asked_at, reason="canceled")
    kept = left(before, flight(1).logical_run, limit=10, disarm_before=flight(1).asked_at, reason="canceled")
    assert ((), [flight(2).logical_run]) == (disarmed.going, [one.logical_run for one in disarmed.dropped])
    assert ([flight(2).logical_run], ()) == (names(kept.going), kept.dropped)


def test_the_end_of_an_armed_run_disarms_nothing() -> None:
    """A person canceled what waited, not what goes."""
    result = left(board(flight(1), flight(2)), flight(2).logical_run, limit=10, disarm_before=NOON, reason="canceled")
    assert ((flight(1),), (), ()) == (result.going, result.armed, result.dropped)


def test_a_dropped_run_is_forgotten_once_its_row_says_so() -> None:
    """The board does not grow."""
    result = board(flight(1), flight(2), flight(3))
    assert () == settled(result, [flight(2).logical_run]).dropped


ARRIVALS = st.tuples(st.just("enter"), st.integers(1, 30), st.sampled_from("abc"))
ENDS = st.tuples(st.just("leave"), st.integers(0, 5), st.sampled_from("abc"))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(events=st.lists(st.one_of(ARRIVALS, ENDS), max_size=60), limit=st.integers(1, 3))
def test_no_sequence_breaks_the_rules(events: list[tuple[str, int, str]], limit: int) -> None:
    """Never two of a pipeline, never more than the limit, never idle while somebody may start, nobody forgotten."""
    result, asked, gone = FlightBoard(), set[str](), set[str]()
    for kind, number, pipeline in events:
        if kind == "enter":
            one = replace(flight(number, pipeline), asked_at=NOON + timedelta(seconds=number))
            one = replace(one, logical_run=f"{pipeline}-{number}")
            if one.logical_run not in gone:
                asked.add(one.logical_run)
                result = entered(result, one, limit=limit)
        elif result.going:
            name = result.going[number % len(result.going)].logical_run
            gone.add(name)
            result = left(result, name, limit=limit)
        going, armed = ([one.pipeline for one in part] for part in (result.going, result.armed))
        assert (len(set(going)), len(set(armed)), True) == (len(going), len(armed), len(going) <= limit)
        assert [] == [p for p in armed if p not in going and len(going) < limit]
        known = {*names(result.going), *names(result.armed), *(one.logical_run for one in result.dropped)}
        assert asked == known | gone
