"""Scenarios of notifications that wait for the end of quiet hours, and of recipients that never answer."""

from __future__ import annotations

from dataclasses import replace

from function_app.config.recipients import QuietHours, Recipient
from function_app.domain.errors import NotificationError
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.notify.outbox import DEAD_LETTERS, MAX_TRIES
from function_app.notify.trial import try_recipients
from function_app.sweep.dead_letters import replay
from function_app.testing.azure_ml import MemoryNotifier
from tests.crash.process import Step
from tests.crash.scenario import Scenario, Serve, deliver_run_events, run_jobs, swept, trained, upload, uploads
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, WEBHOOK, World, shard_content

QUIET = QuietHours(begin="11:00", end="14:00", zone="UTC", urgent=())


class Unreachable(MemoryNotifier):
    """Refuses every notification."""

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier."""
        raise NotificationError(f"{notification.recipient} does not answer")


def leave_people_in_peace(world: World) -> None:
    """Set quiet hours for people until two hours after the start; programs receive everything."""
    people = Recipient(webhook="LANDFALL_WEBHOOK_PEOPLE", quiet_hours=QUIET)
    world.change_pipeline(notify=(Recipient(topic=True, outcomes=("everything",)), people))


def changed_twice(serve: Serve) -> list[Step]:
    """A version that was trained on changes twice: people receive three notifications when the quiet hours end."""
    first, second = (upload(TRAIN_SHARDS[0], shard_content(label, label, label)) for label in (8, 9))
    return [*first, *second, serve]


def tell_programs(world: World) -> None:
    """Let programs receive all notifications and people none."""
    world.change_pipeline(notify=(Recipient(topic=True, outcomes=("everything",)),))


def submitted(serve: Serve) -> list[Step]:
    """A version is uploaded, and its run submitted."""
    return [*uploads(*ALL_SHARDS), serve]


def started(_: Serve) -> list[Step]:
    """An event reports that the job runs."""
    return [run_jobs, deliver_run_events]


def lose_people(world: World) -> None:
    """Have the webhook refuse every notification."""
    world.people = Unreachable()
    world.services = replace(world.services, notifiers={"topic": world.topic, WEBHOOK: world.people})


def tire(world: World) -> None:
    """Let three days of attempts pass, except the last attempt."""
    for row in world.services.ledger.unsent_notifications():
        if row.recipient == WEBHOOK and row.state is NotificationState.PENDING and row.tries < MAX_TRIES - 1:
            world.ledger.save_notification(replace(row, tries=MAX_TRIES - 1, not_before=None))


def hour_later(world: World) -> None:
    """Fire the timer after an hour, when the claim of a process that died has expired."""
    world.clock.move(hours=1)
    swept(world)


def replay_letters(world: World) -> None:
    """A person replays the notifications that were given up."""
    for letter in world.services.ledger.dead_letters():
        if letter.source == DEAD_LETTERS and letter.num_replays == 0:
            replay(letter.dead_letter_id, world.services)


def given_up(serve: Serve) -> list[Step]:
    """A notification is given up, replayed, and given up again."""
    return [tire, hour_later, replay_letters, tire, hour_later, serve]


def tested(_: Serve) -> list[Step]:
    """A person requests a test message to programs, and repeats the request if the history has no result."""

    def ask(world: World) -> None:
        if not world.services.ledger.history("notify-test/digits"):
            world.clock.move(minutes=1)
            try_recipients("digits", "topic", world.services)

    return [ask]


NOTIFIED = (
    Scenario(name="left in peace", steps=changed_twice, prelude=trained(), prepare=leave_people_in_peace),
    Scenario(name="followed", steps=submitted, prepare=leave_people_in_peace),
    # the timer that replaces a lost event finds that the job has ended, so nothing is sent about its start
    Scenario(name="followed further", steps=started, prelude=submitted, prepare=tell_programs, survives_loss=False),
    Scenario(name="tested", steps=tested, survives_loss=False),
    Scenario(name="given up", steps=given_up, prelude=trained(), prepare=lose_people, survives_loss=False),
)
