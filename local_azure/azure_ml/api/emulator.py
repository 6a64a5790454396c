"""A running emulator as handlers see it, with what only an emulator has: a log of calls, and scripted faults.

The endpoints at the end are for tests, the demo and `landfall up`; the product never calls them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.security import TokenIssuer
from local_azure.azure_ml.cluster import ClusterPool
from local_azure.azure_ml.execution import Executions, Workbench
from local_azure.azure_ml.nodes import LaunchFault, LaunchFaults
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.workspace import COMPUTES, Store

_CALLS_KEPT = 100_000
_LOG_BYTES = 1 << 20  # one answer; ask again from X-Next-Offset
_ACTIONS = {
    *("status", "retry_after_s", "code", "message", "inner", "effect_first"),
    *("drop", "drop_after", "delay_s", "delay_after_s"),
}
_MATCHES = {"method", "path"}


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """Everything a handler may need."""

    bench: Workbench
    executions: Executions
    tokens: TokenIssuer
    calls: CallLog
    faults: Faults
    submission_lock: threading.Lock = field(default_factory=threading.Lock)  # one PUT at a time claims a name

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


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to one call. Delays in seconds, before and after its effect.

    With `status` the call gets that answer and has no effect, unless `effect_first`; `drop` cuts the connection
    before the effect, `drop_after` after it.
    """

    status: int | None = None
    retry_after_s: float | None = None
    code: str = "TwinFault"
    message: str = "A fault that was scripted for this call."
    inner: tuple[str, ...] = ()
    effect_first: bool = False
    drop: bool = False
    drop_after: bool = False
    delay_s: float = 0.0
    delay_after_s: float = 0.0

    def refusal(self) -> ServiceError | None:
        """Return the scripted error; None where the call is answered."""
        if self.status is None:
            return None
        headers = {} if self.retry_after_s is None else {"Retry-After": f"{self.retry_after_s:g}"}
        return ServiceError(self.status, self.code, self.message, inner=self.inner, headers=headers)


@dataclass(kw_only=True)
class _Script:
    method: str | None
    path: str
    left: int
    fault: Fault

    def matches(self, method: str, path: str) -> bool:
        return self.left > 0 and self.method in (None, method) and self.path.lower() in path.lower()


class Faults:
    """Scripts in the order in which they were added; a call uses the first one that matches it."""

    def __init__(self) -> None:
        self._scripts: list[_Script] = []
        self._lock = threading.Lock()

    def add(self, script: Mapping[str, Any]) -> None:
        """Add `{"match": {"method", "path"}, "times": n, "do": {…}}`. Raises ServiceError 400."""
        match, do = script.get("match", {}), script.get("do", {})
        unknown = (match.keys() - _MATCHES) | (do.keys() - _ACTIONS) | (script.keys() - {"match", "times", "do"})
        if unknown or not do:
            raise ServiceError(
                400, "BadFault", f"unknown {sorted(unknown)}; match: {sorted(_MATCHES)}; do: {sorted(_ACTIONS)}"
            )
        fault = Fault(**{**do, "inner": tuple(do.get("inner", ()))})
        one = _Script(
            method=match.get("method"), path=match.get("path", ""), left=script.get("times", 1), fault=fault
        )
        with self._lock:
            self._scripts.append(one)

    def clear(self) -> None:
        """Remove all scripts."""
        with self._lock:
            self._scripts.clear()

    def pending(self) -> int:
        """Return how many calls will still be disturbed."""
        with self._lock:
            return sum(script.left for script in self._scripts)

    def next_for(self, method: str, path: str) -> Fault:
        """Return the fault of this call; one without effect where nothing is scripted."""
        with self._lock:
            for script in self._scripts:
                if script.matches(method, path):
                    script.left -= 1
                    return script.fault
        return Fault()


def get_calls(emulator: Emulator, _call: Call) -> Answer:
    """List every call to ARM and run history, in order."""
    return Answer(body={"calls": emulator.calls.all()})


def get_cluster(emulator: Emulator, _call: Call) -> Answer:
    """List the nodes of every compute."""
    computes = []
    for resource in emulator.store.below(COMPUTES, "/"):
        cluster = emulator.pool.snapshot(resource["id"])
        nodes = [{"id": node.node_id, "state": str(node.state), "run": node.run} for node in cluster.nodes]
        scale = cluster.scale
        computes.append(
            {
                "name": resource["name"],
                "min_nodes": scale.min_nodes,
                "max_nodes": scale.max_nodes,
                "idle_s": scale.idle_s,
                "nodes": nodes,
                "waiting": [{"run": run, "nodes": count} for run, count in cluster.waiting.items()],
            }
        )
    return Answer(body={"computes": computes})


def get_log(emulator: Emulator, call: Call) -> Answer:
    """Return the root's output from byte `offset` on; the next offset is in X-Next-Offset."""
    logs = emulator.bench.run_root(call.parts["name"]) / "logs" / "user_logs"
    offset = call.number("offset", 0)
    if not any(run.name == call.parts["name"] for run in emulator.runs.below("/")):
        raise not_found(f"Run {call.parts['name']} was not found.")
    block = _block(logs, offset)
    headers = {"X-Next-Offset": str(offset + len(block))}
    return Answer(text=block.decode(errors="replace"), headers=headers)


def post_fault(emulator: Emulator, call: Call) -> Answer:
    """Script the next answers; with `{"launch": …, "job": part of a name, "times": n}` the next launches of jobs."""
    script = call.document()
    if "launch" in script:
        add_launch_fault(emulator.bench.launch_faults, script)
    else:
        emulator.faults.add(script)
    return Answer(status=201, body=_pending(emulator))


def add_launch_fault(faults: LaunchFaults, script: Mapping[str, Any]) -> None:
    """Add `{"launch": …, "job": part of a name, "times": n}`. Raises ServiceError 400."""
    known = [str(kind) for kind in LaunchFault]
    if script["launch"] not in known or script.keys() - {"launch", "job", "times"}:
        raise ServiceError(400, "BadFault", f"launch must be one of {known}; besides it there are job and times")
    faults.add(LaunchFault(script["launch"]), str(script.get("job", "")), int(script.get("times", 1)))


def get_faults(emulator: Emulator, _call: Call) -> Answer:
    """Return how many calls and launches will still be disturbed."""
    return Answer(body=_pending(emulator))


def delete_faults(emulator: Emulator, _call: Call) -> Answer:
    """Remove all scripts."""
    emulator.faults.clear()
    emulator.bench.launch_faults.clear()
    return Answer(body=_pending(emulator))


def _pending(emulator: Emulator) -> dict[str, int]:
    return {"pending": emulator.faults.pending() + emulator.bench.launch_faults.pending()}


def _block(logs: Path, offset: int) -> bytes:
    """Return up to _LOG_BYTES of the root's log, cut at a line's end so that no character is split."""
    root = next(iter(sorted(logs.glob("*.txt"))), None)
    if root is None:
        return b""
    with root.open("rb") as file:
        file.seek(offset)
        block = file.read(_LOG_BYTES)
    end = block.rfind(b"\n") + 1
    return block[:end] if end else block
