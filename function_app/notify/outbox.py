"""The outbox: a notification is written before it is sent, and one handler claims it and sends it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from function_app.config.recipients import Recipient
from function_app.domain.errors import LedgerConflictError, NotificationError
from function_app.domain.records import DeadLetter, NotificationRecord, NotificationState, dead_letter_id
from function_app.services import NotifyServices
from shared.errors import LandfallError
from shared.safe_text import safe_json
from shared.traces import place_of_content

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_AT_ONCE = 32
"""Threads that send notifications at the same time."""
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)
MAX_TRIES = 80
"""Maximum tries, about three days; then the notification becomes a dead letter."""
DEAD_LETTERS = "notification"
"""The source of dead letters that are notifications."""


def add_notifications(
    recipients: Iterable[Recipient],
    *,
    subject: str,
    outcome: str,
    occasion: str = "",
    content: Mapping[str, Any],
    services: NotifyServices,
) -> bool:
    """Write one row for each recipient of the outcome; existing rows stay. Return whether one is new.

    ``occasion`` distinguishes equal outcomes. In quiet hours, rows wait for the end. Texts of the content are
    untrusted and leave the system, so they are stored without terminal escapes and secrets.
    """
    content = safe_json(dict(content))
    is_new = False
    for recipient in recipients:
        if not recipient.wants(outcome):
            continue
        now = services.clock()
        held_until = recipient.held_until(outcome, now)
        row = NotificationRecord(
            key="/".join(part for part in (subject, outcome, occasion, recipient.name) if part),
            subject=subject,
            outcome=outcome,
            recipient=recipient.name,
            content=content,
            created_at=now,
            state=NotificationState.PENDING if held_until is None else NotificationState.HELD,
            not_before=held_until,
        )
        is_new = services.ledger.add_notification(row) or is_new
    return is_new


def deliver(subject: str, services: NotifyServices) -> bool:
    """Send the notifications of one subject that are due; True if none is left."""
    rows = services.ledger.notifications(subject)
    rows.sort(key=lambda row: row.recipient in services.failing)  # the tries of a hanging recipient are slow
    sent = services.at_once(
        [partial(deliver_one, row, services) for row in rows]
    )  # every recipient is tried, whatever the others do
    # Two handlers may each send a part. Each reads the rows again after its last write, so the later one sees all
    # sent.
    return all(sent) or all(row.is_settled for row in services.ledger.notifications(subject))


def deliver_rest(services: NotifyServices) -> tuple[int, list[str]]:
    """Send the remaining rows, in order for each recipient; return their number, and failures other than sending.

    After a failure, a recipient gets nothing more in this round, because each try may take its whole time limit.
    """
    waiting: dict[str, list[NotificationRecord]] = {}
    for row in services.ledger.unsent_notifications():
        waiting.setdefault(row.recipient, []).append(row)
    in_order = sorted(waiting, key=lambda recipient: recipient in services.failing)
    results = services.at_once([partial(_deliver_rows, waiting[recipient], services) for recipient in in_order])
    return sum(number for number, _ in results), [problem for _, problems in results for problem in problems]


def _deliver_rows(rows: Sequence[NotificationRecord], services: NotifyServices) -> tuple[int, list[str]]:
    """Send the due notifications of one recipient."""
    number, problems, is_tried = 0, list[str](), False
    for row in rows:
        if is_tried and row.recipient in services.failing:
            continue
        is_tried = is_tried or is_due(row, services)
        number += 1
        try:
            deliver_one(row, services)
        except LandfallError as error:
            logger.exception("a notification could not be sent", extra={"action": "sweep_failed"})
            problems.append(str(error))
    return number, problems


def in_threads(works: Sequence[Callable[[], T]]) -> list[T]:
    """Call a function for all items at the same time, each in its own thread; return the results in order.

    Their spans are children of the current one. Raises the first error after all threads have ended.
    """
    if len(works) <= 1:
        return [work() for work in works]
    works = [partial(copy_context().run, work) for work in works]  # a new thread has no current span
    with ThreadPoolExecutor(max_workers=min(len(works), MAX_AT_ONCE), thread_name_prefix="notify") as threads:
        results = threads.map(lambda work: work(), works)
    return list(results)


def is_due(row: NotificationRecord, services: NotifyServices) -> bool:
    """Whether a notification may be sent now, outside a summary."""
    waits = row.not_before is not None and services.clock() < row.not_before
    return not waits and row.state in (NotificationState.PENDING, NotificationState.SENDING)


def deliver_one(row: NotificationRecord, services: NotifyServices) -> bool:
    """Send one notification if it is due and no other handler has claimed it; True if nothing remains to do."""
    if row.is_settled:
        return True
    if not is_due(row, services):
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
        _pass_on(claimed, services)
    except LandfallError as error:
        services.failing.add(claimed.recipient)
        return _postpone(claimed, str(error), services)
    except Exception as error:
        logger.exception("a notifier failed", extra={"action": "notification_failed"})
        services.failing.add(claimed.recipient)
        return _postpone(claimed, type(error).__name__, services)  # its text may contain the address, a secret
    services.failing.discard(claimed.recipient)
    now = services.clock()
    sent = replace(claimed, state=NotificationState.SENT, tries=claimed.tries + 1, sent_at=now, not_before=None)
    services.ledger.save_notification(sent)
    services.history.record(claimed.subject, "notification_sent", f"notified {claimed.recipient}: {claimed.outcome}")
    return True


def _pass_on(claimed: NotificationRecord, services: NotifyServices) -> None:
    """Pass a notification to its notifier. Raises NotificationError."""
    notifier = services.notifiers.get(claimed.recipient)
    if notifier is None:
        raise NotificationError(f"no pipeline in service names the recipient {claimed.recipient}")
    about = place_of_content(claimed.content)
    parent = about and services.telemetry.below(about)
    with services.telemetry.span("notified", parent, outcome=claimed.outcome, recipient=claimed.recipient):
        notifier.send(claimed)


def _postpone(claimed: NotificationRecord, problem: str, services: NotifyServices) -> bool:
    """Schedule the next try of a notification, or give it up after the last one; True if it is given up."""
    tries = claimed.tries + 1
    if tries >= MAX_TRIES:
        _give_up(replace(claimed, tries=tries, last_error=problem[:1000]), services)
        return True
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
    return False


def _give_up(row: NotificationRecord, services: NotifyServices) -> None:
    """Make a notification a dead letter for a person to replay. The letter is written first, so it is never lost."""
    now, payload = services.clock(), json.dumps({"subject": row.subject, "key": row.key})
    letter = DeadLetter(
        dead_letter_id=dead_letter_id(DEAD_LETTERS, payload),
        source=DEAD_LETTERS,
        subject=row.subject,
        payload=payload,
        is_whole=True,
        error=f"could not notify {row.recipient} of {row.outcome}: {row.last_error}",
        tries=row.tries,
        died_at=now,
        death=row.revision,
    )
    known = None if services.ledger.add_dead_letter(letter) else services.ledger.dead_letter(letter.dead_letter_id)
    if known is not None:
        again = replace(
            letter, revision=known.revision, num_deaths=known.num_deaths + 1, num_replays=known.num_replays
        )
        services.ledger.save_dead_letter(again)
    services.ledger.save_notification(replace(row, state=NotificationState.GIVEN_UP, not_before=None))
    services.history.record(row.subject, "dead_letter", letter.error, dead_letter_id=letter.dead_letter_id)


def send_again(payload: str, services: NotifyServices) -> None:
    """Put a notification that was given up into the outbox again; safe to repeat."""
    named = json.loads(payload)
    for row in services.ledger.notifications(str(named["subject"])):
        if row.key == named["key"] and row.state is NotificationState.GIVEN_UP:
            services.ledger.save_notification(replace(row, state=NotificationState.PENDING, tries=0))


def _next_try(tries: int, now: datetime) -> datetime:
    pause: timedelta = FIRST_PAUSE * (1 << min(tries - 1, 10))
    return now + min(LONGEST_PAUSE, pause)
