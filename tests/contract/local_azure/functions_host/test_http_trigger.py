from __future__ import annotations

import pytest

from tests.contract.local_azure.dev_host import DevHost

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("functions_host")]


def test_route_parameters_query_headers_and_method_reach_the_function(dev_host: DevHost) -> None:
    """The function receives all of them, with an encoded slash kept inside a parameter."""
    answer = dev_host.request("PUT", "/items/a%2Fb/12?x=1&x=2&y=z", headers={"X-Test": "seen"}, content=b"12345")

    assert {
        "method": "PUT",
        "route": {"kind": "a/b", "id": "12"},
        "query": {"x": "1,2", "y": "z"},
        "header": "seen",
        "url": f"{dev_host.url}/items/a%2Fb/12?x=1&x=2&y=z",
        "length": 5,
    } == answer.json()
    assert "yes" == answer.headers["X-Answer"]


def test_a_literal_beats_a_parameter(dev_host: DevHost) -> None:
    """If two templates match, the one with the literal answers, and its cookie arrives."""
    answer = dev_host.request("GET", "/items/special/9")

    assert "special" == answer.text
    assert "a=1; Path=/; HttpOnly" == answer.headers["Set-Cookie"]


def test_what_no_function_matches_goes_to_the_catch_all(dev_host: DevHost) -> None:
    """A value that breaks a constraint and an unlisted method do not match: FastAPI returns "not found"."""
    answers = [dev_host.request("GET", "/items/a/no-number"), dev_host.request("DELETE", "/items/a/12")]

    assert [(404, {"detail": "Not Found"})] * 2 == [(answer.status_code, answer.json()) for answer in answers]


def test_a_failing_function_gives_500_without_a_body(dev_host: DevHost) -> None:
    """The caller learns nothing about the exception; the log has it with its line."""
    answer = dev_host.request("GET", "/broken")

    assert (500, b"") == (answer.status_code, answer.content)
    line = dev_host.process.await_line("failed: ValueError: broken on purpose: GET")
    assert "invocation of broken " in line
    assert "function_app.py, line " in line


def test_fastapi_behind_the_catch_all_sees_the_request(dev_host: DevHost) -> None:
    """An ASGI app receives path, query and headers as if it had been called directly."""
    answer = dev_host.request("GET", "/web/hello/bob%20x?a=b", headers={"X-Test": "seen"})

    assert {"name": "bob x", "query": {"a": "b"}, "header": "seen"} == answer.json()


def test_any_character_of_a_path_reaches_the_app(dev_host: DevHost) -> None:
    """This includes a line break: the app itself must handle it."""
    assert ["a\nb", "a\x00"] == [
        dev_host.request("GET", f"/web/hello/{name}").json()["name"] for name in ("a%0Ab", "a%00")
    ]


def test_bytes_and_cookies_survive_the_asgi_app(dev_host: DevHost) -> None:
    """Any byte is returned, with the status and the cookie's attributes that FastAPI set."""
    body = bytes(range(256)) * 40
    answer = dev_host.request("POST", "/web/echo", content=body)

    assert (201, body) == (answer.status_code, answer.content)
    cookie = {part.strip() for part in answer.headers["Set-Cookie"].split(";")}
    assert {"session=a b", "Max-Age=60", "Path=/", "HttpOnly", "SameSite=Lax"} == cookie


def test_log_records_name_the_function_and_their_extra_fields(dev_host: DevHost) -> None:
    """The app's record is a readable line, followed by its fields."""
    dev_host.request("GET", "/items/special/77")

    line = dev_host.process.await_line("item=77")
    assert line.endswith("INFO    special fixture_app: special was called  action=special  item=77")
