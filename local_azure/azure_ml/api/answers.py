"""Faulty answers: faults scripted for single calls, and the answer of each named fault."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from local_azure.azure_ml.faults import AnswerFault, JobFaults
from local_azure.azure_ml.service import ServiceError

_MATCHES = {"method", "path"}
_JOB = re.compile(r"/jobs/(?P<name>[^/]+)/?$")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fault of one call. Delays are in seconds, before and after its effect.

    With `status` the call gets that status and has no effect, unless `effect_first` is set. `drop` closes the
    connection before the effect, `drop_after` after it; `truncate` ends the answer in the middle.
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
    truncate: bool = False

    def refusal(self) -> ServiceError | None:
        """Return the scripted error; None if the call is answered normally."""
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
    """Scripts in the order in which they were added; a call uses the first matching script."""

    def __init__(self) -> None:
        self._scripts: list[_Script] = []
        self._lock = threading.Lock()

    def add(self, script: Mapping[str, Any]) -> None:
        """Add `{"match": {"method", "path"}, "times": n, "do": {…}}`. Raises ServiceError 400."""
        match, do = script.get("match", {}), script.get("do", {})
        unknown = (match.keys() - _MATCHES) | (do.keys() - _actions()) | (script.keys() - {"match", "times", "do"})
        if unknown or not do:
            raise ServiceError(
                400, "BadFault", f"unknown {sorted(unknown)}; match: {sorted(_MATCHES)}; do: {sorted(_actions())}"
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
        """Return how many calls will still get a fault."""
        with self._lock:
            return sum(script.left for script in self._scripts)

    def next_for(self, method: str, path: str) -> Fault:
        """Return the fault of this call; a fault without effect if nothing is scripted."""
        with self._lock:
            for script in self._scripts:
                if script.matches(method, path):
                    script.left -= 1
                    return script.fault
        return Fault()


def _actions() -> set[str]:
    return {one.name for one in fields(Fault)}


_FORBIDDEN = (
    "The client with object id 'twin' does not have authorization to perform action "
    "'Microsoft.MachineLearningServices/workspaces/jobs/write' over the workspace. If access was recently granted, "
    "please refresh your credentials."
)
_QUOTA = (
    "Operation results in exceeding quota limits of Core. Maximum allowed: 24, Current in use: 24, Additional "
    "requested: 24. Submit a request for an increase of the quota."
)
_THROTTLED = (
    "Number of 'write' requests for the subscription and actor exceeded. Please try again after '20' seconds after "
    "additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information."
)
UNKNOWN_COMPUTE: Any = {"message": "Unknown compute target.", "inner": ("BadArgument", "UnknownTargetType")}
"""As recorded from the service, which does not name the compute."""
ANSWERS: Mapping[AnswerFault, Fault] = {
    AnswerFault.CONFLICT: Fault(
        status=409, code="Conflict", message="Another operation on this job is in progress. Try again later."
    ),
    AnswerFault.EXPIRED_TOKEN: Fault(),
    AnswerFault.FORBIDDEN: Fault(status=403, code="AuthorizationFailed", message=_FORBIDDEN),
    AnswerFault.LOST_AFTER: Fault(drop_after=True),
    AnswerFault.LOST_BEFORE: Fault(drop=True),
    AnswerFault.NAME_TAKEN: Fault(),
    AnswerFault.QUOTA: Fault(status=400, code="UserError", message=_QUOTA, inner=("ClusterCoreQuotaReached",)),
    AnswerFault.SERVER_ERROR: Fault(status=500, code="ServiceError", message="Internal server error."),
    AnswerFault.THROTTLED: Fault(
        status=429, code="SubscriptionRequestsThrottled", message=_THROTTLED, retry_after_s=20
    ),
    AnswerFault.TRUNCATED: Fault(truncate=True),
    AnswerFault.UNAVAILABLE: Fault(
        status=503, code="ServiceUnavailable", message="The service is unavailable. Try again later."
    ),
    AnswerFault.UNKNOWN_COMPUTE: Fault(status=400, code="UserError", **UNKNOWN_COMPUTE),
}
"""Answer of each named fault to the submission of a job. A fault without an answer acts before the submission."""


def named_fault(faults: JobFaults, method: str, path: str) -> AnswerFault | None:
    """Return the named fault of a call; only submissions of jobs have one, if it is activated."""
    job = _JOB.search(path) if method == "PUT" else None
    return faults.next_for(job["name"], AnswerFault) if job else None
