"""Summaries: notifications held back in quiet hours, or many at once, are sent as one notification.

Each row is claimed for one summary before the summary is written, and the summary lists its rows. So each row is in
exactly one summary, even if a process dies or several sweeps run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from function_app.domain.errors import LedgerConflictError
from function_app.domain.outcomes import OUTCOMES, SUMMARY
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.notify.outbox import is_due
from function_app.services import NotifyServices

MAX_GATHERED = 200
"""Maximum notifications in one summary; more are put into another one."""
MAX_LISTED = 20
MAX_ENTRY_CHARS = 300
FLOOD = 5
"""If more than this many notifications are due for one person, they are summarised."""
FOR_PEOPLE = "apprise:"


def send_summaries(services: NotifyServices) -> None:
    """Turn held-back notifications, and large numbers for people, into one notification for each recipient."""
    rows = list(services.ledger.unsent_notifications())
    now = services.clock()
    for summary in sorted({row.summary for row in rows if row.state is NotificationState.GATHERED and row.summary}):
        gathered = [row for row in rows if row.summary == summary and row.state is NotificationState.GATHERED]
        if all(row.not_before is None or row.not_before <= now for row in gathered):
            _go_on(summary, gathered, services)  # the process that claimed them died
    if any(row.summary for row in rows):
        rows = list(services.ledger.unsent_notifications())  # including the released rows
    for recipient in sorted({row.recipient for row in rows}):
        own = [row for row in rows if row.recipient == recipient]
        _gather([row for row in own if row.state is NotificationState.HELD and _is_over(row, services)], services)
        due = [row for row in own if row.tries == 0 and row.outcome != SUMMARY and is_due(row, services)]
        if recipient.startswith(FOR_PEOPLE) and len(due) > FLOOD:
            _gather(due, services)


def _is_over(row: NotificationRecord, services: NotifyServices) -> bool:
    return row.not_before is None or row.not_before <= services.clock()


def _gather(rows: Sequence[NotificationRecord], services: NotifyServices) -> None:
    """Claim the rows of one recipient for a summary and write it; a single row is sent unchanged."""
    if len(rows) == 1:
        _save(replace(rows[0], state=NotificationState.PENDING, not_before=None), services)
        return
    rows = sorted(rows, key=lambda row: (row.created_at, row.key))
    for start in range(0, len(rows), MAX_GATHERED):
        part = rows[start : start + MAX_GATHERED]
        summary, lease = f"summary-{_digest(part[0].key)}", services.clock() + services.claim_lease
        first = _save(_claimed(part[0], summary, lease), services)
        if first is None:
            continue  # another sweep does it
        claims = [first, *(_save(_claimed(row, summary, lease), services) for row in part[1:])]
        _tell(summary, [saved for saved in claims if saved is not None], services)


def _claimed(row: NotificationRecord, summary: str, lease: datetime) -> NotificationRecord:
    return replace(row, state=NotificationState.GATHERED, summary=summary, not_before=lease)


def _go_on(summary: str, rows: Sequence[NotificationRecord], services: NotifyServices) -> None:
    """Finish a summary that was written, or release the rows of one that was not, so they join the next one."""
    if services.ledger.notifications(summary):
        _tell(summary, rows, services)
        return
    for row in rows:
        _free(row, services)


def _free(row: NotificationRecord, services: NotifyServices) -> None:
    _save(replace(row, state=NotificationState.HELD, summary=None, not_before=None), services)


def _tell(summary: str, rows: Sequence[NotificationRecord], services: NotifyServices) -> None:
    """Write a summary if it is absent, and settle its rows; rows that it does not list wait for the next one."""
    if not services.ledger.notifications(summary):
        recipient, now = rows[0].recipient, services.clock()
        services.ledger.add_notification(
            NotificationRecord(
                key=f"{summary}/{SUMMARY}/{recipient}",
                subject=summary,
                outcome=SUMMARY,
                recipient=recipient,
                content=_content(rows),
                created_at=now,
            )
        )
    (known,) = services.ledger.notifications(summary)
    listed = set(known.content["members"])
    for row in rows:
        if _digest(row.key) in listed:
            sent = replace(row, state=NotificationState.SENT, sent_at=services.clock(), not_before=None)
            _save(sent, services)
            text = f"{row.recipient} gets {row.outcome} in {summary}"
            services.history.record(row.subject, "notification_summed_up", text)
        else:
            _free(row, services)


def _content(rows: Sequence[NotificationRecord]) -> dict[str, object]:
    titles = Counter(OUTCOMES[row.outcome].title if row.outcome in OUTCOMES else row.outcome for row in rows)
    counted = ", ".join(f"{number} {title}" for title, number in titles.most_common())
    entries = [
        {"subject": row.subject, "outcome": row.outcome, "text": str(row.content.get("text", ""))[:MAX_ENTRY_CHARS]}
        for row in rows[:MAX_LISTED]
    ]
    more = f"\nand {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
    lines = "\n".join(f"- {entry['text'] or entry['subject']}" for entry in entries)
    return {
        "text": f"{len(rows)} notifications: {counted}.\n{lines}{more}",
        "number": len(rows),
        "outcomes": dict(Counter(row.outcome for row in rows)),
        "entries": entries,
        "members": [_digest(row.key) for row in rows],
    }


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def _save(row: NotificationRecord, services: NotifyServices) -> NotificationRecord | None:
    """Save a row; None if another handler changed it in the meantime."""
    try:
        return services.ledger.save_notification(row)
    except LedgerConflictError:
        return None
