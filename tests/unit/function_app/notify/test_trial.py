"""A test message: each recipient's answer, one that fails beside the others, and no flood."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import NotFoundError, NotificationError, PipelineOutOfServiceError, TooSoonError
from function_app.domain.records import NotificationRecord
from function_app.notify.trial import try_recipients
from tests.support.world import WEBHOOK, World


class Deaf:
    """Refuses everything."""

    def send(self, notification: NotificationRecord) -> None:
        """Refuse."""
        raise NotificationError(f"{notification.recipient} answered 404")


def test_each_recipient_says_whether_it_was_reached() -> None:
    """One that fails keeps the other from nothing, and neither is in the outbox."""
    world = World()
    world.services = replace(world.services, notifiers={"topic": world.topic, WEBHOOK: Deaf()})
    expected = [("topic", True, "took the message"), (WEBHOOK, False, f"{WEBHOOK} answered 404")]
    assert expected == try_recipients("digits", None, world.services)
    assert (["test"], {}) == ([each.outcome for each in world.topic.received], world.ledger.notification_rows)


def test_one_recipient_can_be_chosen() -> None:
    """A recipient that the pipeline does not name is refused with a list of those that it names."""
    world = World()
    assert [("topic", True, "took the message")] == try_recipients("digits", "topic", world.services)
    assert [] == world.people.received
    with pytest.raises(NotFoundError, match=f"its recipients: topic, {WEBHOOK}"):
        try_recipients("digits", "apprise:NONE", world.services)


def test_a_second_test_within_seconds_is_refused() -> None:
    """A script in a loop would flood people."""
    world = World()
    try_recipients("digits", None, world.services)
    with pytest.raises(TooSoonError, match="wait and try again"):
        try_recipients("digits", None, world.services)
    world.clock.move(seconds=11)
    assert 2 == len(try_recipients("digits", None, world.services))


def test_a_pipeline_out_of_service_or_unknown_is_named() -> None:
    """Its recipients cannot be known for sure."""
    world = World()
    world.break_pipeline()
    with pytest.raises(PipelineOutOfServiceError):
        try_recipients("digits", None, world.services)
    with pytest.raises(NotFoundError):
        try_recipients("cats", None, World().services)
