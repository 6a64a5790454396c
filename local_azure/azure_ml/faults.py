"""Named faults of Azure ML, which `landfall up --fault NAME` or a test activates.

`FAULTS` lists every fault with its effect. An `AnswerFault` changes the answers to calls about a job
(`api/answers.py`), a `LaunchFault` the start of its ranks, a `LifeFault` its later life.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class LaunchFault(StrEnum):
    """Effects of a faulty launcher or cluster on a job for several nodes with GPUs."""

    ONE_RANK = "one_rank"
    ONE_NODE = "one_node"
    NO_GPU = "no_gpu"
    NO_OUTPUTS = "no_outputs"


class LifeFault(StrEnum):
    """Effects of the service on an accepted job."""

    CAPACITY = "capacity"
    COMPUTE_GONE = "compute_gone"
    IMAGE_BUILD = "image_build"
    NOT_RESPONDING = "not_responding"
    NO_END_EVENT = "no_end_event"
    PACKAGES = "packages"
    PREEMPTED = "preempted"
    SLOW_BUILD = "slow_build"
    UNKNOWN_STATE = "unknown_state"


class AnswerFault(StrEnum):
    """Answers of the service to the submission of a job."""

    CONFLICT = "conflict"
    EXPIRED_TOKEN = "expired_token"  # noqa: S105 - the name of a fault
    FORBIDDEN = "forbidden"
    LOST_AFTER = "lost_after"
    LOST_BEFORE = "lost_before"
    NAME_TAKEN = "name_taken"
    QUOTA = "quota"
    SERVER_ERROR = "server_error"
    THROTTLED = "throttled"
    TRUNCATED = "truncated"
    UNAVAILABLE = "unavailable"
    UNKNOWN_COMPUTE = "unknown_compute"


RETRIED = frozenset(
    {AnswerFault.LOST_AFTER, AnswerFault.LOST_BEFORE, AnswerFault.SERVER_ERROR, AnswerFault.UNAVAILABLE}
)
"""Faults after which the SDK itself retries."""
SDK_TRIES = 4

NamedFault = LaunchFault | LifeFault | AnswerFault
_Kind = TypeVar("_Kind", LaunchFault, LifeFault, AnswerFault)

FAULTS: Mapping[NamedFault, str] = {
    LaunchFault.ONE_RANK: "the launcher starts one rank, whose world has no other",
    LaunchFault.ONE_NODE: "the launcher starts all ranks on the first node",
    LaunchFault.NO_GPU: "the ranks run on nodes whose GPUs cannot be seen",
    LaunchFault.NO_OUTPUTS: "the mounted outputs answer every call with an input/output error",
    LifeFault.CAPACITY: "the region has no capacity for the cluster's VM size: the job fails while it is queued",
    LifeFault.COMPUTE_GONE: "the cluster is deleted while the job is queued; the job waits for ever",
    LifeFault.IMAGE_BUILD: "the environment's image cannot be built",
    LifeFault.NOT_RESPONDING: "the running job is shown as NotResponding for 30 minutes, then as Running again",
    LifeFault.NO_END_EVENT: "no event tells that the job has failed or was canceled",
    LifeFault.PACKAGES: "packages of the environment do not install",
    LifeFault.PREEMPTED: "the nodes are taken away while the job runs",
    LifeFault.SLOW_BUILD: "building the image takes an hour, during which the job is Preparing",
    LifeFault.UNKNOWN_STATE: "the running job is shown for 30 minutes in a state that no document names",
    AnswerFault.CONFLICT: "409: another operation on the job is in progress",
    AnswerFault.EXPIRED_TOKEN: "401: the access token has expired, whatever its lifetime says",
    AnswerFault.FORBIDDEN: "403: the identity lacks a role on the workspace",
    AnswerFault.LOST_AFTER: "the connection is cut after the job was created",
    AnswerFault.LOST_BEFORE: "the connection is cut before the job was created",
    AnswerFault.NAME_TAKEN: "400: another job has this name already, with other content",
    AnswerFault.QUOTA: "400: the subscription's quota of cores is used up",
    AnswerFault.SERVER_ERROR: "500: the service failed",
    AnswerFault.THROTTLED: "429: too many requests; Retry-After asks to wait for 20 seconds",
    AnswerFault.TRUNCATED: "the job is created, and its JSON answer ends in the middle",
    AnswerFault.UNAVAILABLE: "503: the service is unavailable",
    AnswerFault.UNKNOWN_COMPUTE: "400: the compute that the job names does not exist",
}


def fault_named(name: str) -> NamedFault:
    """Return a fault by its name. Raises ValueError with the list of names."""
    for fault in FAULTS:
        if fault == name:
            return fault
    raise ValueError(f"fault {name[:100]!r} is unknown; use one of {', '.join(FAULTS)}")


class JobFaults:
    """Faults of future jobs; thread-safe. ``always`` is the fault of every job that has no other fault."""

    def __init__(self, always: NamedFault | None = None) -> None:
        self._always = always
        self._scripts: list[tuple[str, NamedFault]] = []
        self._met: list[tuple[str, NamedFault, str | None]] = []  # job, fault, and the script that it came from
        self._disturbed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, fault: NamedFault, job: str, times: int) -> None:
        """Apply a fault to ``times`` jobs, or calls about jobs, whose names contain ``job``."""
        with self._lock:
            self._scripts += [(job, fault)] * times

    def clear(self) -> None:
        """Remove the faults that were added."""
        with self._lock:
            self._scripts.clear()

    def pending(self) -> int:
        """Return how many jobs or calls will still get a fault."""
        with self._lock:
            return len(self._scripts)

    def met(self) -> list[tuple[NamedFault, str]]:
        """Return the faults that have occurred, each with the job's name, in order."""
        with self._lock:
            return [(fault, job) for job, fault, _ in self._met]

    def next_for(self, job: str, kind: type[_Kind]) -> _Kind | None:
        """Return the fault of this kind that now applies to the job, None if there is none."""
        with self._lock:
            for script in self._scripts:
                if script[0] in job and isinstance(script[1], kind):
                    self._scripts.remove(script)
                    self._met.append((job, script[1], script[0]))
                    return script[1]
            fault = self._permanent(job, kind)
            if fault is not None:
                self._met.append((job, fault, None))
            return fault

    def give_back(self, job: str, fault: NamedFault) -> None:
        """Return a fault to its script, because its job ended before the fault had an effect."""
        with self._lock:
            found = next(one for one in reversed(self._met) if one[:2] == (job, fault))
            self._met.remove(found)
            if found[2] is not None:
                self._scripts.insert(0, (found[2], fault))

    def _permanent(self, job: str, kind: type[_Kind]) -> _Kind | None:
        if not isinstance(self._always, kind):
            return None
        if kind is AnswerFault:  # Only the first submission, because otherwise none would succeed.
            self._disturbed[job] += 1
            return self._always if self._disturbed[job] <= (SDK_TRIES if self._always in RETRIED else 1) else None
        return self._always
