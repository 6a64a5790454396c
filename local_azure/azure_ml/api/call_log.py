"""Every call that the product made, in order, for tests that count calls and tell callers apart."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

_KEPT = 100_000


@dataclass(frozen=True, kw_only=True)
class LoggedCall:
    """One call; no token, no body. `status` is 0 where the connection was dropped without an answer."""

    t: float  # unix seconds
    method: str
    path: str
    query: dict[str, str]
    status: int
    caller: str | None  # client id from the token
    user_agent: str | None


class CallLog:
    """The last 100,000 calls."""

    def __init__(self) -> None:
        self._calls: deque[LoggedCall] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def add(self, call: LoggedCall) -> None:
        """Record one call."""
        with self._lock:
            self._calls.append(call)

    def all(self) -> list[dict[str, Any]]:
        """Every call kept, oldest first."""
        with self._lock:
            return [asdict(call) for call in self._calls]
