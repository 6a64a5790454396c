"""The outbox: written before sent, claimed before sent, tried again after a pause, sent once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from function_app.domain.errors import NotificationError
from function_app.domain.records import NotificationRecord, NotificationState, RunRecord
from function_app.notify.outbox import LONGEST_PAUSE, MAX_TRIES, add_notifications, deliver, deliver_one
from function_app.sweep.dead_letters import replay
from function_app.sweep.sweep import sweep
from tests.support.world import WEBHOOK, World


@dataclass
class Refusing:
    """A recipient that refuses the first tries."""

    refusals: int
    received: list[NotificationRecord] = field(default_factory=list)
    tries: int = 0
    error: Exception = field(default_factory=lambda: NotificationError("people answered 500"))
    order: list[str] = field(default_factory=list)

    def send(self, notification: NotificationRecord) -> None:
        """Refuse, or take it."""
        self.tries += 1
        self.order.append("people")
        if self.tries <= self.refusals:
            raise self.error
        self.received.append(notification)


def ended_with(people: Refusing) -> tuple[World, RunRecord]:
    """A world whose run has ended and whose people are hard to reach."""
    world = World()
    world.services = replace(world.services, notifiers={"topic": world.topic, WEBHOOK: people})
    run = world.upload_version()
    world.end_job(run)
    world.follow(run)
    return world, world.only_run()


def row(world: World, run: RunRecord) -> NotificationRecord:
    """The outbox row of the webhook."""
    (found,) = [n for n in world.ledger.notifications(run.run_id) if n.recipient == WEBHOOK]
    return found


def test_one_recipient_out_of_reach_holds_up_no_other() -> None:
    """The run stays unfinished until all recipients are notified."""
    world, run = ended_with(Refusing(refusals=1))
    stored = row(world, run)
    assert (1, None) == (len(world.topic.received), run.notified_at)
    assert (NotificationState.PENDING, 1, "people answered 500") == (stored.state, stored.tries, stored.last_error)


def test_a_failed_delivery_is_tried_again_after_its_pause() -> None:
    """There is no earlier attempt, because the receiver may be overloaded by us."""
    people = Refusing(refusals=1)
    world, run = ended_with(people)
    deliver(run.run_id, world.services)
    assert 1 == people.tries
    world.clock.move(minutes=1)
    sweep(world.services)
    run = world.only_run()
    assert (2, 1, True) == (people.tries, len(people.received), run.notified_at is not None)


def test_an_unexpected_error_of_a_notifier_counts_as_a_failed_try() -> None:
    """The row would otherwise be claimed for ever, and each sweep fail; the error's text may contain the address."""
    people = Refusing(refusals=1, error=TypeError("https://secret"))
    world, run = ended_with(people)
    stored = row(world, run)
    assert (NotificationState.PENDING, 1, "TypeError") == (stored.state, stored.tries, stored.last_error)
    world.clock.move(minutes=1)
    sweep(world.services)
    assert 1 == len(people.received)


def test_pauses_grow_and_stay_bounded() -> None:
    """A receiver that is gone for a day still gets its notification."""
    people = Refusing(refusals=30)
    world, run = ended_with(people)
    for _ in range(30):
        world.clock.move(hours=1)
        before = world.clock()
        deliver(run.run_id, world.services)
        stored = row(world, run)
        assert stored.not_before is None or stored.not_before - before <= LONGEST_PAUSE + LONGEST_PAUSE / 100
    assert 1 == len(people.received)


def test_a_claimed_delivery_is_left_to_its_claimer() -> None:
    """Two handlers at once send one notification."""
    people = Refusing(refusals=1)
    world, run = ended_with(people)
    world.clock.move(minutes=1)
    stored = row(world, run)
    assert deliver_one(stored, world.services)
    assert not deliver_one(stored, world.services)
    assert 1 == len(people.received)


@dataclass
class Meeting:
    """A recipient during whose notification another handler follows the same run's end."""

    meanwhile: Callable[[], object] = lambda: None
    received: list[NotificationRecord] = field(default_factory=list)

    def send(self, notification: NotificationRecord) -> None:
        """Take it."""
        self.received.append(notification)
        self.meanwhile()


def test_a_run_is_finished_where_two_handlers_each_send_a_part() -> None:
    """Neither sends all of them; the later one sees that nothing is left."""
    world, first, second = World(), Meeting(), Meeting()
    world.services = replace(world.services, notifiers={"topic": first, WEBHOOK: second})
    run = world.upload_version()
    first.meanwhile = lambda: world.follow(run)
    world.end_job(run)
    world.follow(run)
    assert (1, 1, True) == (len(first.received), len(second.received), world.only_run().notified_at is not None)


def test_an_interrupted_delivery_is_taken_up_after_its_lease() -> None:
    """The claimer died; the idempotency key tells the receiver if it had got through."""
    people = Refusing(refusals=1)
    world, run = ended_with(people)
    stored = row(world, run)
    world.ledger.save_notification(replace(stored, state=NotificationState.SENDING))
    world.clock.move(minutes=3)
    sweep(world.services)
    assert (1, NotificationState.SENT) == (len(people.received), row(world, run).state)


def test_a_recipient_that_no_pipeline_names_any_more_stays_in_the_outbox() -> None:
    """It is not forgotten: the row says why it was not sent."""
    people = Refusing(refusals=1)
    world, run = ended_with(people)
    world.services = replace(world.services, notifiers={})
    world.clock.move(minutes=1)
    deliver(run.run_id, world.services)
    assert f"no pipeline in service names the recipient {WEBHOOK}" == row(world, run).last_error


def test_a_run_whose_pipeline_has_no_recipients_is_done() -> None:
    """There is nothing left to do for it."""
    world = World()
    world.change_pipeline(notify=())
    run = world.upload_version()
    world.end_job(run)
    world.follow(run)
    assert (True, []) == (world.only_run().notified_at is not None, list(world.ledger.unfinished_runs()))


def test_after_the_last_try_a_notification_is_a_dead_letter_that_can_be_replayed() -> None:
    """The run is done meanwhile, and the letter says whom it did not reach and why."""
    people = Refusing(refusals=MAX_TRIES)
    world, run = ended_with(people)
    for _ in range(MAX_TRIES + 5):
        world.clock.move(hours=1)
        sweep(world.services)
    assert (MAX_TRIES, NotificationState.GIVEN_UP) == (people.tries, row(world, run).state)
    assert (1, True) == (len(world.topic.received), world.only_run().notified_at is not None)
    (letter,) = world.ledger.dead_letters()
    assert f"could not notify {WEBHOOK} of registered: people answered 500" == letter.error
    replay(letter.dead_letter_id, world.services)
    sweep(world.services)
    sweep(world.services)
    assert (1, NotificationState.SENT) == (len(people.received), row(world, run).state)


def test_a_recipient_that_refuses_is_asked_once_in_a_sweep_and_the_others_come_first() -> None:
    """Each refusal may take its whole time limit: ten of them would delay everybody."""
    people, order = Refusing(refusals=100), list[str]()
    world = World()
    world.services = replace(world.services, notifiers={"topic": Listed(order, "topic"), WEBHOOK: people})
    recipients = tuple(reversed(world.services.pipelines["digits"].notify))
    for each in range(10):
        content = {"text": "t", "dataset": "d", "version": "v", "generation": 2, "fingerprint": "f"}
        add_notifications(
            recipients, subject=f"digits/v{each}", outcome="version_changed", content=content, services=world.services
        )
    sweep(world.services)
    assert (1, 10) == (people.tries, len(order))
    people.tries = 0
    people.order = order
    order.clear()
    content = {"text": "t", "dataset": "d", "version": "w", "generation": 2, "fingerprint": "f"}
    add_notifications(
        recipients, subject="digits/w", outcome="version_changed", content=content, services=world.services
    )
    deliver("digits/w", world.services)
    assert ["topic", "people"] == order


@dataclass
class Listed:
    """A recipient that writes down when it was reached."""

    order: list[str]
    name: str

    def send(self, notification: NotificationRecord) -> None:
        """Take it."""
        assert notification.recipient == self.name
        self.order.append(self.name)
