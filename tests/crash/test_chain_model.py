"""The model of the whole chain: no sequence of events breaks a promise, and a missing safeguard is detected."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from function_app.domain import jobs as planning
from function_app.domain import run_queue
from function_app.domain.jobs import JobSpec
from function_app.domain.records import (
    Generation,
    NotificationRecord,
    RunRecord,
    ShardRecord,
    ShardState,
    counter_change,
)
from function_app.domain.run_queue import QueueRules, RunQueue
from function_app.domain.run_states import RunState
from function_app.ingest import closing, layouts, list_layout, listed_layouts
from function_app.ingest.stored_shards import StoredShards, data_in_storage
from function_app.runs import admission, following, registration, submission
from function_app.runs import transitions as run_changes
from function_app.services import RunServices
from function_app.testing import ledger as memory_ledger
from function_app.testing.ledger import MemoryLedger
from shared import manifest
from shared.manifest import ManifestShard, fingerprint
from tests.crash.chain_model import (
    ChainModel,
    ListedChainModel,
    MarkedChainModel,
    QuietChainModel,
    walk,
)
from tests.crash.table_model import TableChainModel

WALKS = (*range(24), 25, 91)
"""Enough to detect each missing safeguard below."""
MORE_WALKS = [seed for seed in range(200) if seed not in WALKS]


def run_model(max_examples: int, kind: type[ChainModel] = ChainModel) -> None:
    """Let hypothesis draw sequences; it explains each one that breaks a promise."""
    limits = settings(
        max_examples=max_examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(kind, settings=limits)


def walk_all(kind: type[ChainModel] = ChainModel) -> None:
    """Run the walks of the gate."""
    for seed in WALKS:
        walk(seed, kind)


def test_the_chain_keeps_its_promises_in_every_sequence() -> None:
    """The promises hold after every step, and in the end nothing is left to do."""
    run_model(20)


def test_the_chain_keeps_its_promises_on_every_walk() -> None:
    """As in every sequence, but with rare interactions as likely as common ones."""
    walk_all()


def test_the_chain_keeps_its_promises_with_a_marker() -> None:
    """Files have no index, and a version is complete when a marker says so."""
    run_model(10, MarkedChainModel)
    for seed in WALKS[::2]:
        walk(seed, MarkedChainModel)


def test_the_chain_keeps_its_promises_with_a_list() -> None:
    """Each closing has exactly the files of one list."""
    run_model(10, ListedChainModel)
    for seed in WALKS[::4]:
        walk(seed, ListedChainModel)


def test_the_chain_keeps_its_promises_with_a_table() -> None:
    """Each closing has exactly the files of one commit, in the order of the log."""
    run_model(5, TableChainModel)
    for seed in WALKS[::4]:
        walk(seed, TableChainModel)


def test_the_chain_keeps_its_promises_where_quiet_closes_a_version() -> None:
    """Only the timer closes versions."""
    run_model(10, QuietChainModel)
    walk_all(QuietChainModel)


@pytest.mark.slow
def test_the_chain_keeps_its_promises_with_a_marker_on_many_more_walks() -> None:
    """Run ten times as many walks as the gate."""
    run_model(100, MarkedChainModel)
    for seed in MORE_WALKS:
        walk(seed, MarkedChainModel)


@pytest.mark.slow
def test_the_chain_keeps_its_promises_with_a_list_on_many_more_walks() -> None:
    """Run ten times as many walks as the gate."""
    run_model(100, ListedChainModel)
    for seed in MORE_WALKS:
        walk(seed, ListedChainModel)


@pytest.mark.slow
def test_the_chain_keeps_its_promises_with_a_table_on_many_more_walks() -> None:
    """Run ten times as many walks as the gate."""
    run_model(100, TableChainModel)
    for seed in MORE_WALKS:
        walk(seed, TableChainModel)


@pytest.mark.slow
def test_the_chain_keeps_its_promises_in_many_more_sequences() -> None:
    """Draw ten times as many sequences as the gate."""
    run_model(200)


@pytest.mark.slow
def test_the_chain_keeps_its_promises_on_many_more_walks() -> None:
    """Run ten times as many walks as the gate."""
    for seed in MORE_WALKS:
        walk(seed)


Break = Callable[[pytest.MonkeyPatch], None]


def every_run_is_admitted(patch: pytest.MonkeyPatch) -> None:
    """No run waits for its turn."""
    patch.setattr(submission, "admit", lambda *_, **__: True)


def a_duplicate_counts_again(patch: pytest.MonkeyPatch) -> None:
    """A recorded verdict is written and counted again."""
    patch.setattr(memory_ledger, "same_verdict", lambda *_: False)
    patch.setattr(memory_ledger, "counter_change", lambda _, shard: counter_change(None, shard))


def a_closing_overwrites(patch: pytest.MonkeyPatch) -> None:
    """A closing is written without a check for an earlier one."""

    def add_generation(ledger: MemoryLedger, generation: Generation) -> bool:
        ledger.generation_rows[generation.dataset_version, generation.number] = generation
        return True

    patch.setattr(MemoryLedger, "add_generation", add_generation)


def a_closing_names_its_run_twice(patch: pytest.MonkeyPatch) -> None:
    """The recorded name of the run is overwritten."""

    def claim_auto_run(ledger: MemoryLedger, generation: Generation, run_id: str) -> str:
        key = (generation.dataset_version, generation.number)
        ledger.generation_rows[key] = replace(ledger.generation_rows[key], auto_run_id=run_id)
        return run_id

    patch.setattr(MemoryLedger, "claim_auto_run", claim_auto_run)


def a_sender_does_not_claim(patch: pytest.MonkeyPatch) -> None:
    """A row of the outbox is written whatever its revision is."""
    patch.setattr(MemoryLedger, "save_notification", write_notification)


def the_outbox_overwrites(patch: pytest.MonkeyPatch) -> None:
    """An existing notification is added again and becomes pending again."""

    def add_notification(ledger: MemoryLedger, notification: NotificationRecord) -> bool:
        write_notification(ledger, notification)
        return True

    patch.setattr(MemoryLedger, "add_notification", add_notification)


def write_notification(ledger: MemoryLedger, notification: NotificationRecord) -> NotificationRecord:
    """Write a row of the outbox without a check for an earlier one or for its revision."""
    saved = replace(notification, revision=ledger._revision())
    ledger.notification_rows[notification.subject, notification.key] = saved
    return saved


def runs_go_back(patch: pytest.MonkeyPatch) -> None:
    """Neither the steps nor the ledger check the table of transitions."""
    patch.setattr(run_changes, "is_legal", lambda *_: True)
    patch.setattr(memory_ledger, "check_transition", lambda *_: None)


def the_last_writer_wins(patch: pytest.MonkeyPatch) -> None:
    """A run's row is written whatever its revision is."""

    def save_run(ledger: MemoryLedger, run: RunRecord) -> RunRecord:
        saved = ledger.run_rows[run.run_id] = replace(run, revision=ledger._revision())
        return saved

    patch.setattr(MemoryLedger, "save_run", save_run)


def a_place_is_not_released(patch: pytest.MonkeyPatch) -> None:
    """A run that has ended keeps its place in the queue."""
    patch.setattr(run_queue, "release", lambda queue, *_, **__: queue)


def a_repeated_submission_has_another_name(patch: pytest.MonkeyPatch) -> None:
    """The name depends on the number of submissions, not on what is trained on."""
    sent: set[str] = set()

    def spec_from_json(members: Any) -> JobSpec:
        spec = planning.spec_from_json(members)
        again = spec.name in sent
        sent.add(spec.name)
        return replace(spec, name=f"{spec.name}-again") if again else spec

    patch.setattr(submission, "spec_from_json", spec_from_json)


def a_repeated_registration_has_another_version(patch: pytest.MonkeyPatch) -> None:
    """The version does not follow from the run."""
    numbers = itertools.count(1)
    patch.setattr(registration, "model_version", lambda _: str(next(numbers)))


def a_cancellation_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A job that completes after its run was canceled counts as completed."""

    def as_asked(_: RunRecord, target: RunState) -> RunState:
        return target

    patch.setattr(run_changes, "_as_asked", as_asked)


def what_waited_for_a_canceled_run_starts(patch: pytest.MonkeyPatch) -> None:
    """Queued runs are not dropped."""
    release = run_queue.release

    def all_stay_queued(queue: RunQueue, name: str, rules: QueueRules, **_: Any) -> RunQueue:
        return release(queue, name, rules)

    patch.setattr(run_queue, "release", all_stay_queued)


def a_late_request_loses_its_turn(patch: pytest.MonkeyPatch) -> None:
    """A version is put in line without those that closed before it."""
    patch.setattr(submission, "_line_up_earlier", lambda *_: None)


def the_newest_request_takes_every_place(patch: pytest.MonkeyPatch) -> None:
    """Versions do not wait for their turn, whatever the pipeline says."""
    patch.setattr(admission, "_rules", lambda _: QueueRules(limit=10, latest=frozenset({"digits"})))


def the_fingerprint_ignores_content(patch: pytest.MonkeyPatch) -> None:
    """Size, CRC and number of records are ignored."""

    def blind(shards: Sequence[ManifestShard]) -> str:
        return fingerprint([replace(one, size_bytes=0, crc32c="00000000", num_records=0) for one in shards])

    patch.setattr(closing, "fingerprint", blind)
    patch.setattr(manifest, "fingerprint", blind)


def a_run_trains_on_whatever_lies_in_storage(patch: pytest.MonkeyPatch) -> None:
    """The submission records what is in storage, but compares it with nothing."""
    patch.setattr(
        submission, "data_in_storage", lambda *arguments: StoredShards(etags=data_in_storage(*arguments).etags)
    )


def an_unfinished_run_of_an_earlier_generation_is_taken_again(patch: pytest.MonkeyPatch) -> None:
    """The run has the same content as before, which other content has replaced meanwhile."""
    unspent = frozenset(RunState) - {RunState.FAILED, RunState.CANCELED, RunState.LOST}
    patch.setattr(submission, "TRAINED", unspent)


def a_deleted_shard_is_not_judged_again(patch: pytest.MonkeyPatch) -> None:
    """The verdict on a deleted shard keeps the ETag, so that its undeletion is not noticed."""

    def reject_gone(rows: Iterable[ShardRecord], services: RunServices) -> None:
        for row in rows:
            rejected = replace(row, state=ShardState.REJECTED, validated_at=services.clock())
            services.ledger.record_shard(rejected)

    patch.setattr(layouts, "reject_gone", reject_gone)
    patch.setattr(submission, "reject_gone", reject_gone)


def data_are_not_compared_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Changes while a job ran are ignored."""
    patch.setattr(following, "_changed_data", lambda *_: {})


BROKEN: tuple[Break, ...] = (
    every_run_is_admitted,
    a_duplicate_counts_again,
    a_closing_overwrites,
    a_closing_names_its_run_twice,
    a_sender_does_not_claim,
    the_outbox_overwrites,
    runs_go_back,
    the_last_writer_wins,
    a_place_is_not_released,
    a_repeated_submission_has_another_name,
    a_repeated_registration_has_another_version,
    a_cancellation_is_forgotten,
    what_waited_for_a_canceled_run_starts,
    a_late_request_loses_its_turn,
    the_newest_request_takes_every_place,
    the_fingerprint_ignores_content,
    a_run_trains_on_whatever_lies_in_storage,
    an_unfinished_run_of_an_earlier_generation_is_taken_again,
    a_deleted_shard_is_not_judged_again,
    data_are_not_compared_at_the_end,
)


@pytest.mark.slow
@pytest.mark.parametrize("take_away", BROKEN, ids=lambda take_away: take_away.__name__)
def test_a_safeguard_that_is_missing_is_noticed(take_away: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walks that pass with the whole chain fail without the safeguard."""
    take_away(monkeypatch)
    with pytest.raises(AssertionError):
        walk_all()


@pytest.mark.slow
def test_a_marker_that_counts_for_later_files_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a version would close while its writer is still working."""
    monkeypatch.setattr(listed_layouts.Listing, "_is_covered", lambda *_: True)
    with pytest.raises(AssertionError):
        walk_all(MarkedChainModel)


@pytest.mark.slow
def test_a_closing_without_a_listed_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise other files than those of the list would be trained on."""
    monkeypatch.setattr(list_layout.ListVersion, "_is_final", lambda *_: True)
    monkeypatch.setattr(list_layout.ListVersion, "are_full", lambda *_: True)
    with pytest.raises(AssertionError):
        walk_all(ListedChainModel)
