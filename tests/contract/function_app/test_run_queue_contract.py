"""The run queue: one row, replaced under its revision, in both ledgers."""

from __future__ import annotations

from dataclasses import replace

from function_app.domain.run_queue import MAX_QUEUED, Dropped, QueueEntry, QueueRules, RunQueue, enqueue
from function_app.ports import Ledger
from tests.support.ledger_records import run_record
from tests.support.threads import at_once


def entry(number: int, pipeline: str = "digits") -> QueueEntry:
    """Return a run's entry in the queue."""
    return QueueEntry.of(run_record(number, pipeline=pipeline))


def test_an_empty_queue_is_there_before_anything_was_written(ledger: Ledger) -> None:
    """The queue need not be created."""
    assert RunQueue() == ledger.run_queue()


def test_a_queue_is_returned_as_it_was_saved(ledger: Ledger) -> None:
    """Every member is kept; the caller learns what was there before."""
    queue = RunQueue(
        running=(entry(1),),
        queued=(entry(2), replace(entry(3, "faces"), continues=True)),
        dropped=(Dropped(logical_run="x", reason="é", gives_up_version=True),),
    )
    assert (RunQueue(), queue) == ledger.change_run_queue(lambda _: queue)
    assert (queue, queue) == ledger.change_run_queue(lambda before: before)
    assert queue == ledger.run_queue()


def test_of_twelve_that_want_the_only_place_one_gets_it(ledger: Ledger) -> None:
    """Twelve threads, one queue: one runs, one waits, ten lose their place, and none is forgotten."""

    def enter(number: int) -> None:
        ledger.change_run_queue(lambda queue: enqueue(queue, entry(number), QueueRules(limit=1)))

    at_once([lambda number=number: enter(number) for number in range(12)])  # type: ignore[misc]
    queue = ledger.run_queue()
    assert (1, 1, 10) == (len(queue.running), len(queue.queued), len(queue.dropped))


def test_a_thousand_pipelines_fit_into_the_row(ledger: Ledger) -> None:
    """As many pipelines as there may be files, each with an active run, and as many waiting runs as fit."""
    entries = tuple(entry(number, f"pipeline-{number:050}") for number in range(MAX_QUEUED))
    queue = enqueue(RunQueue(running=entries, queued=entries), entries[0], QueueRules(limit=MAX_QUEUED))
    ledger.change_run_queue(lambda _: queue)
    assert queue == ledger.run_queue()
