"""The outbox: a notification is written before it is sent, and one handler claims it and sends it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from function_app.domain.errors import LedgerConflictError, NotificationError
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.services import NotifyServices
from shared.errors import LandfallError
from shared.safe_text import safe_json
from shared.traces import place_of_content

logger = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)


def add_notifications(
    recipients: Iterable[str],
    *,
    subject: str,
    outcome: str,
    occasion: str = "",
    content: Mapping[str, Any],
    services: NotifyServices,
) -> bool:
    """Write one row for each recipient; rows that exist stay. ``occasion`` tells equal outcomes apart.

    Return whether a row is new.

    Texts of the content come from outside, and leave the system: they are stored without escapes and secrets.
    """
    content = safe_json(dict(content))
    is_new = False
    for recipient in dict.fromkeys(recipients):
        key = "/".join(part for part in (subject, outcome, occasion, recipient) if part)
        row = NotificationRecord(
            key=key,
            subject=subject,
            outcome=outcome,
            recipient=recipient,
            content=content,
            created_at=services.clock(),
        )
        is_new = services.ledger.add_notification(row) or is_new
    return is_new


def deliver(subject: str, services: NotifyServices) -> bool:
    """Send the notifications of one subject that are due; True where none is left."""
    rows = services.ledger.notifications(subject)
    sent = [deliver_one(row, services) for row in rows]  # all of them: one that fails holds up no other
    # Two handlers may each send a part. Each looks again after its own last write, so the later one sees all of them.
    return all(sent) or all(row.state is NotificationState.SENT for row in services.ledger.notifications(subject))


def deliver_one(row: NotificationRecord, services: NotifyServices) -> bool:
    """Send one notification if it is due and no other handler has claimed it; True where it is sent."""
    if row.state is NotificationState.SENT:
        return True
    if row.not_before is not None and services.clock() < row.not_before:
        return False
    try:
        lease = services.clock() + services.claim_lease
        claimed = services.ledger.save_notification(replace(row, state=NotificationState.SENDING, not_before=lease))
    except LedgerConflictError:
        logger.info(f"notification {row.key} was claimed by another handler", extra={"action": "claim_lost"})
        return False
    return _send(claimed, services)


def _send(claimed: NotificationRecord, services: NotifyServices) -> bool:
    try:
        notifier = services.notifiers.get(claimed.recipient)
        if notifier is None:
            raise NotificationError(f"no pipeline in service names the recipient {claimed.recipient}")
        about = place_of_content(claimed.content)
        parent = about and services.telemetry.below(about)
        with services.telemetry.span("notified", parent, outcome=claimed.outcome, recipient=claimed.recipient):
            notifier.send(claimed)
    except LandfallError as error:
        _postpone(claimed, str(error), services)
        return False
    now = services.clock()
    sent = replace(claimed, state=NotificationState.SENT, tries=claimed.tries + 1, sent_at=now, not_before=None)
    services.ledger.save_notification(sent)
    services.history.record(claimed.subject, "notification_sent", f"notified {claimed.recipient}: {claimed.outcome}")
    return True


def _postpone(claimed: NotificationRecord, problem: str, services: NotifyServices) -> None:
    tries = claimed.tries + 1
    again = replace(
        claimed,
        state=NotificationState.PENDING,
        tries=tries,
        last_error=problem[:1000],
        not_before=_next_try(tries, services.clock()),
    )
    services.ledger.save_notification(again)
    services.history.record(
        claimed.subject, "notification_failed", f"could not notify {claimed.recipient} (try {tries}): {problem[:500]}"
    )


def _next_try(tries: int, now: datetime) -> datetime:
    pause: timedelta = FIRST_PAUSE * (1 << min(tries - 1, 10))
    return now + min(LONGEST_PAUSE, pause)
