"""The webhook to which Event Grid delivers, `/runtime/webhooks/eventgrid?functionName=X&code=KEY`.

Behaviour after the Event Grid extension of the Functions host: it answers the handshakes itself, calls the
function once per event, and fails the whole request when one event fails.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.worker import TypedData
from local_azure.http_server import refusal

MAX_EVENTS = 5_000
"""Event Grid's largest batch: https://learn.microsoft.com/azure/event-grid/delivery-and-retry."""


async def receive(
    request: web.Request, functions: Mapping[str, Function], invoker: Invoker, system_key: str
) -> web.Response:
    """Answer one request of Event Grid."""
    name = request.query.get("functionName", "")
    if system_key and not hmac.compare_digest(request.query.get("code", "").encode(), system_key.encode()):
        return refusal(401, "the code in the query is not the system key")
    function = functions.get(name.lower())
    if function is None:
        return refusal(404, f"there is no function with an Event Grid trigger called {name!r}")
    if request.method == "OPTIONS":
        return _cloud_events_handshake(request)
    kind = request.headers.get("aeg-event-type", "").lower()
    if kind == "unsubscribe":
        return web.Response(status=202)
    return await _receive_events(request, function, invoker, kind)


async def _receive_events(request: web.Request, function: Function, invoker: Invoker, kind: str) -> web.Response:
    try:
        events = _events(await request.read())
    except ValueError as error:
        return refusal(400, str(error))
    if kind == "subscriptionvalidation":
        return _handshake(events)
    if kind != "notification" and "cloudevents" not in request.content_type:
        return refusal(400, f"the header aeg-event-type has an unknown value: {kind!r}")
    calls = [invoker.invoke(function, TypedData(json=json.dumps(event))) for event in events]
    failed = [outcome for outcome in await asyncio.gather(*calls) if not outcome.succeeded]
    return refusal(500, failed[0].error) if failed else web.Response(status=202)


def _events(body: bytes) -> list[dict[str, Any]]:
    try:
        content = json.loads(body)
    except ValueError as error:
        raise ValueError(f"the body must be JSON: {error}") from error
    events = content if isinstance(content, list) else [content]
    if not events or len(events) > MAX_EVENTS or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"the body must be an event or an array of 1 to {MAX_EVENTS} events")
    return events


def _handshake(events: list[dict[str, Any]]) -> web.Response:
    data = events[0].get("data")
    code = data.get("validationCode") if isinstance(data, dict) else None
    if not isinstance(code, str):
        return refusal(400, "a SubscriptionValidation event must carry data.validationCode")
    return web.json_response({"validationResponse": code})


def _cloud_events_handshake(request: web.Request) -> web.Response:
    """https://github.com/cloudevents/spec/blob/v1.0/http-webhook.md#4-abuse-protection."""
    origin = request.headers.get("WebHook-Request-Origin", "eventgrid.azure.net")
    return web.Response(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})
