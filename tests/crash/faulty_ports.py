"""Faults of port calls: no answer, a lost answer, a conflict with another writer, the death of the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from function_app.domain.errors import LedgerConflictError, NotificationError, ServiceUnavailableError
from shared.errors import LandfallError
from tests.crash.port_calls import PortCall

CONFLICTING = frozenset(
    {"save_run", "save_notification", "change_run_queue", "record_shard", "record_first_verdicts"}
)
"""Methods that can raise a conflict because another writer was first."""


class ProcessDiedError(BaseException):
    """The process died: an exception that `except Exception` does not catch."""


class Fate(StrEnum):
    """A fault of one call."""

    UNAVAILABLE = "429, 503 or a time-out, and no effect"
    LOST_ANSWER = "an effect, and a time-out"
    CONFLICT = "another writer was first"
    DIED_BEFORE = "the process dies before the effect"
    DIED_AFTER = "the process dies after the effect"


@dataclass(kw_only=True)
class Fates:
    """Wraps every call, and lets selected calls meet their faults."""

    waiting: list[tuple[int, Fate]] = field(default_factory=list)
    """(number of calls until then, fault), the next one first."""
    met: Counter[tuple[Fate, str]] = field(default_factory=Counter)
    """(fault, method) → how often."""

    def around(self, call: PortCall, make: Callable[[], Any]) -> Any:
        """See port_calls.Around."""
        fate = self._next()
        if fate is None:
            return make()
        self.met[fate, call.method] += 1
        if fate is Fate.DIED_BEFORE:
            raise ProcessDiedError(call.point)
        if fate is Fate.CONFLICT and call.method in CONFLICTING:
            raise LedgerConflictError(f"{call.point}: another writer was first")
        if fate in (Fate.UNAVAILABLE, Fate.CONFLICT):
            raise _unavailable(call)
        make()  # its answer is lost
        raise ProcessDiedError(call.point) if fate is Fate.DIED_AFTER else _unavailable(call)

    def _next(self) -> Fate | None:
        if not self.waiting:
            return None
        calls, fate = self.waiting[0]
        if calls > 0:
            self.waiting[0] = (calls - 1, fate)
            return None
        self.waiting.pop(0)
        return fate


def _unavailable(call: PortCall) -> LandfallError:
    if call.port == "Notifier":
        return NotificationError(f"{call.point}: no answer")
    return ServiceUnavailableError(f"{call.point}: no answer")
