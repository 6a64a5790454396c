"""The limit for each caller: whose requests are counted together, and what is said to one who sends too many."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from function_app.config.settings import SignIn
from function_app.domain.errors import SettingsError
from function_app.services import Services
from function_app.web.app import build_pages_app, build_web_app
from function_app.web.protocol.rate_limit import MAX_CALLERS, CallerLimits
from tests.support.world import World
from tests.unit.function_app.web.client import error


@dataclass
class Seconds:
    """A clock that a test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def asked(app: ASGIApp, *requests: dict[str, Any]) -> list[httpx.Response]:
    """Return the answers of one process to GET requests, one after the other."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7071") as client:
            return [await client.get(**{"url": "/api/pipelines", **request}) for request in requests]

    return asyncio.run(send())


def limited(per_minute: int = 2, **members: Any) -> Services:
    """Services that allow each caller a few requests."""
    return replace(World().services, requests_per_minute=per_minute, **members)


def test_a_caller_who_sends_too_many_hears_when_to_try_again() -> None:
    """A problem like all others, with Retry-After; other keys have requests of their own, in header and query."""
    services = limited()
    one, other = {"headers": {"x-functions-key": "one"}}, {"headers": {"x-functions-key": "other"}}
    by_query = {"url": "/api/pipelines?code=third"}
    answers = asked(build_web_app(lambda: services), one, one, one, other, by_query, by_query, by_query, {})
    assert [200, 200, 429, 200, 200, 200, 429, 200] == [answer.status_code for answer in answers]
    assert (429, "too_many_requests") == error(answers[2])
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 30


def test_a_claimed_address_makes_no_new_caller() -> None:
    """Anybody can write these headers."""
    services = limited()
    claimed = [{"headers": {"x-forwarded-for": f"10.0.0.{n}", "x-ms-client-principal-id": str(n)}} for n in range(3)]
    assert [200, 200, 429] == [a.status_code for a in asked(build_web_app(lambda: services), *claimed)]


def test_people_have_a_limit_each_and_their_page_says_what_to_do() -> None:
    """App Service authentication states their ids; files that all pages load are not counted."""
    services = limited(pages_sign_in=SignIn.NONE)
    page = {"url": "/pipelines", "headers": {"x-ms-client-principal-id": "ann"}}
    other = {"url": "/pipelines", "headers": {"x-ms-client-principal-id": "ben"}}
    file = {"url": "/static/page.css", "headers": {"x-ms-client-principal-id": "ann"}}
    answers = asked(build_pages_app(lambda: services), page, file, file, page, page, other)
    assert [200, 200, 200, 200, 429, 200] == [answer.status_code for answer in answers]
    assert "Wait" in answers[4].text
    assert "Retry-After" in answers[4].headers


def test_requests_come_back_as_time_passes() -> None:
    """No more than those of a minute are saved up."""
    seconds = Seconds()
    limits = CallerLimits(seconds=seconds)
    assert [0.0, 0.0] == [limits.wait_s("a", 2) for _ in range(2)]
    assert 30 == pytest.approx(limits.wait_s("a", 2))
    seconds.now = 30
    assert 0.0 == limits.wait_s("a", 2)
    seconds.now = 10_000
    assert [True, True, False] == [limits.wait_s("a", 2) == 0 for _ in range(3)]


def test_the_number_of_known_callers_is_bounded() -> None:
    """The one that has been away longest starts again."""
    limits = CallerLimits(seconds=Seconds())
    for number in range(MAX_CALLERS + 1):
        limits.wait_s(str(number), 1)
    assert [True, False] == [limits.wait_s(caller, 1) == 0 for caller in ("0", str(MAX_CALLERS))]


def test_a_misconfigured_app_answers_what_is_wrong() -> None:
    """Its limit is unknown, too."""

    def services() -> Services:
        raise SettingsError("LANDFALL_WORKSPACE is not set")

    assert [503] * 3 == [answer.status_code for answer in asked(build_web_app(services), {}, {}, {})]
