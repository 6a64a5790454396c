"""What the handlers share: the parts of a running emulator, and its log of calls."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from local_azure.azure_ml.api.faults import Faults
from local_azure.azure_ml.api.security import TokenIssuer
from local_azure.azure_ml.cluster import ClusterPool
from local_azure.azure_ml.execution import Executions, Workbench
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.store import Store

_CALLS_KEPT = 100_000


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """Everything a handler may need."""

    bench: Workbench
    executions: Executions
    tokens: TokenIssuer
    calls: CallLog
    faults: Faults
    submission_lock: threading.Lock = field(default_factory=threading.Lock)  # one PUT decides a name at a time

    @property
    def settings(self) -> Settings:
        """Flags and environment of the emulator."""
        return self.bench.settings

    @property
    def store(self) -> Store:
        """Registered assets, computes and datastores."""
        return self.bench.store

    @property
    def runs(self) -> RunBook:
        """All runs."""
        return self.bench.runs

    @property
    def storage(self) -> Storage:
        """The blobs of all accounts."""
        return self.bench.storage

    @property
    def pool(self) -> ClusterPool:
        """The simulated clusters."""
        return self.bench.pool


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
        self._calls: deque[LoggedCall] = deque(maxlen=_CALLS_KEPT)
        self._lock = threading.Lock()

    def add(self, call: LoggedCall) -> None:
        """Record one call."""
        with self._lock:
            self._calls.append(call)

    def all(self) -> list[dict[str, Any]]:
        """Return every call that is kept, oldest first."""
        with self._lock:
            return [asdict(call) for call in self._calls]
