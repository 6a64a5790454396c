"""The run queue: any sequence of arrivals and ends keeps its rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from function_app.adapters.tables.runs import _queue_columns
from function_app.domain import run_queue
from function_app.domain.records import DatasetVersion
from function_app.domain.run_queue import QueueEntry, QueueRules, RunQueue, enqueue, forget_dropped, release
from tests.support.ledger_records import NOON, run_record

TEN = QueueRules(limit=10)
LATEST = QueueRules(limit=10, latest=frozenset({"digits"}))


def entry(number: int, pipeline: str = "digits", generation: int = 1, version: str = "v1") -> QueueEntry:
    """The place that a run asks for; the higher the number, the later its version closed."""
    dataset_version = DatasetVersion(dataset=pipeline, version=version)
    return QueueEntry.of(
        run_record(number, pipeline=pipeline, generation=generation, dataset_version=dataset_version)
    )


def queue_of(*entries: QueueEntry, rules: QueueRules = TEN) -> RunQueue:
    """The queue after some have arrived, in order."""
    result = RunQueue()
    for one in entries:
        result = enqueue(result, one, rules)
    return result


def trained(queue: RunQueue, rules: QueueRules) -> list[str]:
    """Whose turn comes, as one run after the other ends."""
    order = []
    while queue.running:
        order.append(queue.running[0].logical_run)
        queue = release(queue, order[-1], rules)
    return order


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
    assert [result] * 3 == [enqueue(result, entry(number), TEN) for number in (1, 2, 3)]


def test_pipelines_do_not_wait_for_each_other_below_the_limit() -> None:
    """Each has one place of its own."""
    result = queue_of(entry(1, "a"), entry(2, "b"), entry(3, "c"), rules=QueueRules(limit=2))
    assert (2, ["c"]) == (len(result.running), [one.pipeline for one in result.queued])


def test_the_oldest_place_in_line_starts_first() -> None:
    """The order of arrival does not matter; the successor of a replaced request keeps its place."""
    one = QueueRules(limit=1)
    result = queue_of(entry(1, "a"), entry(5, "c"), entry(3, "b"), entry(9, "b"), rules=one)
    result = release(result, entry(1).logical_run, one)
    assert ([entry(9).logical_run], ["c"]) == (names(result.running), [one.pipeline for one in result.queued])


def test_what_waited_is_dropped_where_that_is_asked_for() -> None:
    """Only earlier requests are dropped, not later ones."""
    before = queue_of(entry(1), entry(2))
    dropped = release(before, entry(1).logical_run, TEN, drop_queued_before=entry(2).asked_at, reason="canceled")
    kept = release(before, entry(1).logical_run, TEN, drop_queued_before=entry(1).asked_at, reason="canceled")
    assert ((), [entry(2).logical_run]) == (dropped.running, [one.logical_run for one in dropped.dropped])
    assert ([entry(2).logical_run], ()) == (names(kept.running), kept.dropped)


def test_the_end_of_a_queued_run_drops_nothing() -> None:
    """A person canceled what waited, not what runs."""
    result = release(
        queue_of(entry(1), entry(2)), entry(2).logical_run, TEN, drop_queued_before=NOON, reason="canceled"
    )
    assert ((entry(1),), (), ()) == (result.running, result.queued, result.dropped)


def test_a_dropped_run_is_forgotten_once_its_row_says_so() -> None:
    """The queue does not grow."""
    result = queue_of(entry(1), entry(2), entry(3))
    assert () == forget_dropped(result, [entry(2).logical_run]).dropped


def test_versions_wait_in_the_order_of_their_closing_whatever_the_order_of_arrival() -> None:
    """Each has a place; the line is that of the closings."""
    versions = [entry(number, version=f"v{number}") for number in range(1, 6)]
    first, *others = versions
    result = queue_of(first, *(others[number] for number in (2, 0, 3, 1)))
    assert [0, 1, 2, 3] == [result.num_before(one) for one in others]
    assert names(tuple(versions)) == trained(result, TEN)


def test_a_version_keeps_its_place_when_its_shards_change() -> None:
    """The newer generation is trained in the turn of the older one."""
    first, changed, other = entry(1), entry(2, version="v2"), entry(3, version="v3")
    newer = entry(4, version="v2", generation=2)
    result = queue_of(first, changed, other, newer)
    assert [one.logical_run for one in (first, newer, other)] == trained(result, TEN)
    assert [False] == [one.gives_up_version for one in result.dropped]


def test_with_latest_only_the_newest_version_waits_whatever_the_order_of_arrival() -> None:
    """The active run is left alone; who loses a place learns to which version."""
    first, second, newest, late = (entry(n, version=f"v{n}") for n in (1, 2, 4, 3))
    result = queue_of(first, second, newest, late, rules=LATEST)
    reason = f"digits/v4 is newer and took its place in line (when_busy: latest): {newest.first_run_id}"
    assert ((first,), [newest.logical_run]) == (result.running, names(result.queued))
    assert [(second.logical_run, reason, True), (late.logical_run, reason, True)] == [
        (one.logical_run, one.reason, one.gives_up_version) for one in result.dropped
    ]


def test_versions_that_wait_are_dropped_when_the_pipeline_is_changed_to_latest() -> None:
    """This happens at the next check, without a request."""
    result = run_queue.admit(queue_of(*(entry(n, version=f"v{n}") for n in range(1, 5))), LATEST)
    assert ([entry(4).logical_run], 2) == (names(result.queued), len(result.dropped))


def test_a_further_attempt_goes_before_every_version_and_loses_its_place_to_none() -> None:
    """It had to give its place up, because its pipeline was out of service: its training has begun."""
    for rules in (TEN, LATEST):
        again = replace(entry(9, version="v9"), continues=True)
        result = queue_of(entry(1), entry(2, version="v2"), again, entry(10, version="v10"), rules=rules)
        assert again.logical_run == trained(result, rules)[1]


def test_a_canceled_run_drops_what_waited_for_it_of_its_own_version() -> None:
    """Other versions are trained; where only the latest waits, nothing follows by itself."""
    for rules, dropped in ((TEN, ["v1"]), (LATEST, ["v1", "v2"])):
        same, other = entry(2), entry(3, version="v2")
        queue = replace(queue_of(entry(1), rules=rules), queued=(same, other))
        result = release(queue, entry(1).logical_run, rules, drop_queued_before=other.asked_at, reason="canceled")
        versions = {same.logical_run: "v1", other.logical_run: "v2"}
        assert (dropped, True) == (
            [versions[one.logical_run] for one in result.dropped],
            all(one.gives_up_version for one in result.dropped),
        )


def test_the_row_keeps_its_size_and_every_pipeline_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of the longest line asks again later; a pipeline that is idle starts."""
    monkeypatch.setattr(run_queue, "MAX_QUEUED", 3)
    result = queue_of(
        *(entry(n, version=f"v{n}") for n in (9, 8, 7, 6, 5)), entry(20, "b"), entry(21, "b", version="v2")
    )
    assert ["digits", "b"] == [one.pipeline for one in result.running]
    assert {entry(number).logical_run for number in (5, 6, 21)} == set(names(result.queued))


@pytest.mark.parametrize(("num_chars", "num_running"), [(10, 1000), (60, 600)])
def test_the_row_fits_into_a_row_of_azure_however_long_its_names_are(num_chars: int, num_running: int) -> None:
    """1 MiB, at two bytes for a character. The active runs stay, and the run that goes first is admitted."""
    long = [
        replace(entry(n, f"p{n:04}".ljust(num_chars, "x")), logical_run=f"landfall-{n:04}".ljust(4 * num_chars, "x"))
        for n in range(2001)
    ]
    first = replace(long[2000], continues=True)
    full = RunQueue(running=tuple(long[:num_running]), queued=tuple(long[num_running:2000]))
    result = enqueue(full, first, QueueRules(limit=num_running + 1))
    size = sum(2 * len(f"{name}{text}") for name, text in _queue_columns(result).items())
    assert size < (1 << 20) - 4096
    assert {*long[:num_running], first} == set(result.running)


def test_a_run_that_does_not_fit_into_the_row_runs_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again with each sweep, as one does that stands behind the longest line."""
    two = queue_of(entry(1, "a"), entry(2, "b"))
    monkeypatch.setattr(run_queue, "MAX_ROW_CHARS", 3 * run_queue._ENTRY_CHARS)  # and the names, of which two fit
    refused = enqueue(two, entry(3, "c"), TEN)
    admitted = enqueue(release(two, entry(1, "a").logical_run, TEN), entry(3, "c"), TEN)
    assert (two, ["b", "c"]) == (refused, [one.pipeline for one in admitted.running])


ARRIVALS = st.tuples(st.just("enter"), st.integers(1, 30), st.sampled_from("abc"))
ENDS = st.tuples(st.just("leave"), st.integers(0, 5), st.sampled_from("abc"))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(events=st.lists(st.one_of(ARRIVALS, ENDS), max_size=60), limit=st.integers(1, 3))
def test_no_sequence_breaks_the_rules(events: list[tuple[str, int, str]], limit: int) -> None:
    """Never two of a pipeline, never more than the limit, never idle while a run may start, none forgotten.

    A run that has no other before it starts when the run that it waits for ends.
    Versions of pipelines a and b wait in the order of their numbers; of c only the newest one waits.
    """
    result, asked, gone = RunQueue(), set[str](), set[str]()
    rules = QueueRules(limit=limit, latest=frozenset("c"))
    for kind, number, pipeline in events:
        if kind == "enter":
            at = NOON + timedelta(seconds=number)
            one = entry(number, pipeline, version=f"v{number // 2}", generation=1 + number % 2)
            one = replace(one, asked_at=at, waiting_since=at, logical_run=f"{pipeline}-{number}")
            if one.logical_run not in gone:
                asked.add(one.logical_run)
                result = enqueue(result, one, rules)
        elif result.running:
            ended = result.running[number % len(result.running)]
            gone.add(ended.logical_run)
            before, result = result, release(result, ended.logical_run, rules)
            starting = [one for one in result.running if not before.is_running(one.logical_run)]
            assert not any(
                other.pipeline == one.pipeline and other.place < one.place
                for one in starting
                for other in before.queued
            )
            awaited = [one for one in before.queued if before.running_of(one.pipeline) in (None, ended)]
            assert all(result.is_running(one.logical_run) for one in awaited if before.num_before(one) == 0)
        running, queued = ([one.pipeline for one in part] for part in (result.running, result.queued))
        versions = {(one.pipeline, one.version) for one in result.queued}
        assert (len(set(running)), True, len(result.queued), True) == (
            len(running),
            len(running) <= limit,
            len(versions),
            queued.count("c") <= 1,
        )
        assert [] == [p for p in queued if p not in running and len(running) < limit]
        known = {*names(result.running), *names(result.queued), *(one.logical_run for one in result.dropped)}
        assert asked == known | gone
