"""The HTTP API's client: what it sends, and what it makes of answers."""

from __future__ import annotations

import json

import httpx
import pytest

from cli.errors import CliError
from cli.remote.api_client import ApiClient, ApiError
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import FunctionApp, served


def test_the_key_goes_into_the_header() -> None:
    """A key in the address would end up in logs."""
    app = FunctionApp(body={"runs": []})
    with app.client() as client:
        client.runs()
    assert ("secret", "https://app.example/api/runs") == (
        app.requests[0].headers["x-functions-key"],
        str(app.requests[0].url),
    )


@pytest.mark.parametrize(
    "url", ["http://app.example", "http://127.0.0.1.example:80", "http://me@localhost@app.example"]
)
def test_a_key_leaves_this_machine_encrypted_only(url: str) -> None:
    """Anyone on the way would read it; a host of this machine is one by its name, not by a part of it."""
    with pytest.raises(CliError, match="would send the function key unencrypted: it must start with https://"):
        ApiClient(url, "secret")


@pytest.mark.parametrize("url", ["http://127.0.0.1:7071", "http://localhost:7071", "http://[::1]:7071"])
def test_a_twin_gets_its_key_without_encryption(url: str) -> None:
    """Nothing leaves the machine."""
    with ApiClient(url, "secret") as client:
        assert url == client.url


def test_names_are_quoted() -> None:
    """A name cannot change the path."""
    app = FunctionApp(body={})
    with app.client() as client:
        client.dataset_version("a/b", "c?d")
    assert b"/api/datasets/a%2Fb/c%3Fd" == app.requests[0].url.raw_path


def test_a_submission_carries_its_overrides() -> None:
    """The body has dataset, version and overrides."""
    app = FunctionApp(body={"run_id": "r"})
    with app.client() as client:
        answer = client.submit("digits", "v1", {"epochs": 3})
    sent = json.loads(app.requests[0].content)
    assert ({"run_id": "r"}, {"dataset": "digits", "version": "v1", "overrides": {"epochs": 3}}) == (answer, sent)


def test_a_refusal_is_the_message_of_the_function_app() -> None:
    """Code and message come from the answer."""
    body = {"code": "not_found", "detail": "There is no run x.", "errors": [{"detail": "looked in the ledger"}]}
    with FunctionApp(404, body).client() as client, pytest.raises(ApiError) as caught:
        client.run("x")
    expected = (404, "not_found", "There is no run x.\n  looked in the ledger")
    assert expected == (caught.value.status, caught.value.code, caught.value.message)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_where_to_give_one(status: int) -> None:
    """The message names the option and the variable."""
    refused = pytest.raises(ApiError, match="pass --key or set LANDFALL_FUNCTION_KEY")
    with FunctionApp(status, text="").client(key=None) as client, refused:
        client.runs()


@pytest.mark.parametrize("text", ["<html>", "[1]"])
def test_an_answer_that_is_no_landfall_function_apps_is_reported(text: str) -> None:
    """A page where JSON was expected is reported, not shown."""
    with FunctionApp(text=text).client() as client, pytest.raises(CliError, match="Is this a Landfall function app"):
        client.run("x")


def test_a_forced_submission_has_a_key_of_its_own() -> None:
    """Sent once more by whatever stands in between, it is the same request; asked for again, it is another."""
    app = FunctionApp(body={"run_id": "r"})
    with app.client() as client:
        for _ in range(2):
            client.submit("digits", "v1", {}, force=True)
    keys = {request.headers["Idempotency-Key"] for request in app.requests}
    assert (2, True) == (len(keys), json.loads(app.requests[0].content)["force"])


def test_a_run_is_canceled_by_name() -> None:
    """One POST."""
    app = FunctionApp(body={"run_id": "r", "state": "canceled"})
    with app.client() as client:
        answer = client.cancel("landfall-x-a1")
    assert ("canceled", "POST", b"/api/runs/landfall-x-a1/cancel") == (
        answer["state"],
        app.requests[0].method,
        app.requests[0].url.raw_path,
    )


def test_a_terminal_obeys_no_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    """An error message's escapes are spelt out, like those of any answer."""
    with served({"code": "x", "detail": "no \x1b]0;title\x07"}, status=400) as url:
        _, _, err = landfall(capsys, "runs", "--url", url)
    assert "Error: no \\x1b]0;title\\x07\n" == err


def test_an_answer_without_an_expected_member_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    """It may come from an older function app, or from none."""
    with served({"run_id": "landfall-x-a1"}) as url:
        status, _, err = landfall(capsys, "run", "landfall-x-a1", "--url", url)
    assert (1, True) == (status, f"{url}: the answer lacks 'state'. Is it a Landfall function app" in err)


def answering(*answers: httpx.Response) -> tuple[ApiClient, list[httpx.Request], list[float]]:
    """A client of an app that gives these answers, its requests, and how long it waits between them."""
    requests: list[httpx.Request] = []
    waits: list[float] = []
    following = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return next(following)

    client = ApiClient("https://app.example", "k", transport=httpx.MockTransport(answer), wait=waits.append)
    return client, requests, waits


def test_a_request_that_came_too_soon_is_sent_again_when_the_app_says() -> None:
    """Under the same key; no answer makes it wait for long."""
    busy = [httpx.Response(429, headers={"Retry-After": text}) for text in ("7", "999999", "soon")]
    client, requests, waits = answering(*busy, httpx.Response(202, json={"state": "queued"}))
    assert {"state": "queued"} == client.post("/api/reconcile")
    assert [7.0, 30.0, 1.0] == waits
    assert 1 == len({request.headers["Idempotency-Key"] for request in requests})


def test_an_app_that_stays_busy_is_an_error() -> None:
    """The error has the app's own text."""
    problem = {"code": "too_many_requests", "detail": "more than 2 requests in a minute"}
    client, requests, _ = answering(*[httpx.Response(429, json=problem) for _ in range(9)])
    with pytest.raises(ApiError, match="more than 2 requests in a minute"):
        client.get("/api/runs")
    assert 4 == len(requests)


def test_what_is_asked_again_is_sent_once() -> None:
    """The second answer says that nothing has changed; another address is asked without a condition."""
    first, other = (httpx.Response(200, json={"n": n}, headers={"ETag": f'"{n}"'}) for n in (1, 2))
    client, requests, _ = answering(first, httpx.Response(304, headers={"ETag": '"1"'}), other)
    assert [{"n": 1}, {"n": 1}, {"n": 2}] == [client.get(path) for path in ("/api/a", "/api/a", "/api/b")]
    assert [None, '"1"', None] == [request.headers.get("If-None-Match") for request in requests]
