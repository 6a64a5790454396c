"""The emulator's HTTP interface: publishing, what was received, faults, webhooks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from local_azure.event_grid.broker import Broker, Topic
from local_azure.event_grid.errors import InvalidEventError
from local_azure.event_grid.events import MAX_BODY_BYTES, parse_events
from local_azure.event_grid.faults import parse_plan
from local_azure.event_grid.receivers import Receivers
from local_azure.event_grid.topic_key import may_publish

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class WebServer:
    """The handlers; ``application`` wires them to paths."""

    broker: Broker
    receivers: Receivers
    topic_key: str
    """Empty where anyone may publish."""

    def application(self) -> web.Application:
        """All paths."""
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
            return _refusal(401, "Unauthorized", "the header aeg-sas-key should hold the topic's key, does not")
        try:
            events = parse_events(request.content_type, await request.read(), topic.resource_id)
        except InvalidEventError as error:
            return _refusal(400, "BadRequest", str(error))
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
        given = await _json_object(request)
        topic = self._topic(str(given.pop("topic", "")))
        topic.gate.set_plan(parse_plan(given))
        return web.json_response(topic.gate.describe())

    async def _reset_faults(self, _request: web.Request) -> web.Response:
        """No faults from now on; what is held or kept back is let go."""
        released = {name: topic.end_faults() for name, topic in self.broker.topics.items()}
        return web.json_response({"released": released})

    async def _release(self, _request: web.Request) -> web.Response:
        return web.json_response({"released": {name: one.release() for name, one in self.broker.topics.items()}})

    async def _receive(self, request: web.Request) -> web.Response:
        receiver = self.receivers.get(request.match_info["name"])
        body = (await request.read()).decode("utf-8", errors="replace")
        status = receiver.receive(dict(request.headers), body)
        if status == 200 and request.headers.get("aeg-event-type") == "SubscriptionValidation":  # noqa: PLR2004 (OK)
            return web.json_response({"validationResponse": _validation_code(body)})
        return web.Response(status=status)

    async def _answer_badly(self, request: web.Request) -> web.Response:
        self.receivers.get(request.match_info["name"]).answer_badly(await _json_object(request))
        return web.Response(status=204)

    async def _webhook_received(self, request: web.Request) -> web.Response:
        return web.json_response(self.receivers.get(request.match_info["name"]).journal.since(_since(request)))

    def _topic(self, name: str) -> Topic:
        if name not in self.broker.topics:
            raise LookupError(f"topic should be one of {sorted(self.broker.topics)}, is {name!r}")
        return self.broker.topics[name]


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in the shape in which Azure's clients read them."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _refusal(413, "PayloadTooLarge", f"the body should be at most {MAX_BODY_BYTES} bytes")
    except LookupError as error:
        return _refusal(404, "NotFound", str(error))
    except ValueError as error:
        return _refusal(400, "BadRequest", str(error))


def _refusal(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def _since(request: web.Request) -> int:
    text = request.query.get("since", "0")
    if not text.isdecimal():
        raise ValueError(f"since should be the seq of the last entry seen, is {text!r}")
    return int(text)


async def _json_object(request: web.Request) -> dict[str, Any]:
    try:
        content = json.loads(await request.read())
    except ValueError as error:
        raise ValueError(f"the body should be JSON, is not: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("the body should be a JSON object")  # noqa: TRY004 (a wrong request, not a bug)
    return content


def _validation_code(body: str) -> str:
    try:
        return str(json.loads(body)[0]["data"]["validationCode"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("a SubscriptionValidation event should carry data.validationCode") from error
