"""Two writers of the tables in every order of their requests: none of them allows what a lost ETag would.

Concurrent threads overlap by chance; here each request to storage is a turn, and the order of the turns is set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from function_app.adapters.connections import StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.adapters.tables.client import Tables
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DeadLetterState, NotificationState, ShardState
from function_app.domain.run_queue import QueueEntry, QueueRules, enqueue
from function_app.domain.run_states import RunState
from tests.support.interleaving import Turns
from tests.support.ledger_records import (
    DIGITS,
    dead_letter_record,
    generation_record,
    notification_record,
    run_record,
    shard_record,
)

pytestmark = pytest.mark.azurite

ORDERS = [
    pytest.param(order, marks=[] if sum(order) == len(order) // 2 else [pytest.mark.slow])
    for order in itertools.product((0, 1), repeat=4)
]
"""Who is next, for the first four requests; then they alternate. The gate tries the balanced orders."""
RUN, NOTE, LETTER = run_record(), notification_record(), dead_letter_record()

Write = Callable[[], object]


class Together:
    """Two writers of one ledger."""

    def __init__(self, ledger: TableLedger, turns: Turns, order: tuple[int, ...]) -> None:
        self.ledger = ledger
        self._turns = turns
        self._order = order

    def write(self, *writes: Write) -> tuple[list[object], int]:
        """Run both to their ends; return their results, and how many found that the other was first."""
        answers: list[object] = [None] * len(writes)

        def body(number: int) -> None:
            answers[number] = writes[number]()

        raised = self._turns.run([partial(body, number) for number in range(len(writes))], self._order)
        for error in raised:
            if not isinstance(error, LedgerConflictError):
                raise error
        return answers, len(raised)


@pytest.fixture(params=ORDERS, ids=lambda order: "".join(map(str, order)))
def together(
    request: pytest.FixtureRequest, host_storage: StorageConnection, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Together:
    """A ledger with its tables created, in which every request waits for its turn."""
    ledger, turns = TableLedger(host_storage, prefix=unique), Turns()

    def in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda tables, *arguments, **named: turns.around(None, lambda: method(tables, *arguments, **named))

    for name in ("get", "commit"):
        monkeypatch.setattr(Tables, name, in_turn(getattr(Tables, name)))
    return Together(ledger, turns, request.param)


def test_two_counts_are_two(together: Together, host_storage: StorageConnection, unique: str) -> None:
    """Neither overwrites the other."""
    together.write(*[lambda: together.ledger.count("uploads", "today")] * 2)
    rows = host_storage.table_service.get_table_client(f"{unique}notes").list_entities()
    assert [("count|uploads", "today", 2)] == [(row["PartitionKey"], row["key"], row["number"].value) for row in rows]


@pytest.mark.parametrize("is_first", [False, True])
def test_one_shard_twice_counts_once_and_two_of_a_bucket_twice(together: Together, *, is_first: bool) -> None:
    """The counter equals the rows, in every order."""
    ledger = together.ledger
    together.write(*[lambda: ledger.record_shard(shard_record(0), is_first=is_first)] * 2)
    together.write(*[partial(ledger.record_shard, shard_record(index), is_first=is_first) for index in (16, 32)])
    assert 3 == ledger.accepted_in_bucket(DIGITS, "train", 0)


def test_shards_together_and_alone_are_all_counted(together: Together) -> None:
    """First verdicts are recorded in one transaction, beside another writer of their counter or of their rows."""
    ledger, pair = together.ledger, [shard_record(0), shard_record(16)]
    together.write(lambda: ledger.record_first_verdicts(pair), lambda: ledger.record_shard(shard_record(32)))
    again = [shard_record(48), shard_record(0, etag="0X2")]
    (left, _), _ = together.write(lambda: ledger.record_first_verdicts(again), lambda: ledger.record_shard(pair[1]))
    assert (None, 3, 3) == (left, ledger.accepted_in_bucket(DIGITS, "train", 0), len(list(ledger.shards(DIGITS))))


@pytest.mark.parametrize("is_first", [False, True])
def test_contradicting_verdicts_leave_the_counter_of_the_one_that_stands(
    together: Together, *, is_first: bool
) -> None:
    """One accepts and one rejects the same position: the counter follows the verdict that is kept."""
    ledger = together.ledger
    bad = shard_record(0, etag="0X2", state=ShardState.REJECTED)
    together.write(*[partial(ledger.record_shard, shard, is_first=is_first) for shard in (shard_record(0), bad)])
    accepted = sum(row.state is ShardState.ACCEPTED for row in ledger.shards(DIGITS))
    assert accepted == ledger.accepted_in_bucket(DIGITS, "train", 0)


def test_of_two_that_enter_none_is_forgotten(together: Together) -> None:
    """One runs, the other one is queued."""

    def enter(number: int) -> None:
        together.ledger.change_run_queue(
            lambda queue: enqueue(queue, QueueEntry.of(run_record(number)), QueueRules(limit=1))
        )

    together.write(partial(enter, 1), partial(enter, 2))
    queue = together.ledger.run_queue()
    assert (1, 1, 0) == (len(queue.running), len(queue.queued), len(queue.dropped))


def test_of_two_that_move_a_run_one_wins(together: Together) -> None:
    """The other one gets a conflict, and the row is the winner's."""
    ledger = together.ledger
    ledger.add_run(RUN)
    (read,) = ledger.runs()
    moved = [replace(read, state=state) for state in (RunState.SUBMITTING, RunState.CANCELED)]
    saved, conflicts = together.write(*[partial(ledger.save_run, run) for run in moved])
    assert (1, ledger.runs()) == (conflicts, [run for run in saved if run is not None])


def test_of_two_that_send_a_notification_one_has_claimed_it(together: Together) -> None:
    """Otherwise both would send."""
    ledger = together.ledger
    ledger.add_notification(NOTE)
    (read,) = ledger.notifications(NOTE.subject)
    claimed = replace(read, state=NotificationState.SENDING)
    saved, conflicts = together.write(*[lambda: ledger.save_notification(claimed)] * 2)
    assert (1, ledger.notifications(NOTE.subject)) == (conflicts, [row for row in saved if row is not None])


def test_of_two_that_replay_a_letter_one_has_written_it_down(together: Together) -> None:
    """No replay is lost from the count."""
    ledger = together.ledger
    ledger.add_dead_letter(LETTER)
    (read,) = ledger.dead_letters()
    replayed = replace(read, state=DeadLetterState.REPLAYED, num_replays=1)
    saved, conflicts = together.write(*[lambda: ledger.save_dead_letter(replayed)] * 2)
    assert (1, ledger.dead_letters()) == (conflicts, [letter for letter in saved if letter is not None])


def test_what_is_inserted_twice_is_one_callers(together: Together) -> None:
    """A run, a closing, a notification, a letter: one of two calls returns that it is the owner."""
    ledger = together.ledger
    inserts: list[Write] = [
        lambda: ledger.add_run(RUN),
        lambda: ledger.add_generation(generation_record()),
        lambda: ledger.add_notification(NOTE),
        lambda: ledger.add_dead_letter(LETTER),
    ]
    answers = [together.write(insert, insert)[0] for insert in inserts]
    assert [[False, True]] * len(inserts) == [sorted(map(bool, pair)) for pair in answers]


def test_a_closing_has_one_name_for_its_run(together: Together) -> None:
    """Both callers get the same name."""
    ledger = together.ledger
    ledger.add_generation(generation_record())
    names, _ = together.write(*[partial(ledger.claim_auto_run, generation_record(), name) for name in ("a", "b")])
    latest = ledger.latest_generation(DIGITS)
    assert latest is not None
    assert [latest.auto_run_id] * 2 == names


def test_a_split_has_one_size(together: Together) -> None:
    """Two callers claim it and two move it; all calls return the recorded size."""
    ledger = together.ledger
    claimed, _ = together.write(*[partial(ledger.claim_split_size, DIGITS, "train", size) for size in (2, 3)])
    assert [ledger.split_sizes(DIGITS)["train"]] * 2 == claimed
    held = ledger.split_sizes(DIGITS)["train"]
    moved, _ = together.write(
        *[partial(ledger.move_split_size, DIGITS, "train", held=held, num_shards=size) for size in (7, 8)]
    )
    assert [ledger.split_sizes(DIGITS)["train"]] * 2 == moved


def test_a_run_that_is_canceled_has_no_further_attempt(together: Together) -> None:
    """Either the attempt exists and the cancellation gets a conflict, or the other way round."""
    ledger = together.ledger
    ledger.add_run(replace(RUN, state=RunState.RUNNING))
    (read,) = ledger.runs()
    following = run_record(2, run_id=f"{RUN.logical_run}-a2", logical_run=RUN.logical_run, attempt=2)
    _, conflicts = together.write(
        lambda: ledger.save_run(replace(read, state=RunState.CANCELED)),
        lambda: ledger.add_attempt(replace(read, state=RunState.FAILED, next_run_id=following.run_id), following),
    )
    states = {run.run_id: run.state for run in ledger.runs()}
    followed = {RUN.run_id: RunState.FAILED, following.run_id: RunState.PLANNED}
    assert (1, True) == (conflicts, states in (followed, {RUN.run_id: RunState.CANCELED}))
