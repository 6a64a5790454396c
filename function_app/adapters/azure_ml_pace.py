"""Limit the rate of requests to Azure ML, and respect its Retry-After.

Azure Resource Manager allows each caller a burst of 250 reads and 200 writes, shared by all programs with the same
identity. See https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from function_app.domain.errors import ServiceUnavailableError

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineRequest, PipelineResponse
    from azure.core.pipeline.policies import SansIOHTTPPolicy

READS_PER_S = 5
MAX_WAIT_S = 5.0
"""The SDK does not wait for a longer Retry-After, which would block the function and outlast its claim on the run.
The request fails, and no other request is sent before that time."""
MAX_AWAY_S = 15 * 60.0
"""Maximum time to wait, even if Azure ML requests more; a retry costs one request."""

logger = logging.getLogger(__name__)


class Pace:
    """Limits reads to five in any second, and sends no request before the end of a Retry-After."""

    def __init__(
        self, *, now_s: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._now_s = now_s
        self._wait = wait
        self._lock = threading.Lock()
        self._reads_s: deque[float] = deque(maxlen=READS_PER_S)
        self._not_before_s: dict[str, float] = {}

    def before(self, method: str) -> None:
        """Wait for a read's turn. Raises ServiceUnavailableError before the end of a Retry-After."""
        kind = _kind(method)
        with self._lock:
            left_s = self._not_before_s.get(kind, 0.0) - self._now_s()
            if left_s > 0:
                raise ServiceUnavailableError(
                    f"Azure ML throttles {kind} and asked to wait; the next one is sent in {left_s:.0f} s"
                )
            pause_s = self._turn_s() - self._now_s() if kind == "reads" else 0.0
        if pause_s > 0:
            self._wait(pause_s)

    def _turn_s(self) -> float:
        """Return the time at which the next read may be sent, and count that read."""
        full = len(self._reads_s) == READS_PER_S
        turn_s = max(self._now_s(), self._reads_s[0] + 1.0) if full else self._now_s()
        self._reads_s.append(turn_s)
        return turn_s

    def after(self, method: str, status: int, retry_after_s: float | None) -> None:
        """Store a long Retry-After. Raises ServiceUnavailableError, so that the SDK does not wait for it."""
        if status < HTTPStatus.BAD_REQUEST or retry_after_s is None or retry_after_s <= MAX_WAIT_S:
            return
        kind, retry_after_s = _kind(method), min(retry_after_s, MAX_AWAY_S)
        with self._lock:
            self._not_before_s[kind] = self._now_s() + retry_after_s
        logger.warning(f"Azure ML throttles {kind} for {retry_after_s:.0f} s", extra={"action": "throttled"})
        raise ServiceUnavailableError(
            f"Azure ML answered {status} and asks to wait for {retry_after_s:.0f} s; no other of the {kind} is sent "
            "before"
        )

    def policy(self) -> SansIOHTTPPolicy[Any, Any]:
        """Return the policy that paces every request of the SDK's clients, including the SDK's own retries."""
        from azure.core.pipeline.policies import RetryPolicy, SansIOHTTPPolicy

        pace, retry = self, RetryPolicy()

        class PacePolicy(SansIOHTTPPolicy[Any, Any]):
            def on_request(self, request: PipelineRequest[Any]) -> None:
                pace.before(request.http_request.method)

            def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
                retry_after_s = retry.get_retry_after(response)
                pace.after(request.http_request.method, response.http_response.status_code, retry_after_s)

        return PacePolicy()


def _kind(method: str) -> str:
    return "reads" if method in ("GET", "HEAD") else "writes"
