"""A running emulator, for its handlers, with the log of calls and the scripted faults that Azure does not have.

The endpoints at the end are for tests, the demo and `landfall up`. The product never calls them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from local_azure.azure_ml.api.answers import Faults
from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.security import TokenIssuer
from local_azure.azure_ml.cluster import ClusterPool
from local_azure.azure_ml.execution import Executions, Workbench
from local_azure.azure_ml.faults import JobFaults, fault_named
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.workspace import COMPUTES, Store

_CALLS_KEPT = 100_000
_MAX_TIMES = 1000
_MAX_ADVANCE_S = 366 * 24 * 3600
_LOG_BYTES = 1 << 20  # size of one answer; continue at X-Next-Offset


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """All objects that handlers need."""

    bench: Workbench
    executions: Executions
    tokens: TokenIssuer
    calls: CallLog
    faults: Faults
    tracking_lock: threading.Lock = field(default_factory=threading.Lock)  # one write to a tracked run at a time
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
    """One call; no token, no body. `status` is 0 if the connection was dropped without an answer."""

    t: float  # unix seconds
    method: str
    path: str
    query: dict[str, str]
    status: int
    caller: str | None  # the client id in the token
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
        """Return all stored calls, oldest first."""
        with self._lock:
            return [asdict(call) for call in self._calls]


def get_calls(emulator: Emulator, _call: Call) -> Answer:
    """List all calls to ARM and run history, in order."""
    return Answer(body={"calls": emulator.calls.all()})


def get_cluster(emulator: Emulator, _call: Call) -> Answer:
    """List the nodes of every compute, and the reason why they are simulated (null if they are not)."""
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
    return Answer(body={"computes": computes, "simulated_because": emulator.bench.simulated_because})


def get_log(emulator: Emulator, call: Call) -> Answer:
    """Return the root's output from byte `offset`; X-Next-Offset is the next offset, X-Started-At the start time."""
    logs = emulator.bench.run_root(call.parts["name"]) / "logs" / "user_logs"
    offset = call.number("offset", 0)
    run = next((run for run in emulator.runs.below("/") if run.name == call.parts["name"]), None)
    if run is None:
        raise not_found(f"Run {call.parts['name']} was not found.")
    block = _block(logs, offset)
    headers = {"X-Next-Offset": str(offset + len(block)), "X-Started-At": run.started_at or ""}
    return Answer(text=block.decode(errors="replace"), headers=headers)


def post_fault(emulator: Emulator, call: Call) -> Answer:
    """Script the next answers, or with `{"fault": name, "job": part of a name, "times": n}` a named fault."""
    script = call.document()
    if "fault" in script:
        add_named_fault(emulator.bench.faults, script)
    else:
        emulator.faults.add(script)
    return Answer(status=201, body=_pending(emulator))


def add_named_fault(faults: JobFaults, script: Mapping[str, Any]) -> None:
    """Add `{"fault": name, "job": part of a name, "times": n}`. Raises ServiceError 400."""
    if script.keys() - {"fault", "job", "times"}:
        raise ServiceError(400, "BadFault", "besides fault there are job and times")
    times = script.get("times", 1)
    if not isinstance(times, int) or not 0 < times <= _MAX_TIMES:
        raise ServiceError(
            400, "BadFault", f"times must be a number from 1 to {_MAX_TIMES}, not {str(times)[:100]!r}"
        )
    try:
        faults.add(fault_named(str(script["fault"])), str(script.get("job", "")), times)
    except ValueError as error:
        raise ServiceError(400, "BadFault", str(error)) from error


def get_faults(emulator: Emulator, _call: Call) -> Answer:
    """Return how many calls and jobs will still get a fault, and which jobs had which named fault."""
    return Answer(body=_pending(emulator))


def delete_faults(emulator: Emulator, call: Call) -> Answer:
    """Remove all scripts; with `?of=calls` only those of calls, and keep named faults."""
    emulator.faults.clear()
    if call.query.get("of") != "calls":
        emulator.bench.faults.clear()
    return Answer(body=_pending(emulator))


def post_clock(emulator: Emulator, call: Call) -> Answer:
    """Move the emulator's clock forward: `{"advance_s": seconds}`."""
    seconds = call.document().get("advance_s")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_ADVANCE_S:
        raise ServiceError(400, "BadClock", f"advance_s must be a number of seconds from 0 to {_MAX_ADVANCE_S}")
    emulator.bench.clock.advance(seconds)
    return Answer(body={"advance_s": seconds})


def _pending(emulator: Emulator) -> dict[str, Any]:
    calls, of_jobs = emulator.faults.pending(), emulator.bench.faults
    met = [{"fault": str(fault), "job": job} for fault, job in of_jobs.met()]
    return {"pending": calls + of_jobs.pending(), "calls": calls, "met": met}


def _block(logs: Path, offset: int) -> bytes:
    """Return up to _LOG_BYTES of the root's log, cut at the end of a line, so that no character is split."""
    root = next(iter(sorted(logs.glob("*.txt"))), None)
    if root is None:
        return b""
    with root.open("rb") as file:
        file.seek(offset)
        block = file.read(_LOG_BYTES)
    end = block.rfind(b"\n") + 1
    return block[:end] if end else block
