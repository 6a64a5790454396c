"""The table of notifications in one partition, so that a notification and its place in the list change together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from function_app.adapters.tables.client import Change, Row, Tables, new_writer
from function_app.adapters.tables.row_limits import bounded_dead_letter, bounded_notification
from function_app.adapters.tables.rows import after, ascending, escaped, from_columns, joined, to_columns
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DeadLetter, NotificationRecord, dead_letter_order

_OUTBOX = "outbox"
_IN_RANGE = f"PartitionKey eq '{_OUTBOX}' and RowKey ge @low and RowKey lt @high"


class TableOutbox:
    """Rows ``note|subject|key`` are notifications; ``unsent|time|key`` refer to waiting ones, oldest first."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_notification(self, notification: NotificationRecord) -> bool:
        """See Ledger."""
        notification = bounded_notification(notification)
        changes = [Change(key=_key(notification), columns=to_columns(notification))]
        if _is_unsent(notification):
            changes.append(_listed(notification))
        return self._tables.create("outbox", _OUTBOX, changes, new_writer())

    def save_notification(self, notification: NotificationRecord) -> NotificationRecord:
        """See Ledger. Two operations."""
        notification = bounded_notification(notification)
        row = self._tables.get("outbox", _OUTBOX, _key(notification))
        if row is None or row.writer != notification.revision:
            raise LedgerConflictError(f"notification {notification.key} was changed, or is not there: read it again")
        changes = [Change(key=row.key, columns=to_columns(notification), etag=row.etag)]
        if _is_unsent(notification) != _is_unsent(_notification(row)):
            changes.append(_listed(notification))
        writer = new_writer()
        self._tables.replace("outbox", _OUTBOX, changes, writer)
        return replace(notification, revision=writer)

    def unsent_notifications(self) -> Iterator[NotificationRecord]:
        """See Ledger. One operation, and one for each notification."""
        for pointer in self._tables.scan("outbox", _IN_RANGE, low="unsent|", high=after("unsent")):
            row = self._tables.get("outbox", _OUTBOX, pointer.columns["row"])
            if row is not None and _is_unsent(notification := _notification(row)):
                yield notification

    def notifications(self, subject: str) -> list[NotificationRecord]:
        """See Ledger."""
        prefix = joined("note", escaped(subject))
        rows = self._tables.scan("outbox", _IN_RANGE, low=f"{prefix}|", high=after(prefix))
        return sorted(map(_notification, rows), key=lambda notification: notification.created_at)


def _is_unsent(notification: NotificationRecord) -> bool:
    return not notification.is_settled


def _listed(notification: NotificationRecord) -> Change:
    """Add a notification to the list of unsent ones, or remove it."""
    columns = {"row": _key(notification)} if _is_unsent(notification) else None
    return Change(
        key=joined("unsent", ascending(notification.created_at), escaped(notification.key)), columns=columns
    )


def _key(notification: NotificationRecord) -> str:
    return joined("note", escaped(notification.subject), escaped(notification.key))


def _notification(row: Row) -> NotificationRecord:
    return from_columns(NotificationRecord, row.columns, revision=row.writer)


_DEAD = "dead"


class TableDeadLetters:
    """Rows ``id``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """See DeadLetterLedger."""
        letter = bounded_dead_letter(letter)
        change = Change(key=escaped(letter.dead_letter_id), columns=to_columns(letter))
        return self._tables.create("deadletters", _DEAD, [change], new_writer())

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetterLedger. One operation."""
        row = self._tables.get("deadletters", _DEAD, escaped(dead_letter_id))
        return None if row is None else _letter(row)

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """See DeadLetterLedger. Two operations."""
        letter = bounded_dead_letter(letter)
        row = self._tables.get("deadletters", _DEAD, escaped(letter.dead_letter_id))
        if row is None or row.writer != letter.revision:
            raise LedgerConflictError(
                f"dead letter {letter.dead_letter_id} was changed, or is not there: read it again"
            )
        writer = new_writer()
        change = Change(key=row.key, columns=to_columns(letter), etag=row.etag)
        self._tables.replace("deadletters", _DEAD, [change], writer)
        return replace(letter, revision=writer)

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """See DeadLetterLedger. Reads all rows, because they are not stored in this order."""
        rows = self._tables.scan("deadletters", "PartitionKey eq @partition", partition=_DEAD)
        return sorted(map(_letter, rows), key=dead_letter_order)[:limit]


def _letter(row: Row) -> DeadLetter:
    return from_columns(DeadLetter, row.columns, revision=row.writer)
