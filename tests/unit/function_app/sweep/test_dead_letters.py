"""Dead letters: taken to the ledger with their error, sent again on request."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from azure.functions.queue import QueueMessage

from function_app.domain.errors import NotFoundError, ReplayRefusedError, ServiceUnavailableError
from function_app.domain.events import (
    RUN_CHANGED,
    SHARD_UPLOADED,
    TRAINING_REQUESTED,
    TrainingRequest,
    read_run_ids,
)
from function_app.domain.records import DeadLetter, DeadLetterState, HistoryEntry, Undelivered
from function_app.domain.run_states import RunState
from function_app.functions import failures_on_record
from function_app.runs.following import handle_run_event
from function_app.sweep.dead_letters import (
    NO_ERROR_KNOWN,
    collect_dead_letters,
    failures_of,
    record_failure,
    replay,
)
from function_app.testing.ledger import MemoryLedger
from tests.support.ledger_records import NOON
from tests.support.world import TRAIN_SHARDS, VERSION, World

PATH = f"digits/v1/{TRAIN_SHARDS[0]}"
UPLOAD = json.dumps({
    "id": "e1",
    "eventType": "Microsoft.Storage.BlobCreated",
    "subject": f"/blobServices/default/containers/datasets/blobs/{PATH}",
    "data": {"api": "PutBlob"},
})  # fmt: skip


def undelivered(source: str = SHARD_UPLOADED, payload: str = UPLOAD, **members: Any) -> Undelivered:
    """A message that the host gave up after five tries."""
    defaults: dict[str, Any] = {"identity": payload, "error": "", "tries": 5, "died_at": NOON, "death": "1"}
    return Undelivered(source=source, payload=payload, **(defaults | members))


def collected(world: World, *found: Undelivered) -> DeadLetter:
    """Let a sweep find what was given up; return the first letter."""
    world.undelivered.lying += found
    collect_dead_letters(world.services)
    return world.ledger.dead_letters()[0]


def fail(world: World, message: str, *, times: int = 1) -> None:
    """Let the handler of the upload fail."""
    for _ in range(times):
        record_failure(SHARD_UPLOADED, UPLOAD, ServiceUnavailableError(message), world.services)


def test_a_poison_message_becomes_a_letter_with_its_last_error() -> None:
    """The host hands over the payload alone; the handler's own record says why it failed, and how often."""
    world = World()
    fail(world, "storage asked to try later", times=5)
    fail(world, "storage did not answer")
    letter = collected(world, undelivered())
    expected = (SHARD_UPLOADED, PATH, UPLOAD, "storage did not answer", 6, DeadLetterState.WAITING)
    assert expected == (letter.source, letter.subject, letter.payload, letter.error, letter.tries, letter.state)


def test_a_message_whose_handler_never_came_to_an_end_says_so() -> None:
    """A killed process leaves no error behind."""
    letter = collected(World(), undelivered())
    assert (NO_ERROR_KNOWN, 5) == (letter.error, letter.tries)


def test_what_was_taken_lies_there_no_longer() -> None:
    """Taking it twice, because the source could not be emptied, creates one letter."""
    world = World()
    collected(world, undelivered())
    collected(world, undelivered())
    assert (1, [], ["dead_letter"]) == (
        len(world.ledger.dead_letters()),
        world.undelivered.lying,
        world.actions(PATH),
    )


def test_a_letter_is_notified_once() -> None:
    """The notification has the error, and the command that sends it again."""
    world = World()
    letter = collected(world, undelivered(), undelivered())
    rows = world.ledger.notifications(PATH)
    assert {"topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"} == {row.recipient for row in rows}
    assert f"landfall dead-letters replay {letter.dead_letter_id}" in rows[0].content["text"]
    assert 2 == len(rows)


@pytest.mark.parametrize("source", [RUN_CHANGED, TRAINING_REQUESTED])
def test_a_letter_about_a_run_is_notified_to_the_recipients_of_its_pipeline(source: str) -> None:
    """The run's row names the dataset; a run that is not on record has no recipients."""
    world = World()
    known = world.upload_version().run_id
    for run_id in (known, "unknown"):
        request = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed", run_id=run_id)
        payload = request.to_json() if source == TRAINING_REQUESTED else json.dumps({"data": {"runId": run_id}})
        collected(world, undelivered(source, payload))
    rows = [row for run_id in (known, "unknown") for row in world.ledger.notifications(run_id)]
    assert {"topic", "webhook:LANDFALL_WEBHOOK_PEOPLE"} == {row.recipient for row in rows}
    assert [(known, "dead_letter")] * 2 == [(row.subject, row.outcome) for row in rows]


def test_a_letter_whose_notification_was_not_written_is_notified_by_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its message is still in its source, because the letter's work was not done."""
    world = World()
    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "add_notification", refuse)
        with pytest.raises(ServiceUnavailableError):
            collected(world, undelivered())
    collected(world)
    assert (2, ["dead_letter"]) == (len(world.ledger.notifications(PATH)), world.actions(PATH))


def refuse(_: object) -> bool:
    """Refuse a write."""
    raise ServiceUnavailableError("write notification: storage answered 503")


def test_a_replayed_upload_goes_back_to_its_queue() -> None:
    """It is unchanged; the letter and the history have the time."""
    world = World()
    letter = replay(collected(world, undelivered()).dead_letter_id, world.services)
    assert [UPLOAD] == world.uploads.messages
    assert (DeadLetterState.REPLAYED, 1, True) == (letter.state, letter.num_replays, letter.replayed_at is not None)
    assert ["dead_letter", "dead_letter_replayed"] == world.actions(PATH)


def test_a_letter_that_dies_again_waits_again() -> None:
    """One row for one message, with all its deaths."""
    world = World()
    letter = collected(world, undelivered())
    replay(letter.dead_letter_id, world.services)
    again = collected(world, undelivered(died_at=NOON + timedelta(hours=1)))
    assert (letter.dead_letter_id, DeadLetterState.WAITING, 2, 1) == (
        again.dead_letter_id,
        again.state,
        again.num_deaths,
        again.num_replays,
    )


@pytest.mark.parametrize("later_s", [0, 1])
def test_a_letter_that_dies_again_within_the_second_waits_again(later_s: int) -> None:
    """Storage tells times to the second; taken for the same death, the message would be lost."""
    world = World()
    replay(collected(world, undelivered()).dead_letter_id, world.services)
    again = collected(world, undelivered(died_at=NOON + timedelta(seconds=later_s), death="2"))
    assert (DeadLetterState.WAITING, 2, "2") == (again.state, again.num_deaths, again.death)


def test_remains_of_an_earlier_death_do_not_reopen_a_replayed_letter() -> None:
    """They appear after the next death: the process that took them was killed before it deleted the message."""
    world = World()
    letter = collected(world, undelivered(died_at=NOON + timedelta(seconds=1), death="2"))
    replay(letter.dead_letter_id, world.services)
    assert (DeadLetterState.REPLAYED, 1) == (collected(world, undelivered()).state, letter.num_deaths)


def test_remains_of_the_first_death_do_not_reopen_a_replayed_letter() -> None:
    """They were found twice because the queue delivers at least once."""
    world = World()
    letter = collected(world, undelivered())
    replay(letter.dead_letter_id, world.services)
    assert DeadLetterState.REPLAYED == collected(world, undelivered()).state


def test_a_replayed_training_request_leads_to_its_run_once() -> None:
    """It may be replayed any number of times, whatever has happened since."""
    world = World()
    run = world.upload_version()
    request = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed", run_id=run.run_id)
    letter = collected(world, undelivered(TRAINING_REQUESTED, request.to_json()))
    for _ in range(2):
        replay(letter.dead_letter_id, world.services)
        world.serve_requests()
    assert (run.run_id, [run.run_id]) == (letter.subject, world.jobs.submissions)


def test_a_replayed_run_event_has_its_run_looked_at() -> None:
    """It goes to its queue like any other message."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    event = {"id": "r", "eventType": "Microsoft.MachineLearningServices.RunCompleted", "data": {"runId": run.run_id}}
    letter = collected(world, undelivered(RUN_CHANGED, json.dumps(event), identity="r"))
    replay(letter.dead_letter_id, world.services)
    [sent] = world.run_events.messages
    for run_id in read_run_ids(sent):
        handle_run_event(run_id, world.services)
    assert (run.run_id, RunState.REGISTERED) == (letter.subject, world.only_run().state)


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", "7", '{"subject": null}', '{"subject": "/x"}'])
@pytest.mark.parametrize("source", [SHARD_UPLOADED, TRAINING_REQUESTED, RUN_CHANGED])
def test_a_payload_that_cannot_be_parsed_is_kept(source: str, payload: str) -> None:
    """About nothing that is known; its history is under its own name."""
    world = World()
    letter = collected(world, undelivered(source, payload))
    assert ("", payload) == (letter.subject, letter.payload)
    assert ["dead_letter"] == world.actions(f"dead-letter/{letter.dead_letter_id}")


def test_half_a_payload_is_not_replayed() -> None:
    """The error says what to do instead, and the letter goes on waiting."""
    world = World()
    letter = collected(world, undelivered(is_whole=False))
    with pytest.raises(ReplayRefusedError, match="too large to be stored"):
        replay(letter.dead_letter_id, world.services)
    assert DeadLetterState.WAITING == world.ledger.dead_letters()[0].state


def test_a_payload_that_is_larger_than_a_queue_message_is_not_replayed() -> None:
    """A message has 64 KiB of Base64; an event may have 1 MiB. The error says what to do instead."""
    world = World()
    small, large = (
        collected(
            world, undelivered(payload=f"{UPLOAD}{end}".ljust(48 << 10), died_at=NOON + timedelta(seconds=later_s))
        )
        for later_s, end in enumerate(("", "é"))
    )
    replay(small.dead_letter_id, world.services)
    with pytest.raises(ReplayRefusedError, match=r"has 49,153 bytes, .* at most 49,152: upload the shard"):
        replay(large.dead_letter_id, world.services)
    letter = world.ledger.dead_letter(large.dead_letter_id)
    assert ([small.payload], DeadLetterState.WAITING) == (world.uploads.messages, letter and letter.state)


def test_an_event_of_an_unknown_type_is_not_replayed() -> None:
    """No handler here takes it."""
    world = World()
    letter = collected(world, undelivered("Contoso.Something"))
    with pytest.raises(ReplayRefusedError, match="cannot be replayed; these can: run-changed, shard-uploaded"):
        replay(letter.dead_letter_id, world.services)


def test_an_unknown_letter_is_not_found() -> None:
    """The name is in the message."""
    with pytest.raises(NotFoundError, match="dead letter unknown is not on record"):
        replay("unknown", World().services)


def test_a_handler_that_succeeds_leaves_no_line() -> None:
    """There is one line for each failure and none for anything else."""
    world = World()
    with failures_on_record(SHARD_UPLOADED, QueueMessage(body="body"), world.services):
        pass
    assert [] == failures_of(SHARD_UPLOADED, "body", world.services)


def test_an_error_is_recorded_and_goes_on() -> None:
    """The host must see it, or it would take the message for handled."""
    world = World()
    message = QueueMessage(body="body")
    with pytest.raises(NotFoundError), failures_on_record(SHARD_UPLOADED, message, world.services):
        raise NotFoundError("the run is\nnot on record")
    assert ["the run is not on record"] == [
        line.reason for line in failures_of(SHARD_UPLOADED, "body", world.services)
    ]


def test_an_unforeseen_error_is_recorded_with_its_kind() -> None:
    """A bare message of a KeyError says nothing."""
    world = World()
    record_failure(SHARD_UPLOADED, "body", KeyError("subject"), world.services)
    assert ["KeyError: 'subject'"] == [line.reason for line in failures_of(SHARD_UPLOADED, "body", world.services)]


def test_messages_are_distinguished_by_source_and_body() -> None:
    """A failure of one is no failure of another."""
    world = World()
    record_failure(SHARD_UPLOADED, "body", NotFoundError("gone"), world.services)
    found = [failures_of(source, body, world.services) for source, body in ((SHARD_UPLOADED, "x"), ("other", "body"))]
    assert [[], []] == found


class SilentLedger(MemoryLedger):
    """A ledger that cannot be written to."""

    def add_history_entry(self, entry: HistoryEntry) -> None:
        raise ServiceUnavailableError(f"{entry.subject}: storage did not answer")


def test_where_the_ledger_fails_too_the_first_error_goes_on() -> None:
    """What brought the handler down is what the host should log."""
    world = World(ledger=SilentLedger())
    message = QueueMessage(body="body")
    with pytest.raises(NotFoundError), failures_on_record(SHARD_UPLOADED, message, world.services):
        raise NotFoundError("gone")
