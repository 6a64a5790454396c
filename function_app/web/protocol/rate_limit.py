"""Rate limits: one token bucket per caller, held by this process."""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from function_app.services import Services

MAX_CALLERS = 1000
"""Maximum callers in memory; the one idle longest is forgotten and starts with a full bucket."""
KEY, KEY_PARAMETER = "x-functions-key", "code"
"""Places of the function key in a request; the host has already checked it.

Source: learn.microsoft.com/azure/azure-functions/function-keys-how-to.
"""
PERSON_ID = "x-ms-client-principal-id"
"""Header of App Service authentication, which removes it from client requests."""

Caller = Callable[[Scope], str | None]
Refusal = Callable[[str, Mapping[str, str]], Response]


@dataclass(kw_only=True)
class CallerLimits:
    """The buckets of callers. Each holds the requests of a minute, which may be sent in one burst."""

    seconds: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Caller → requests left, and the time of that count."""

    def wait_s(self, caller: str, per_minute: int) -> float:
        """Count a request; return 0, or the seconds until the caller may try again."""
        now_s = self.seconds()
        left, since_s = self._left.pop(caller, (float(per_minute), now_s))
        left = min(float(per_minute), left + (now_s - since_s) * per_minute / 60)
        is_served = left >= 1
        self._left[caller] = (left - 1 if is_served else left, now_s)
        if len(self._left) > MAX_CALLERS:
            self._left.popitem(last=False)
        return 0.0 if is_served else (1 - left) * 60 / per_minute


def key_of(scope: Scope) -> str:
    """Return a digest of the caller's function key; callers without one share a bucket.

    IP addresses are not used: many people share one, and headers can be forged.
    """
    stated = Headers(scope=scope).get(KEY) or parse_qs(scope["query_string"].decode("latin-1")).get(KEY_PARAMETER)
    return hashlib.sha256(str(stated or "").encode()).hexdigest()


def person_of(scope: Scope) -> str | None:
    """Return the person who requests a page; None for static files."""
    return None if scope["path"].startswith("/static/") else Headers(scope=scope).get(PERSON_ID, "")


class RateLimited:
    """ASGI layer that refuses requests of callers who send too many."""

    def __init__(
        self,
        app: ASGIApp,
        services: Callable[[], Services],
        *,
        caller: Caller,
        refusal: Refusal,
        limits: CallerLimits | None = None,
    ) -> None:
        self._app, self._services, self._caller, self._refusal = app, services, caller, refusal
        self._limits = limits or CallerLimits()
        self._per_minute: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        caller = self._caller(scope) if scope["type"] == "http" else None
        if caller is None or (wait_s := await self._wait_s(caller)) <= 0:
            await self._app(scope, receive, send)
            return
        text = f"more than {self._per_minute} requests in a minute: send fewer requests, or request larger pages"
        refused = self._refusal(text, {"Retry-After": str(math.ceil(wait_s))})
        await refused(scope, receive, send)

    async def _wait_s(self, caller: str) -> float:
        if self._per_minute is None:
            try:
                self._per_minute = (await run_in_threadpool(self._services)).requests_per_minute
            except Exception:  # noqa: BLE001 (the app meets the same error, and answers it)
                return 0.0
        return self._limits.wait_s(caller, self._per_minute)
