"""The emulator's HTTP API: publishing, received events, faults, and webhooks that store their requests."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from aiohttp import web

from local_azure.event_grid.broker import Broker, Topic
from local_azure.event_grid.events import MAX_BODY_BYTES, InvalidEventError, parse_events
from local_azure.event_grid.faults import parse_plan
from local_azure.event_grid.journal import Journal
from local_azure.http_server import json_object, refusal

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_WEBHOOKS = 100
MAX_KEPT = 1_000
"""Maximum number of requests that a webhook stores."""
MAX_TIMES = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class EventGridApi:
    """The handlers; `application` connects them to paths."""

    broker: Broker
    webhooks: Webhooks
    topic_key: str
    """Key that publishers must present; empty if anyone may publish."""

    def application(self) -> web.Application:
        """Return the application with all paths."""
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors_as_json])
        application.add_routes(
            [
                web.get("/health", self._health),
                web.post("/topics/{topic}/api/events", self._publish),
                web.get("/topics/{topic}/received", self._received),
                web.get("/subscriptions", self._subscriptions),
                web.get("/subscriptions/{name}/dead-letters", self._dead_letters),
                web.get("/faults", self._faults),
                web.put("/faults", self._set_faults),
                web.delete("/faults", self._reset_faults),
                web.post("/release", self._release),
                web.post("/webhooks/{name}", self._receive),
                web.put("/webhooks/{name}", self._answer_badly),
                web.get("/webhooks/{name}/received", self._webhook_received),
            ]
        )
        return application

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _publish(self, request: web.Request) -> web.Response:
        topic = self._topic(request.match_info["topic"])
        if not may_publish(request.headers, self.topic_key, datetime.now(UTC)):
            return refusal(401, "the header aeg-sas-key does not hold the topic's key", code="Unauthorized")
        try:
            events = parse_events(request.content_type, await request.read(), topic.resource_id)
        except InvalidEventError as error:
            return refusal(400, str(error), code="BadRequest")
        for event in events:
            topic.publish(event)
        return web.Response(status=200)

    async def _received(self, request: web.Request) -> web.Response:
        return web.json_response(self._topic(request.match_info["topic"]).journal.since(_since(request)))

    async def _subscriptions(self, _request: web.Request) -> web.Response:
        return web.json_response(self.broker.describe())

    async def _dead_letters(self, request: web.Request) -> web.Response:
        subscription = self.broker.subscriptions.get(request.match_info["name"])
        if subscription is None:
            raise LookupError(f"there is no subscription called {request.match_info['name']!r}")
        return web.json_response(subscription.dead_letters.since(_since(request)))

    async def _faults(self, _request: web.Request) -> web.Response:
        return web.json_response({name: topic.gate.describe() for name, topic in self.broker.topics.items()})

    async def _set_faults(self, request: web.Request) -> web.Response:
        plan = json_object(await request.read())
        topic = self._topic(str(plan.pop("topic", "")))
        topic.gate.set_plan(parse_plan(plan))
        return web.json_response(topic.gate.describe())

    async def _reset_faults(self, _request: web.Request) -> web.Response:
        """End all faults, and deliver the events that are held or late."""
        released = {name: topic.end_faults() for name, topic in self.broker.topics.items()}
        return web.json_response({"released": released})

    async def _release(self, _request: web.Request) -> web.Response:
        return web.json_response({"released": {name: one.release() for name, one in self.broker.topics.items()}})

    async def _receive(self, request: web.Request) -> web.Response:
        webhook = self.webhooks.get(request.match_info["name"])
        body = (await request.read()).decode("utf-8", errors="replace")
        status = webhook.receive(dict(request.headers), body)
        if status == 200 and request.headers.get("aeg-event-type") == "SubscriptionValidation":  # noqa: PLR2004 (OK)
            return web.json_response({"validationResponse": _validation_code(body)})
        return web.Response(status=status)

    async def _answer_badly(self, request: web.Request) -> web.Response:
        self.webhooks.get(request.match_info["name"]).answer_badly(json_object(await request.read()))
        return web.Response(status=204)

    async def _webhook_received(self, request: web.Request) -> web.Response:
        return web.json_response(self.webhooks.get(request.match_info["name"]).journal.since(_since(request)))

    def _topic(self, name: str) -> Topic:
        if name not in self.broker.topics:
            raise LookupError(f"there is no topic called {name!r}; there are {sorted(self.broker.topics)}")
        return self.broker.topics[name]


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in the format that Azure's clients read."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return refusal(413, f"the body is larger than {MAX_BODY_BYTES} bytes", code="PayloadTooLarge")
    except LookupError as error:
        return refusal(404, str(error), code="NotFound")
    except ValueError as error:
        return refusal(400, str(error), code="BadRequest")


def _since(request: web.Request) -> int:
    text = request.query.get("since", "0")
    if not text.isdecimal():
        raise ValueError(f"since must be the seq of the last entry seen, not {text!r}")
    return int(text)


def _validation_code(body: str) -> str:
    try:
        return str(json.loads(body)[0]["data"]["validationCode"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("a SubscriptionValidation event must carry data.validationCode") from error


@dataclass(kw_only=True)
class Webhook:
    """A stand-in for Teams, Slack or a user's own endpoint, which stores the requests that it receives."""

    journal: Journal
    bad_status: int = 0
    bad_times: int = 0
    """Number of further requests that get `bad_status`."""

    def receive(self, headers: dict[str, str], body: str) -> int:
        """Store the request, and return the status of the answer."""
        status = 200
        if self.bad_times:
            self.bad_times -= 1
            status = self.bad_status
        moment = datetime.now(UTC).isoformat()
        self.journal.append({"time": moment, "status": status, "headers": headers, "body": body})
        return status

    def answer_badly(self, script: dict[str, Any]) -> None:
        """Follow a script such as ``{"status": 500, "times": 2}``. Raises ValueError naming the wrong field."""
        status, times = script.get("status"), script.get("times", 1)
        if not isinstance(status, int) or not 200 <= status <= 599:  # noqa: PLR2004 (final HTTP statuses)
            raise ValueError(f"status must be an HTTP status from 200 to 599, not {status!r}")
        if not isinstance(times, int) or not 0 <= times <= MAX_TIMES:
            raise ValueError(f"times must be a whole number from 0 to {MAX_TIMES}, not {times!r}")
        self.bad_status, self.bad_times = status, times


@dataclass(kw_only=True)
class Webhooks:
    """All webhooks; the first use of a name creates one."""

    folder: Path
    on_close: Callable[[Callable[[], None]], object]
    """Registers functions to call when the emulator ends."""
    _by_name: dict[str, Webhook] = field(default_factory=dict)

    def get(self, name: str) -> Webhook:
        """Return the webhook called `name`. Raises ValueError for a bad name, or if there are too many webhooks."""
        if name in self._by_name:
            return self._by_name[name]
        if not _NAME.fullmatch(name) or len(self._by_name) >= MAX_WEBHOOKS:
            raise ValueError(f"a webhook's name is letters, digits, - and _, and there are at most {MAX_WEBHOOKS}")
        journal = Journal(self.folder / f"webhook-{name}.jsonl", limit=MAX_KEPT)
        self.on_close(journal.close)
        self._by_name[name] = Webhook(journal=journal)
        return self._by_name[name]


def may_publish(headers: Mapping[str, str], key: str, now: datetime) -> bool:
    """Whether `headers` have the key, or a signature that is valid at `now`; without a key anyone may publish."""
    if not key:
        return True
    presented = headers.get("aeg-sas-key", "")
    token = headers.get("aeg-sas-token", "") or headers.get("Authorization", "").removeprefix(
        "SharedAccessSignature "
    )
    return hmac.compare_digest(presented.encode(), key.encode()) or _signed(token, key, now)


def _signed(token: str, key: str, now: datetime) -> bool:
    """Check ``r={resource}&e={expiry}&s={signature}``, the format of `azure.eventgrid.generate_sas`."""
    unsigned, separator, signature = token.rpartition("&s=")
    if not separator:
        return False
    try:
        secret = base64.b64decode(key, validate=True)
        expiry = datetime.strptime(parse_qs(unsigned)["e"][0][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except (binascii.Error, KeyError, ValueError):
        return False
    expected = base64.b64encode(hmac.new(secret, unsigned.encode(), hashlib.sha256).digest())
    return hmac.compare_digest(unquote(signature).encode(), expected) and expiry > now
