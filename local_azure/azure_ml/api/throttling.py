"""ARM's limits on requests: a token bucket for each caller and kind of request, and the headers that report it.

Source: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from local_azure.azure_ml.service import ServiceError


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Maximum number of requests at once, and per second after that."""

    burst: int
    per_s: float


LIMITS = {"reads": Limit(burst=250, per_s=25), "writes": Limit(burst=200, per_s=10)}


class Throttling:
    """Counts the requests of each caller; thread-safe."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens left, and the time of that count
        self._lock = threading.Lock()

    def take(self, caller: str, method: str) -> dict[str, str]:
        """Count a request; return the headers with the remaining requests. Raises ServiceError 429 if none remain."""
        kind = "reads" if method in ("GET", "HEAD") else "writes"
        limit, now_s = LIMITS[kind], self._now_s()
        with self._lock:
            left, since_s = self._buckets.get((caller, kind), (float(limit.burst), now_s))
            left = min(limit.burst, left + (now_s - since_s) * limit.per_s)
            allowed = left >= 1
            self._buckets[caller, kind] = (left - 1 if allowed else left, now_s)
        if allowed:
            return {f"x-ms-ratelimit-remaining-subscription-{kind}": str(int(left - 1))}
        message = (
            f"Number of '{kind.removesuffix('s')}' requests for the subscription and actor exceeded. Please try "
            "again after '1' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling "
            "for additional information."
        )
        raise ServiceError(429, "SubscriptionRequestsThrottled", message, headers={"Retry-After": "1"})
