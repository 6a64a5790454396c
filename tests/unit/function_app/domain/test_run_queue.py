"""The run queue: any sequence of arrivals and ends keeps its rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from function_app.domain.run_queue import QueueEntry, RunQueue, enqueue, forget_dropped, release
from tests.support.ledger_records import NOON, run_record


def entry(number: int, pipeline: str = "digits", generation: int = 1) -> QueueEntry:
    """The place that a run asks for; the higher the number, the later it asks."""
    return QueueEntry.of(run_record(number, pipeline=pipeline, generation=generation))


def queue_of(*entries: QueueEntry, limit: int = 10) -> RunQueue:
    """The queue after some have arrived, in order."""
    result = RunQueue()
    for one in entries:
        result = enqueue(result, one, limit=limit)
    return result


def names(entries: tuple[QueueEntry, ...]) -> list[str]:
    """Whose places these are."""
    return [one.logical_run for one in entries]


def test_the_first_run_of_a_pipeline_runs_at_once_and_the_next_is_queued() -> None:
    """One runs, one waits."""
    first, second = entry(1), entry(2)
    result = queue_of(first, second)
    assert ((first,), (second,), ()) == (result.running, result.queued, result.dropped)


def test_a_later_request_takes_the_place_of_the_queued_one() -> None:
    """It keeps its place in line, and the one that lost it is named with the reason."""
    result = queue_of(entry(1), entry(2), entry(3))
    (queued,), (dropped,) = result.queued, result.dropped
    assert (entry(3).logical_run, entry(2).waiting_since) == (queued.logical_run, queued.waiting_since)
    assert (entry(2).logical_run, f"a later request took its place while it was queued: {entry(3).first_run_id}") == (
        dropped.logical_run,
        dropped.reason,
    )


def test_the_newest_generation_wins_also_where_it_comes_first() -> None:
    """A handler that was slow with an older generation does not undo a newer one."""
    newer, older = entry(2, generation=3), entry(3, generation=2)
    result = queue_of(entry(1), newer, older)
    assert [newer.logical_run] == names(result.queued)
    assert f"superseded by generation 3 while it was queued: {newer.first_run_id}" == result.dropped[0].reason


def test_asking_again_changes_nothing() -> None:
    """Whether it runs, waits, or lost its place."""
    result = queue_of(entry(1), entry(2), entry(3))
    assert [result] * 3 == [enqueue(result, entry(number), limit=10) for number in (1, 2, 3)]


def test_pipelines_do_not_wait_for_each_other_below_the_limit() -> None:
    """Each has one place of its own."""
    result = queue_of(entry(1, "a"), entry(2, "b"), entry(3, "c"), limit=2)
    assert (2, ["c"]) == (len(result.running), [one.pipeline for one in result.queued])


def test_the_oldest_place_in_line_starts_first() -> None:
    """Whatever the order of arrival; a replaced request's successor has its place."""
    result = queue_of(entry(1, "a"), entry(5, "c"), entry(3, "b"), entry(9, "b"), limit=1)
    result = release(result, entry(1).logical_run, limit=1)
    assert ([entry(9).logical_run], ["c"]) == (names(result.running), [one.pipeline for one in result.queued])


def test_what_waited_is_dropped_where_that_is_asked_for() -> None:
    """Only what was asked for until then; a later request is another matter."""
    before = queue_of(entry(1), entry(2))
    dropped = release(before, entry(1).logical_run, limit=10, drop_queued_before=entry(2).asked_at, reason="canceled")
    kept = release(before, entry(1).logical_run, limit=10, drop_queued_before=entry(1).asked_at, reason="canceled")
    assert ((), [entry(2).logical_run]) == (dropped.running, [one.logical_run for one in dropped.dropped])
    assert ([entry(2).logical_run], ()) == (names(kept.running), kept.dropped)


def test_the_end_of_a_queued_run_drops_nothing() -> None:
    """A person canceled what waited, not what runs."""
    result = release(
        queue_of(entry(1), entry(2)), entry(2).logical_run, limit=10, drop_queued_before=NOON, reason="canceled"
    )
    assert ((entry(1),), (), ()) == (result.running, result.queued, result.dropped)


def test_a_dropped_run_is_forgotten_once_its_row_says_so() -> None:
    """The queue does not grow."""
    result = queue_of(entry(1), entry(2), entry(3))
    assert () == forget_dropped(result, [entry(2).logical_run]).dropped


ARRIVALS = st.tuples(st.just("enter"), st.integers(1, 30), st.sampled_from("abc"))
ENDS = st.tuples(st.just("leave"), st.integers(0, 5), st.sampled_from("abc"))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(events=st.lists(st.one_of(ARRIVALS, ENDS), max_size=60), limit=st.integers(1, 3))
def test_no_sequence_breaks_the_rules(events: list[tuple[str, int, str]], limit: int) -> None:
    """Never two of a pipeline, never more than the limit, never idle while a run may start, none forgotten."""
    result, asked, gone = RunQueue(), set[str](), set[str]()
    for kind, number, pipeline in events:
        if kind == "enter":
            one = replace(entry(number, pipeline), asked_at=NOON + timedelta(seconds=number))
            one = replace(one, logical_run=f"{pipeline}-{number}")
            if one.logical_run not in gone:
                asked.add(one.logical_run)
                result = enqueue(result, one, limit=limit)
        elif result.running:
            name = result.running[number % len(result.running)].logical_run
            gone.add(name)
            result = release(result, name, limit=limit)
        running, queued = ([one.pipeline for one in part] for part in (result.running, result.queued))
        assert (len(set(running)), len(set(queued)), True) == (len(running), len(queued), len(running) <= limit)
        assert [] == [p for p in queued if p not in running and len(running) < limit]
        known = {*names(result.running), *names(result.queued), *(one.logical_run for one in result.dropped)}
        assert asked == known | gone
