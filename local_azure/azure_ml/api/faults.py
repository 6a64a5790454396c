"""Scripted faults of calls: what the next matching calls get in place of, or after, their effect."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local_azure.azure_ml.service import ServiceError

_ACTIONS = {
    *("status", "retry_after_s", "code", "message", "inner", "effect_first"),
    *("drop", "drop_after", "delay_s", "delay_after_s"),
}
_MATCHES = {"method", "path"}


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
        """Return the scripted answer; None where there is none."""
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
        """Forget all scripts."""
        with self._lock:
            self._scripts.clear()

    def pending(self) -> int:
        """Return how many calls will still be disturbed."""
        with self._lock:
            return sum(script.left for script in self._scripts)

    def next_for(self, method: str, path: str) -> Fault:
        """Return what must happen to this call; a fault without effect where nothing is scripted."""
        with self._lock:
            for script in self._scripts:
                if script.matches(method, path):
                    script.left -= 1
                    return script.fault
        return Fault()
