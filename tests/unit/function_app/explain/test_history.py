"""The history in order, and what is awaited now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import NotFoundError, NotificationError
from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import NotificationRecord, Undelivered
from function_app.domain.run_states import SETTLED, RunState
from function_app.explain.history import Explanation, why
from function_app.explain.pending import _NEXT
from function_app.runs.following import OTHERS_EVENTS, handle_run_event
from function_app.sweep.dead_letters import collect_dead_letters
from tests.support.ledger_records import NOON
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World


def explained(world: World, subject: object = VERSION) -> Explanation:
    """Explain a subject in the world's current state."""
    return why(str(subject), world.services)


def actions(explanation: Explanation) -> list[str]:
    """Return the actions in order."""
    return [line.action for line in explanation.lines]


def test_the_history_of_a_version_includes_its_blobs_and_its_runs_in_order() -> None:
    """It ranges from the first shard to the last notification."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    world.follow(run)
    explanation = explained(world)
    first = ["shard_accepted"] * 3 + ["version_closed"]
    assert ("version", first) == (explanation.kind, [action for action in actions(explanation) if action in first])
    assert sorted(line.at for line in explanation.lines) == [line.at for line in explanation.lines]
    assert {"run_submitted", "run_registered", "notification_sent"} <= set(actions(explanation))
    assert () == explanation.awaited


def test_a_duplicate_event_is_in_the_history_with_its_reason() -> None:
    """No event is left out."""
    world = World()
    path = world.put(TRAIN_SHARDS[0])
    for _ in range(3):
        world.deliver(path)
    explanation = explained(world, path)
    assert ["shard_accepted", "event_suppressed", "event_suppressed"] == actions(explanation)
    assert "this content has already been judged: accepted" == explanation.lines[-1].reason


def test_an_event_that_changes_nothing_is_in_the_history_of_its_run() -> None:
    """Azure ML sends several for each change, and late ones."""
    world = World()
    run = world.upload_version()
    handle_run_event(run.run_id, world.services)
    last = explained(world, run.run_id).lines[-1]
    assert ("event_suppressed", "the event changes nothing: the run is already submitted") == (
        last.action,
        last.reason,
    )


def test_events_of_other_projects_are_counted_by_day() -> None:
    """One row a day, however many there are."""
    world = World()
    for number in range(5):
        handle_run_event(f"calm_river_{number}", world.services)
    assert ({"2026-11-20": 5}, {}) == (
        dict(world.ledger.counter_rows[OTHERS_EVENTS]),
        dict(world.ledger.history_rows),
    )


def test_an_open_version_waits_for_its_shards() -> None:
    """Missing ones by name, rejected ones with their reason."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    world.deliver(world.put(TRAIN_SHARDS[1], b"<html>"))
    better, missing = explained(world).awaited
    assert better.startswith(f"a corrected upload of {TRAIN_SHARDS[1]}, which was rejected: ")
    assert missing.startswith("1 shard: validation-*: no shard of this split has arrived yet; ")
    assert missing.endswith("a notification is sent if none arrives within 1 d")


def test_a_closed_version_waits_for_its_run() -> None:
    """Its request is on the way."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    (awaited,) = explained(world).awaited
    assert awaited.startswith("the run of generation 1: its request is in the queue training-requested")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            "Queued",
            "2 nodes of cluster landfall-gpu, since 2026-11-20 12:00:00 UTC; a notification is sent after 2 h",
        ),
        ("Running", "the end of its job, running since 2026-11-20 12:00:00 UTC; Azure ML ends it after 1 h"),
    ],
)
def test_a_run_says_what_it_waits_for(status: str, expected: str) -> None:
    """The text includes the bound."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, status)
    world.follow(run)
    assert ((expected,), (f"run {run.run_id}: {expected}",)) == (
        explained(world, run.run_id).awaited,
        explained(world).awaited,
    )


def test_every_state_that_is_no_end_has_something_to_wait_for() -> None:
    """A new state needs its words."""
    assert set(RunState) - SETTLED == set(_NEXT)


@pytest.mark.parametrize("state", sorted(set(RunState) - SETTLED))
def test_each_of_them_can_be_said(state: RunState) -> None:
    """The other members do not matter."""
    world = World()
    run = world.upload_version()
    world.ledger.run_rows[run.run_id] = replace(run, state=state)
    assert 1 == len(explained(world, run.run_id).awaited)


class Deaf:
    """A recipient that takes nothing."""

    def send(self, notification: NotificationRecord) -> None:
        """Refuse."""
        raise NotificationError(f"{notification.recipient} answered 500")


def test_a_notification_that_could_not_be_sent_is_awaited() -> None:
    """The entry has the time of the next attempt and the last error."""
    world = World()
    run = world.upload_version()
    world.services = replace(world.services, notifiers={**world.services.notifiers, "topic": Deaf()})
    world.end_job(run)
    world.follow(run)
    (awaited,) = explained(world, run.run_id).awaited
    assert "the notification of registered to topic, not before 2026-11-20 12:00:30 UTC" in awaited
    assert awaited.endswith("; try 1 failed: topic answered 500")


def test_a_dead_letter_about_a_shard_is_awaited_by_its_version() -> None:
    """The entry has the command that replays it."""
    world = World()
    path = world.put(TRAIN_SHARDS[0])
    world.upload_shards(TRAIN_SHARDS[1])
    payload = f'{{"subject": "/blobServices/default/containers/datasets/blobs/{path}"}}'
    world.undelivered.lying.append(
        Undelivered(
            source=SHARD_UPLOADED, payload=payload, identity=payload, error="", tries=5, died_at=NOON, death="1"
        )
    )
    collect_dead_letters(world.services)
    name = world.ledger.dead_letters()[0].dead_letter_id
    for subject in (VERSION, path):
        assert [True] == [
            text.endswith(f"replay {name}") for text in explained(world, subject).awaited if "dead" in text
        ]


def test_a_blob_without_a_verdict_waits_for_its_event() -> None:
    """After the grace period, it waits for the sweep."""
    world = World()
    (awaited,) = explained(world, world.put(TRAIN_SHARDS[0])).awaited
    assert awaited.startswith("its event, or the next sweep after 2026-11-20 12:02:00 UTC")


def test_a_rejected_blob_waits_for_a_corrected_upload() -> None:
    """Under the same name."""
    world = World()
    path = world.put(TRAIN_SHARDS[0], b"<html>")
    world.deliver(path)
    assert ("a corrected upload; the current content was rejected",) == explained(world, path).awaited


def test_a_blob_that_is_gone_waits_for_an_upload() -> None:
    """Its history stays."""
    world = World()
    path = world.put(TRAIN_SHARDS[0])
    world.deliver(path)
    world.shards.delete(path)
    explanation = explained(world, path)
    assert (["shard_accepted"], ("an upload: there is no such blob now",)) == (
        actions(explanation),
        explanation.awaited,
    )


def test_a_blob_that_is_no_shard_has_its_entry_and_waits_for_nothing() -> None:
    """README files are common."""
    world = World()
    path = world.put("README.md", b"hello")
    world.deliver(path)
    explanation = explained(world, path)
    assert (["event_suppressed"], ()) == (actions(explanation), explanation.awaited)


def test_a_version_of_a_dataset_without_a_pipeline_says_so() -> None:
    """Its history from the time of the pipeline remains."""
    world = World()
    world.upload_shards(*ALL_SHARDS[:1])
    world.services = replace(world.services, pipelines={})
    explanation = explained(world, "digits/v1")
    assert (["shard_accepted"], ("dataset 'digits' has no pipeline; there is no pipeline at all",)) == (
        actions(explanation),
        explanation.awaited,
    )


def test_a_shard_that_its_version_still_lacks_is_awaited() -> None:
    """It has no history, and its name fits the version."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    assert ((), ("an upload: there is no such blob now",)) == (
        explained(world, f"digits/v1/{TRAIN_SHARDS[1]}").lines,
        explained(world, f"digits/v1/{TRAIN_SHARDS[1]}").awaited,
    )
    with pytest.raises(NotFoundError, match="no such blob is in the container now"):
        explained(world, "digits/v1/train-00001-of-00003.tfrecord")


def test_why_a_blob_matches_no_pipeline_is_computed_without_a_history() -> None:
    """Such uploads are only counted, so the reason is computed on request."""
    world = World()
    world.deliver(world.put("train-00000-of-00001.tfrecord", dataset="cats"))
    with pytest.raises(NotFoundError, match=r"matches no pipeline: dataset 'cats' has no pipeline"):
        explained(world, "cats/v1/train-00000-of-00001.tfrecord")


@pytest.mark.parametrize("subject", ["unknown", "digits/v9", "cats/v1", "digits/v1/README.md", "a/b/c/d"])
def test_an_unknown_subject_is_not_found(subject: str) -> None:
    """The answer is not an empty history."""
    with pytest.raises(NotFoundError):
        explained(World(), subject)
