"""Notifications: behaviour that both ledgers share."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from function_app.adapters.tables.row_limits import RecordTooLargeError
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.ports import Ledger
from tests.support.ledger_records import NOON, notification_record
from tests.support.threads import at_once


def without_revision(notification: NotificationRecord) -> NotificationRecord:
    return replace(notification, revision="")


def added(ledger: Ledger, notification: NotificationRecord) -> NotificationRecord:
    """Add a notification; return it with its revision."""
    assert ledger.add_notification(notification)
    return next(n for n in ledger.notifications(notification.subject) if n.key == notification.key)


def test_a_notification_is_returned_as_it_was_added(ledger: Ledger) -> None:
    """Every member is kept."""
    notification = notification_record(
        subject="digits/v1 ✓",
        content={"lines": ["ß", 1, None]},
        state=NotificationState.SENDING,
        tries=3,
        last_error="404 from the webhook",
        not_before=NOON + timedelta(minutes=5),
    )
    assert notification == without_revision(added(ledger, notification))


def test_a_notification_is_added_once(ledger: Ledger) -> None:
    """One outcome and one recipient make one notification, even if it is written at another time."""
    first = notification_record()
    second = replace(first, created_at=NOON + timedelta(hours=1), content={})
    assert [True, False, False] == [ledger.add_notification(n) for n in (first, first, second)]
    assert [first] == [without_revision(n) for n in ledger.notifications(first.subject)]


def test_of_twenty_additions_of_a_notification_one_wins(ledger: Ledger) -> None:
    """One row, although twenty threads add it."""
    won = at_once([partial(ledger.add_notification, notification_record())] * 20)
    assert (1, 1) == (won.count(True), len(list(ledger.unsent_notifications())))


def test_unsent_notifications_come_oldest_first(ledger: Ledger) -> None:
    """The list has the rows of all subjects; a row that is being sent counts as unsent."""
    for number, state in ((3, "sending"), (1, "pending"), (2, "sent"), (4, "pending")):
        ledger.add_notification(notification_record(number, subject=f"run-{number}", state=NotificationState(state)))
    assert ["run-1", "run-3", "run-4"] == [n.subject for n in ledger.unsent_notifications()]


def test_a_notification_leaves_the_unsent_ones_when_it_is_sent(ledger: Ledger) -> None:
    """Pending, sending, and pending again after a failure are listed; sent is not."""
    notification = added(ledger, notification_record())
    for state in (NotificationState.SENDING, NotificationState.PENDING, NotificationState.SENDING):
        notification = ledger.save_notification(replace(notification, state=state, tries=notification.tries + 1))
        assert [notification] == list(ledger.unsent_notifications())
    notification = ledger.save_notification(replace(notification, state=NotificationState.SENT, sent_at=NOON))
    assert ([], [notification]) == (list(ledger.unsent_notifications()), ledger.notifications("run-1"))


def test_a_stale_notification_is_a_conflict(ledger: Ledger) -> None:
    """Two senders cannot both claim it."""
    notification = added(ledger, notification_record())
    ledger.save_notification(replace(notification, state=NotificationState.SENDING))
    with pytest.raises(LedgerConflictError, match="read it again"):
        ledger.save_notification(replace(notification, state=NotificationState.SENDING))


def test_a_notification_that_was_never_added_cannot_be_saved(ledger: Ledger) -> None:
    """A save does not replace the insert with its idempotency key."""
    with pytest.raises(LedgerConflictError, match="is not there"):
        ledger.save_notification(notification_record())


def test_of_twenty_senders_of_a_notification_one_wins(ledger: Ledger) -> None:
    """Twenty threads claim the same notification; one sends it."""
    notification = added(ledger, notification_record())

    def take(number: int) -> int:
        try:
            ledger.save_notification(replace(notification, state=NotificationState.SENDING, tries=number))
        except LedgerConflictError:
            return 0
        return number

    winners = [number for number in at_once([partial(take, number) for number in range(1, 21)]) if number]
    assert winners == [n.tries for n in ledger.notifications("run-1")]


def test_notifications_of_a_subject_come_oldest_first(ledger: Ledger) -> None:
    """Those of a subject with the same prefix are not included."""
    for number in (3, 1, 2):
        ledger.add_notification(notification_record(number))
    ledger.add_notification(notification_record(4, subject="run-10"))
    expected = [notification_record(number) for number in (1, 2, 3)]
    assert expected == [without_revision(n) for n in ledger.notifications("run-1")]


def test_content_is_kept_whole_or_refused(ledger: Ledger) -> None:
    """Half a notification would be worse than an error."""
    with pytest.raises(RecordTooLargeError, match=r"content has \d+ characters of JSON; at most 131072 can"):
        ledger.add_notification(notification_record(content={"text": "x" * 200_000}))


def test_long_keys_and_errors_are_taken(ledger: Ledger) -> None:
    """They may exceed a table key and still differ at the end; an error keeps its beginning."""
    notifications = [
        notification_record(number, subject="s" * 1000, recipient=f"{'w' * 1000}{number}") for number in (1, 2)
    ]
    stored = [added(ledger, replace(n, last_error="e" * 20_000)) for n in notifications]
    assert [n.key for n in notifications] == [n.key for n in stored]
    assert {"e" * ((16 << 10) - 1) + "…"} == {n.last_error for n in stored}
