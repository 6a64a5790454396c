"""Plain webhooks that keep what they are sent: stand-ins for Teams, Slack and a user's own endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from local_azure.event_grid.journal import Journal

MAX_RECEIVERS = 100
MAX_KEPT = 1_000
MAX_TIMES = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(kw_only=True)
class Receiver:
    """One webhook."""

    journal: Journal
    bad_status: int = 0
    bad_times: int = 0
    """So many requests more are answered with ``bad_status``."""

    def receive(self, headers: dict[str, str], body: str) -> int:
        """Keep the request and return the status to answer with."""
        status = 200
        if self.bad_times:
            self.bad_times -= 1
            status = self.bad_status
        moment = datetime.now(UTC).isoformat()
        self.journal.append({"time": moment, "status": status, "headers": headers, "body": body})
        return status

    def answer_badly(self, given: dict[str, Any]) -> None:
        """Follow ``{"status": 500, "times": 2}``. Raises ValueError naming the field."""
        status, times = given.get("status"), given.get("times", 1)
        if not isinstance(status, int) or not 200 <= status <= 599:  # noqa: PLR2004 (final HTTP statuses)
            raise ValueError(f"status should be an HTTP status from 200 to 599, is {status!r}")
        if not isinstance(times, int) or not 0 <= times <= MAX_TIMES:
            raise ValueError(f"times should be a whole number from 0 to {MAX_TIMES}, is {times!r}")
        self.bad_status, self.bad_times = status, times


@dataclass(kw_only=True)
class Receivers:
    """All webhooks; one comes into being when it is first used."""

    folder: Path
    on_close: Callable[[Callable[[], None]], object]
    """Registers what is to be called when the emulator ends."""
    _by_name: dict[str, Receiver] = field(default_factory=dict)

    def get(self, name: str) -> Receiver:
        """The webhook called ``name``. Raises ValueError for a bad name and for too many."""
        if name in self._by_name:
            return self._by_name[name]
        if not _NAME.fullmatch(name) or len(self._by_name) >= MAX_RECEIVERS:
            raise ValueError(f"a webhook's name is letters, digits, - and _, and there are at most {MAX_RECEIVERS}")
        journal = Journal(self.folder / f"webhook-{name}.jsonl", limit=MAX_KEPT)
        self.on_close(journal.close)
        self._by_name[name] = Receiver(journal=journal)
        return self._by_name[name]
