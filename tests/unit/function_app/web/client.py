"""Requests to the web app, as the Functions worker passes them on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from function_app.services import Services
from function_app.web.app import build_web_app
from tests.support.world import World


def ask(services: Callable[[], Services], method: str, path: str, **request: Any) -> httpx.Response:
    """Return the response of the web app with these services."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_web_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://landfall") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())


def call(world: World, method: str, path: str, **request: Any) -> httpx.Response:
    """Return the response of a world's API."""
    return ask(lambda: world.services, method, path, **request)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error response, after checking its shape."""
    members = answer.json()["error"]
    assert {"code", "message", "details"} == set(members)
    assert members["message"]
    return answer.status_code, members["code"]
