"""The app as the Functions host reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from azure.functions import HttpRequest, HttpResponse
from azure.functions.decorators.function_app import FunctionRegister

import function_app
from function_app.functions import _middleware, _pages_middleware, build_app
from tests.support.world import World


def bindings() -> dict[str, dict[str, Any]]:
    """The trigger of every function, by the function's name."""
    return {
        str(function.get_function_name()): next(
            one for one in map(json.loads, function.get_raw_bindings()) if one["type"].lower().endswith("trigger")
        )
        for function in build_app().get_functions()
    }


def test_exactly_one_name_is_an_app() -> None:
    """The worker refuses a module with none, and one with two names for it."""
    names = [name for name in dir(function_app) if isinstance(getattr(function_app, name), FunctionRegister)]
    assert ["app"] == names


def test_the_functions_are_those_that_the_deployment_wires() -> None:
    """Event subscriptions, queues and settings name them."""
    queued = ["shard_uploaded", "shard_uploaded_bulk", "training_requested"]
    assert [
        *queued,
        "run_changed",
        "reconcile",
        "sweep_requested",
        "health",
        "api_docs",
        "http_api",
        "pages",
    ] == list(bindings())


def test_queue_triggers_read_the_queues_of_the_host_account() -> None:
    """A premium account has no queues."""
    found = bindings()
    names = ("shard_uploaded", "shard_uploaded_bulk", "training_requested", "run_changed", "sweep_requested")
    seen = [(found[name]["queueName"], found[name]["connection"]) for name in names]
    assert [(name.replace("_", "-"), "AzureWebJobsStorage") for name in names] == seen


def test_the_timer_takes_its_schedule_from_a_setting() -> None:
    """Operators slow it down or speed it up without a deployment of code."""
    timer = bindings()["reconcile"]
    assert ("%LANDFALL_RECONCILE_SCHEDULE%", False) == (timer["schedule"], timer["runOnStartup"])


def test_health_and_the_pages_are_open_and_the_api_is_not() -> None:
    """A load balancer and a browser have no key; the pages ask for a person themselves."""
    found = bindings()
    seen = [(found[n]["route"], found[n]["authLevel"]) for n in ("health", "api_docs", "http_api", "pages")]
    anonymous = [("api/health", "ANONYMOUS"), ("api/docs", "ANONYMOUS")]
    assert [*anonymous, ("api/{*route}", "FUNCTION"), ("{*page}", "ANONYMOUS")] == seen


def test_the_page_of_the_api_is_shown_without_a_key() -> None:
    """It is the same for everyone, with the headers of every page."""
    (docs,) = (one for one in build_app().get_functions() if one.get_function_name() == "api_docs")
    answer: HttpResponse = asyncio.run(docs.get_user_function()(HttpRequest("GET", "/api/docs", body=b"")))
    assert (200, "text/html; charset=utf-8") == (answer.status_code, answer.mimetype)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("path", ["/api/runs", "//api/runs", "/%61pi/runs", "/x/../api/runs", "/api%2Fruns"])
def test_no_spelling_of_a_path_reaches_the_api_without_a_key(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host decides by the path as it was sent; an app that decodes it must not find the API behind it."""
    world = World()
    monkeypatch.setattr("function_app.functions.services", lambda: world.services)
    _pages_middleware.cache_clear()
    (pages,) = (one for one in build_app().get_functions() if one.get_function_name() == "pages")
    request = HttpRequest("GET", f"http://127.0.0.1{path}", headers={"host": "127.0.0.1"}, body=b"")
    answer: HttpResponse = asyncio.run(pages.get_user_function()(request, None))
    _pages_middleware.cache_clear()
    assert (404, "text/html; charset=utf-8") == (answer.status_code, answer.mimetype)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://host/api/runs/%ff", {}),
        ("http://host/api/runs", {"x-name": "caf\udce9"}),
        ("http://[/api/runs", {}),
        ("http://host:99999/api/runs", {}),
    ],
)
def test_a_request_that_the_runtime_cannot_decode_is_malformed(url: str, headers: dict[str, str]) -> None:
    """Bytes that are no UTF-8 reach the runtime as lone surrogates; the error has the API's shape."""
    (api,) = (one for one in build_app().get_functions() if one.get_function_name() == "http_api")
    request = HttpRequest("GET", url, headers=headers, body=b"")
    answer: HttpResponse = asyncio.run(api.get_user_function()(request, None))
    body = json.loads(answer.get_body())
    assert (400, "malformed_request", []) == (answer.status_code, body["code"], body["errors"])
    assert "application/problem+json" == answer.mimetype


def test_an_encoded_line_break_reaches_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer about a blob whose name has one is the API's own, not that of a path without a route."""
    world = World()
    monkeypatch.setattr("function_app.functions.services", lambda: world.services)
    _middleware.cache_clear()
    (api,) = (one for one in build_app().get_functions() if one.get_function_name() == "http_api")
    request = HttpRequest("GET", "http://host/api/why/digits/v1/a%0Ab", headers={}, body=b"")
    answer: HttpResponse = asyncio.run(api.get_user_function()(request, None))
    _middleware.cache_clear()
    message = json.loads(answer.get_body())["detail"]
    assert (404, True) == (answer.status_code, message.startswith("digits/v1/a\\nb matches no pipeline"))
