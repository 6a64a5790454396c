"""Requests to the web app, as the Functions worker passes them on."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

from function_app.config.settings import SignIn
from function_app.services import Services
from function_app.web.app import build_pages_app, build_web_app
from function_app.web.routes import router
from tests.support.world import World


def ask(services: Callable[[], Services], method: str, path: str, **request: Any) -> httpx.Response:
    """Return the response of the web app with these services, after checking that its status is documented."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_web_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://landfall") as client:
            return await client.request(method, path, **request)

    answer = asyncio.run(send())
    documented = _documented(method, answer.request.url.path)
    assert not documented or str(answer.status_code) in documented, f"{method} {path}: status {answer.status_code}"
    return answer


def _documented(method: str, path: str) -> set[str]:
    """Return the statuses that the OpenAPI document lists for a request; none if no route answers it."""
    scope = {"type": "http", "method": method, "path": path}
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    matching = [route.path for route in routes if route.matches(scope)[0] is Match.FULL]
    return {status for template in matching[:1] for status in _paths()[_shown(template)][method.lower()]["responses"]}


def _shown(template: str) -> str:
    """Return a route's path as the document shows it, without converters."""
    return template.replace(":any_text}", "}")


@cache
def _paths() -> dict[str, Any]:
    app = FastAPI()
    app.include_router(router)
    paths: dict[str, Any] = app.openapi()["paths"]
    return paths


def call(world: World, method: str, path: str, **request: Any) -> httpx.Response:
    """Return the response of a world's API."""
    return ask(lambda: world.services, method, path, **request)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error response, after checking its shape."""
    members = answer.json()
    assert "application/problem+json" == answer.headers["Content-Type"]
    assert {"type", "title", "status", "detail", "code", "errors"} == set(members)
    assert (answer.status_code, f"/api/docs#{members['code']}") == (members["status"], members["type"])
    assert members["detail"]
    return answer.status_code, members["code"]


def look(world: World, path: str, *, sign_in: SignIn = SignIn.NONE, **headers: str) -> httpx.Response:
    """Return the page at a path, as a browser at this machine gets it."""
    services = replace(world.services, pages_sign_in=sign_in)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_pages_app(lambda: services))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7071") as client:
            return await client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return asyncio.run(send())


def send_form(
    world: World,
    path: str,
    *,
    key: str,
    headers: Mapping[str, str],
    sign_in: SignIn = SignIn.NONE,
    **fields: str,
) -> httpx.Response:
    """Return the answer to a form of a page, with what a browser says of where it comes from."""
    services = replace(world.services, pages_sign_in=sign_in)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_pages_app(lambda: services))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7071") as client:
            return await client.post(path, data={"key": key, **fields}, headers=dict(headers))

    return asyncio.run(send())


def principal(*claims: tuple[str, str], **members: Any) -> str:
    """Return the header of App Service authentication."""
    named = [{"typ": kind, "val": value} for kind, value in claims]
    return base64.b64encode(json.dumps({"auth_typ": "aad", "claims": named, **members}).encode()).decode()
