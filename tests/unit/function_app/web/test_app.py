"""The web app around its routes: errors of one shape, bounded requests, and the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError, SettingsError
from function_app.services import Services
from function_app.web.app import MAX_BODY_BYTES, build_api_page
from function_app.web.errors import PATTERNS_IN_WORDS, codes
from tests.support.world import World
from tests.unit.function_app.web.client import ask, call, error


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/api/datasets/letters/v1", None, (404, "not_found")),
        ("GET", "/api/datasets/digits/v9", None, (404, "not_found")),
        ("GET", f"/api/datasets/digits/{'v' * 65}", None, (422, "invalid_request")),
        ("GET", "/api/runs/landfall-unknown-a1", None, (404, "not_found")),
        ("GET", "/api/runs/a%20b", None, (422, "invalid_request")),
        ("GET", "/api/runs?limit=0", None, (422, "invalid_request")),
        ("GET", "/api/runs?limit=1001", None, (422, "invalid_request")),
        ("GET", "/nowhere", None, (404, "not_found")),
        ("DELETE", "/api/runs", None, (405, "method_not_allowed")),
        ("POST", "/api/runs", {}, (422, "invalid_request")),
        ("POST", "/api/runs", {"dataset": "digits", "version": "v1", "script": "x"}, (422, "invalid_request")),
        ("POST", "/api/runs", {"dataset": "letters", "version": "v1"}, (404, "not_found")),
        (
            "POST",
            "/api/runs",
            {"dataset": "digits", "version": "v1", "overrides": {"num_nodes": 9}},
            (422, "override_not_allowed"),
        ),
        (
            "POST",
            "/api/runs",
            {"dataset": "digits", "version": "v1", "overrides": {"epochs": []}},
            (422, "invalid_request"),
        ),
    ],
)
def test_every_error_has_the_one_shape(method: str, path: str, body: Any, expected: tuple[int, str]) -> None:
    """Each has a stable code and a message."""
    assert expected == error(call(World(), method, path, json=body))


def test_a_body_that_is_not_json_is_refused() -> None:
    """The error has the usual shape."""
    assert (422, "invalid_request") == error(call(World(), "POST", "/api/runs", content=b"{"))


@pytest.mark.parametrize(
    "body",
    [
        rb'{"dataset": "\ud800"}',
        rb'{"dataset": "digits", "\ud800": 1}',
        rb'{"dataset": "digits", "overrides": {"\ud800": 1}}',
        rb'{"dataset": "digits", "overrides": {"optimizer": "\ud800"}}',
        b"[" * MAX_BODY_BYTES,
        b'{"dataset": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_no_answer_could_quote_is_malformed(body: bytes) -> None:
    """A lone surrogate is valid JSON, but no text; nesting and digits have bounds."""
    answer = call(World(), "POST", "/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert (400, "malformed_request") == error(answer)


def test_an_error_that_quotes_a_lone_surrogate_spells_it_out() -> None:
    """An answer is UTF-8 wherever its message comes from."""
    answer = ask(_raising(ServiceUnavailableError("blob \ud800 did not answer")), "GET", "/api/runs")
    assert (503, "service_unavailable") == error(answer)
    assert "blob \\ud800 did not answer" == answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/runs", "GET, POST"),
        ("OPTIONS", "/api/runs/landfall-x-a1", "GET"),
        ("DELETE", "/api/reconcile", "GET, POST"),
        ("HEAD", "/api/why/digits/v1", "GET"),
        ("POST", "/api/openapi.json", "GET"),
    ],
)
def test_a_wrong_method_is_answered_with_those_that_are_right(method: str, path: str, allowed: str) -> None:
    """All methods of the path, although each is a route of its own."""
    answer = call(World(), method, path)
    assert (405, allowed) == (answer.status_code, answer.headers["Allow"])


def test_a_body_beyond_the_bound_is_refused() -> None:
    """No request of this API is as large."""
    answer = call(World(), "POST", "/api/runs", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (413, "body_too_large") == error(answer)


def _raising(problem: Exception) -> Callable[[], Services]:
    def services() -> Services:
        raise problem

    return services


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (SettingsError("LANDFALL_WORKSPACE is not set"), (503, "misconfigured")),
        (ServiceUnavailableError("storage did not answer"), (503, "service_unavailable")),
        (ZeroDivisionError("secret detail"), (500, "internal")),
    ],
)
def test_no_stack_trace_leaves(problem: Exception, expected: tuple[int, str]) -> None:
    """The log has it; the response has the usual shape."""
    answer = ask(_raising(problem), "GET", "/api/runs")
    assert expected == error(answer)
    assert "secret" not in answer.text
    assert "LANDFALL_WORKSPACE" not in answer.text


def test_the_api_describes_itself() -> None:
    """The OpenAPI document lists every route with its errors."""
    document = call(World(), "GET", "/api/openapi.json").json()
    routes = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert {
        ("/api/datasets", "get"),
        ("/api/datasets/{dataset}", "get"),
        ("/api/models", "get"),
        ("/api/models/{name}", "get"),
        ("/api/datasets/{dataset}/{version}", "get"),
        ("/api/datasets/{dataset}/{version}/release", "post"),
        ("/api/models/{name}/versions/{version}", "get"),
        ("/api/models/{name}/versions/{version}/passport", "get"),
        ("/api/models/{name}/versions/{version}/verification", "get"),
        ("/api/models/{name}/versions/{version}/promote", "post"),
        ("/api/spending", "get"),
        ("/api/doctor", "get"),
        ("/api/pipelines", "get"),
        ("/api/pipelines/{dataset}/notifications/test", "post"),
        ("/api/runs", "get"),
        ("/api/runs", "post"),
        ("/api/runs/{run_id}", "get"),
        ("/api/runs/{run_id}/logs", "get"),
        ("/api/runs/{run_id}/metrics", "get"),
        ("/api/datasets/{dataset}/{version}/shards", "get"),
        ("/api/runs/{run_id}/ranks", "get"),
        ("/api/runs/{run_id}/cancel", "post"),
        ("/api/runs/{run_id}/register", "post"),
        ("/api/compare", "get"),
        ("/api/sweeps", "post"),
        ("/api/sweeps/{sweep_id}", "get"),
        ("/api/sweeps/{sweep_id}/cancel", "post"),
        ("/api/why/{subject}", "get"),
        ("/api/spending", "get"),
        ("/api/overview", "get"),
        ("/api/reconcile", "get"),
        ("/api/reconcile", "post"),
        ("/api/datasets/{dataset}/{version}/plan", "get"),
        ("/api/spending", "get"),
        ("/api/dead-letters", "get"),
        ("/api/dead-letters/{dead_letter_id}", "get"),
        ("/api/dead-letters/{dead_letter_id}/replay", "post"),
    } == routes
    run = document["paths"]["/api/runs"]["post"]["responses"]
    assert ["200", "202", "400", "401", "404", "405", "409", "413", "422", "429", "500", "503"] == sorted(run)
    assert {"#/components/schemas/Problem"} == {
        run[status]["content"]["application/problem+json"]["schema"]["$ref"] for status in run if status > "401"
    }


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        (
            "POST",
            "/api/runs",
            {"dataset": 7},
            {"detail": "dataset: Input should be a valid string", "pointer": "#/dataset"},
        ),
        (
            "POST",
            "/api/runs",
            {"dataset": "d", "a/b~": 1},
            {"detail": "a/b~: Extra inputs are not permitted", "pointer": "#/a~1b~0"},
        ),
        (
            "POST",
            "/api/runs",
            {"dataset": "digits", "version": "v1", "overrides": {"epochs": 0}},
            {"detail": "epochs: expected at least 1, got 0", "pointer": "#/overrides/epochs"},
        ),
        (
            "GET",
            "/api/runs?limit=0",
            None,
            {"detail": "query limit: Input should be greater than or equal to 1", "parameter": "limit"},
        ),
        (
            "GET",
            "/api/runs?stat=failed&code=key",
            None,
            {
                "detail": "query stat: There is no such parameter; known are after, dataset, limit, state",
                "parameter": "stat",
            },
        ),
        (
            "POST",
            "/api/reconcile?force=true",
            None,
            {"detail": "query force: There is no such parameter; there are none", "parameter": "force"},
        ),
    ],
)
def test_a_problem_names_the_place_in_the_request(
    method: str, path: str, body: Any, expected: dict[str, str]
) -> None:
    """A member of the body by its JSON Pointer, a parameter by its name."""
    world = World()
    world.finish(world.upload_version())
    answer = call(world, method, path, json=body)
    assert 422 == error(answer)[0]
    assert [expected] == answer.json()["errors"]
    assert expected["detail"] in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        (
            "GET",
            "/api/models/x%20y",
            None,
            "path name: must be letters, digits, - . and _, beginning with a letter or digit",
        ),
        ("POST", "/api/runs/r/register", {"reason": " "}, "reason: must not be blank"),
    ],
)
def test_a_text_that_does_not_match_its_pattern_is_refused_in_words(
    method: str, path: str, body: Any, detail: str
) -> None:
    """A person reads it in a terminal, and need not read regular expressions."""
    assert detail == call(World(), method, path, json=body).json()["detail"]


def test_every_pattern_of_the_api_is_known_in_words() -> None:
    """A new pattern needs its words, because pydantic's message shows the pattern."""
    document = json.dumps(call(World(), "GET", "/api/openapi.json").json())
    patterns = {json.loads(found) for found in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', document)}
    assert set(PATTERNS_IN_WORDS) == patterns


def test_a_header_that_is_read_twice_is_one_problem() -> None:
    """The route of runs binds the key to what it starts, and every POST checks it."""
    answer = call(World(), "POST", "/api/runs", json={"dataset": "digits"}, headers={"Idempotency-Key": "a b"})
    assert ["Idempotency-Key"] == [part["parameter"] for part in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("method", "path", "content", "words"),
    [
        ("GET", "/api/run", b"", "/api/docs lists those that it has"),
        ("DELETE", "/api/runs", b"", "the header Allow lists"),
        ("POST", "/api/runs", b"[" * 30_000, "cannot be read as JSON: it is no UTF-8, nested too deeply"),
    ],
)
def test_what_no_route_takes_is_answered_in_whole_sentences(
    method: str, path: str, content: bytes, words: str
) -> None:
    """They say what to do instead."""
    answer = call(World(), method, path, content=content, headers={"Content-Type": "application/json"})
    assert words in answer.json()["detail"]


def test_text_that_is_not_json_is_shown_its_place() -> None:
    """The place is a character, because there is no member to name."""
    answer = call(
        World(), "POST", "/api/runs", content=b'{"dataset": x}', headers={"Content-Type": "application/json"}
    )
    assert ["body, character 12: JSON decode error"] == [part["detail"] for part in answer.json()["errors"]]


def test_the_page_of_the_api_shows_every_request_problem_and_body() -> None:
    """Each kind of problem has the anchor that its type ends with."""
    text = bytes(build_api_page().body).decode()
    document = call(World(), "GET", "/api/openapi.json").json()
    for path, operations in document["paths"].items():
        assert all(2 == text.count(f"<code>{method.upper()} {path}</code>") for method in operations), path
    linked = re.findall(r'href="#([^"]+)"', text)
    assert set() == set(linked) - set(re.findall(r'id="([^"]+)"', text))
    assert len(linked) > len(document["paths"])
    assert all(f'id="body-{name}"' in text for name in document["components"]["schemas"])
    assert all(f'id="{code}"' in text for code in codes())
    assert ([], False) == (re.findall(r".{40}\\n.{40}", text), "`" in text), "line breaks and marks of the document"
    assert "integer, at least 1, at most 1000, default 100" in text
