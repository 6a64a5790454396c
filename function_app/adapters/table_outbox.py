"""The table of notifications: one partition, so that a notification and its place in the list change together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from function_app.adapters.ledger_bounds import bounded_notification
from function_app.adapters.table_keys import after, ascending, escaped, joined
from function_app.adapters.table_rows import from_columns, to_columns
from function_app.adapters.tables import Change, Row, Tables, new_writer
from function_app.errors import LedgerConflictError
from function_app.ledger import NotificationRecord, NotificationState

_PARTITION = "outbox"
_IN_RANGE = f"PartitionKey eq '{_PARTITION}' and RowKey ge @low and RowKey lt @high"


class TableOutbox:
    """Rows ``note|subject|key`` hold notifications; ``unsent|time|key`` lead to those that wait, the oldest first."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_notification(self, notification: NotificationRecord) -> bool:
        """See Ledger."""
        notification = bounded_notification(notification)
        changes = [Change(key=_key(notification), columns=to_columns(notification))]
        if _is_unsent(notification):
            changes.append(_listed(notification))
        return self._tables.create("outbox", _PARTITION, changes, new_writer())

    def save_notification(self, notification: NotificationRecord) -> NotificationRecord:
        """See Ledger. Two operations."""
        notification = bounded_notification(notification)
        row = self._tables.get("outbox", _PARTITION, _key(notification))
        if row is None or row.writer != notification.revision:
            raise LedgerConflictError(f"notification {notification.key} was changed, or is not there: read it again")
        changes = [Change(key=row.key, columns=to_columns(notification), etag=row.etag)]
        if _is_unsent(notification) != _is_unsent(_notification(row)):
            changes.append(_listed(notification))
        writer = new_writer()
        self._tables.replace("outbox", _PARTITION, changes, writer)
        return replace(notification, revision=writer)

    def unsent_notifications(self) -> Iterator[NotificationRecord]:
        """See Ledger. One operation, and one for each of them."""
        for pointer in self._tables.scan("outbox", _IN_RANGE, low="unsent|", high=after("unsent")):
            row = self._tables.get("outbox", _PARTITION, pointer.columns["row"])
            if row is not None and _is_unsent(notification := _notification(row)):
                yield notification

    def notifications(self, subject: str) -> list[NotificationRecord]:
        """See Ledger."""
        prefix = joined("note", escaped(subject))
        rows = self._tables.scan("outbox", _IN_RANGE, low=f"{prefix}|", high=after(prefix))
        return sorted(map(_notification, rows), key=lambda notification: notification.created_at)


def _is_unsent(notification: NotificationRecord) -> bool:
    return notification.state is not NotificationState.SENT


def _listed(notification: NotificationRecord) -> Change:
    """Put a notification on the list of the unsent ones, or take it off."""
    columns = {"row": _key(notification)} if _is_unsent(notification) else None
    return Change(
        key=joined("unsent", ascending(notification.created_at), escaped(notification.key)), columns=columns
    )


def _key(notification: NotificationRecord) -> str:
    return joined("note", escaped(notification.subject), escaped(notification.key))


def _notification(row: Row) -> NotificationRecord:
    return from_columns(NotificationRecord, row.columns, revision=row.writer)
