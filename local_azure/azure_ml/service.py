"""The formats of the service: errors, failures of jobs, times and durations."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")

_LOOK_EVERY_S = 0.05


class ServiceError(Exception):
    """A refusal in the service's format.

    `inner` is the chain of inner codes, outermost first, such as ("Immutable", "JobPropertyImmutable").
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        inner: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.inner = tuple(inner)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the error in ARM's format."""
        information = []
        nested: dict[str, Any] | None = None
        for code in reversed(self.inner):
            nested = {"code": code, "innerError": nested}
        if nested is not None:
            information.append({"type": "InnerError", "info": {"value": nested}})
        error = {"code": self.code, "message": self.message, "details": [], "additionalInfo": information}
        return {"error": error}


class JobFailure(Exception):
    """The job cannot continue; its run ends as Failed with this code and message."""

    def __init__(self, message: str, *, code: str = "UserError", inner: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.inner = inner

    def error(self) -> dict[str, Any]:
        """Return the failure in the format of the run history."""
        inner = {"code": self.inner, "innerError": None} if self.inner else None
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "messageParameters": {},
                "details": [],
                "innerError": inner,
            },
            "componentName": "CommonRuntime",
        }


class RunCanceled(Exception):
    """The run was canceled; this ends its execution."""


class Clock:
    """The emulator's clock for durations and the times of runs. Tests advance it, which wakes threads that sleep."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic() + self._ahead_s

    def now(self) -> dt.datetime:
        """Return the time in UTC."""
        return utcnow() + dt.timedelta(seconds=self._ahead_s)

    def advance(self, seconds: float) -> None:
        """Move forward."""
        self._ahead_s += seconds

    def sleep(self, seconds: float, canceled: threading.Event) -> None:
        """Sleep for a time. Raises RunCanceled if the run is canceled before its end."""
        until_s = self.now_s() + seconds
        while not canceled.is_set() and (left_s := until_s - self.now_s()) > 0:
            canceled.wait(min(left_s, _LOOK_EVERY_S))
        if canceled.is_set():
            raise RunCanceled


def utcnow() -> dt.datetime:
    """Return the current time in UTC, with its time zone."""
    return dt.datetime.now(dt.UTC)


def iso(moment: dt.datetime) -> str:
    """Return a time in Azure ML's format, with seven decimals and Z."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def duration_s(text: str) -> float:
    """Return the seconds of an ISO 8601 duration such as PT1H30M or P1DT2S. Raises ValueError for other texts."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"expected an ISO 8601 duration such as PT30M, saw {text!r}")
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
