"""Quiet hours and floods: what waits comes as one summary, once, whichever process dies in between."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from function_app.config.recipients import QuietHours, Recipient
from function_app.domain.outcomes import NO_LINKS, SUMMARY, for_people
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.notify.outbox import add_notifications, deliver
from function_app.notify.summaries import send_summaries
from function_app.sweep.sweep import sweep
from tests.support.world import CheckedNotifier, World

NIGHT = QuietHours(begin="20:00", end="07:00", zone="Europe/Berlin")
SHORT_NIGHT = QuietHours(begin="20:00", end="02:30", zone="Europe/Berlin")
SETTING = "LANDFALL_TEAM"
TEAM = f"apprise:{SETTING}"


class Night:
    """A world at nine in the evening in Berlin, with a team that sleeps."""

    def __init__(self, quiet: QuietHours | None = NIGHT) -> None:
        self.world = World()
        self.team = CheckedNotifier()
        self.recipient = Recipient(apprise=SETTING, quiet_hours=quiet)
        self.world.change_pipeline(notify=(Recipient(topic=True), self.recipient))
        self.world.services = replace(self.world.services, notifiers={"topic": self.world.topic, TEAM: self.team})
        self.go_to(datetime(2026, 11, 25, 20, tzinfo=UTC))

    def go_to(self, moment: datetime) -> None:
        """Move the clock forward."""
        self.world.clock.move(seconds=(moment - self.world.clock()).total_seconds())

    def tell(self, subject: str, outcome: str = "dead_letter") -> None:
        """Write a notification, and send what is due."""
        content: dict[str, Any] = {"text": f"{subject} broke.", "dead_letter_id": "1", "source": "s"}
        content |= {"error": "e", "tries": 1}
        if outcome == "run_silent":
            content = {"text": f"{subject} is silent.", "run_id": subject, "since": "2026-11-25T20:00:00+00:00"}
        if outcome == "version_changed":
            content = {"text": f"{subject} changed.", "dataset": "digits", "version": "v"}
            content |= {"generation": 2, "fingerprint": "f"}
        services = self.world.services
        add_notifications([self.recipient], subject=subject, outcome=outcome, content=content, services=services)
        deliver(subject, services)

    def heard(self) -> list[str]:
        """What the team heard of."""
        return [each.outcome for each in self.team.received]

    def rows(self) -> list[NotificationRecord]:
        """The rows of the outbox that are for the team, but for the summaries."""
        known = self.world.ledger.notification_rows.values()
        return [row for row in known if row.recipient == TEAM and row.outcome != SUMMARY]


def test_what_comes_at_night_is_one_summary_in_the_morning() -> None:
    """The sweep runs every few minutes, but sends nothing earlier; the topic does not wait."""
    night = Night()
    for number in range(3):
        night.tell(f"digits/v{number}", "version_changed")
    night.go_to(datetime(2026, 11, 26, 5, 59, tzinfo=UTC))
    sweep(night.world.services)
    assert [] == night.heard()
    night.go_to(datetime(2026, 11, 26, 6, 1, tzinfo=UTC))
    for _ in range(3):
        sweep(night.world.services)
    (summary,) = night.team.received
    assert (SUMMARY, 3, {"version_changed": 3}) == (
        summary.outcome,
        summary.content["number"],
        summary.content["outcomes"],
    )
    assert all(f"digits/v{number} changed." in summary.content["text"] for number in range(3))
    assert {(NotificationState.SENT, summary.subject)} == {(row.state, row.summary) for row in night.rows()}


def test_what_is_urgent_passes_at_night() -> None:
    """A run that costs money for nothing wakes people; a changed version does not."""
    night = Night()
    night.tell("run-1", "run_silent")
    night.tell("digits/v1", "version_changed")
    assert ["run_silent"] == night.heard()


def test_a_recipient_says_itself_what_is_urgent() -> None:
    """The recipient's setting names outcomes or groups."""
    night = Night(NIGHT.model_copy(update={"urgent": ("version_changed",)}))
    night.tell("run-1", "run_silent")
    night.tell("digits/v1", "version_changed")
    assert ["version_changed"] == night.heard()


def test_a_single_one_that_waited_comes_as_it_is() -> None:
    """A summary of one would only hide it."""
    night = Night()
    night.tell("digits/v1", "version_changed")
    night.go_to(datetime(2026, 11, 26, 6, 1, tzinfo=UTC))
    sweep(night.world.services)
    assert ["version_changed"] == night.heard()


def test_a_flood_to_people_is_one_summary_and_programs_get_each() -> None:
    """Six at the same time; five come one by one."""
    for number, expected in ((5, ["version_changed"] * 5), (6, [SUMMARY])):
        day = Night(quiet=None)
        for each in range(number):
            content = {"text": "t", "dataset": "d", "version": "v", "generation": 2, "fingerprint": "f"}
            add_notifications(
                day.world.services.pipelines["digits"].notify,
                subject=f"digits/v{each}",
                outcome="version_changed",
                content=content,
                services=day.world.services,
            )
        sweep(day.world.services)
        assert (expected, number) == (day.heard(), len(day.world.topic.received))


def test_a_flood_of_urgent_ones_is_a_summary_that_does_not_deny_it() -> None:
    """Hundreds of dead letters at once must not be hundreds of messages."""
    day = Night(quiet=None)
    content = {"text": "t", "dead_letter_id": "1", "source": "s", "error": "e", "tries": 1}
    for number in range(6):
        add_notifications(
            [day.recipient],
            subject=f"digits/v{number}",
            outcome="dead_letter",
            content=content,
            services=day.world.services,
        )
    sweep(day.world.services)
    (summary,) = day.team.received
    _, text = for_people(summary, NO_LINKS)
    assert (SUMMARY, True) == (summary.outcome, "some may be urgent" in text)


class _DiedError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("survives", range(12))
def test_each_is_heard_of_once_although_processes_die(survives: int) -> None:
    """A process may die at any write: after the lease another sweep continues, including newer notifications."""
    night = Night()
    for number in range(3):
        night.tell(f"digits/v{number}", "version_changed")
    night.go_to(datetime(2026, 11, 26, 6, 1, tzinfo=UTC))
    ledger, left = night.world.ledger, [survives]
    save, add = ledger.save_notification, ledger.add_notification

    def dying_save(row: NotificationRecord) -> NotificationRecord:
        if left[0] == 0:
            raise _DiedError
        left[0] -= 1
        return save(row)

    def dying_add(row: NotificationRecord) -> bool:
        if left[0] == 0:
            raise _DiedError
        left[0] -= 1
        return add(row)

    ledger.save_notification, ledger.add_notification = dying_save, dying_add  # type: ignore[method-assign,assignment]
    with contextlib.suppress(_DiedError):
        send_summaries(night.world.services)
    ledger.save_notification, ledger.add_notification = save, add  # type: ignore[method-assign]
    night.tell("digits/v9", "version_changed")
    for _ in range(3):
        night.world.clock.move(minutes=4)
        sweep(night.world.services)
    summed = [entry["subject"] for each in night.team.received for entry in each.content.get("entries", [])]
    alone = [each.subject for each in night.team.received if each.outcome != SUMMARY]
    assert [f"digits/v{number}" for number in (0, 1, 2, 9)] == sorted(summed + alone)


@pytest.mark.parametrize(
    ("now", "quiet", "expected"),
    [
        ("2026-11-25T18:59:00", NIGHT, None),  # 19:59 in Berlin
        ("2026-11-25T19:00:00", NIGHT, "2026-11-26T06:00:00"),
        ("2026-11-26T05:59:00", NIGHT, "2026-11-26T06:00:00"),
        ("2026-11-26T06:00:00", NIGHT, None),
        ("2026-10-24T20:00:00", NIGHT, "2026-10-25T06:00:00"),  # summer time ends that night: the night has 12 hours
        ("2026-03-28T20:00:00", NIGHT, "2026-03-29T05:00:00"),  # it begins: 10 hours
        ("2026-10-25T00:10:00", SHORT_NIGHT, "2026-10-25T00:30:00"),  # 02:10 in summer time
        ("2026-10-25T00:40:00", SHORT_NIGHT, None),
        ("2026-10-25T01:10:00", SHORT_NIGHT, "2026-10-25T01:30:00"),  # 02:10 again, in winter time
        ("2026-10-25T01:40:00", SHORT_NIGHT, None),
        ("2026-03-29T00:10:00", SHORT_NIGHT, "2026-03-29T01:00:00"),  # 01:59 is followed by 03:00
        ("2026-11-27T12:00:00", QuietHours(begin="12:00", end="14:00", zone="UTC"), "2026-11-27T14:00:00"),
        ("2026-11-27T20:00:00", NIGHT.model_copy(update={"weekends": True}), "2026-11-30T06:00:00"),
        (
            "2026-11-28T11:00:00",
            QuietHours(begin="01:00", end="02:00", zone="UTC", weekends=True),
            "2026-11-30T00:00:00",
        ),
    ],
)
def test_quiet_hours_end_when_the_zone_says(now: str, quiet: QuietHours, expected: str | None) -> None:
    """Over midnight, over weekends, and over the change of summer time."""
    end = quiet.until(datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert expected == (None if end is None else end.replace(tzinfo=None).isoformat())
