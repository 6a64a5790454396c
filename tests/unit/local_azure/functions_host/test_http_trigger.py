from __future__ import annotations

import pytest

from local_azure.functions_host.functions import Function
from local_azure.functions_host.http_trigger import find_route, make_routes
from local_azure.functions_host.settings import BindingError
from tests.unit.local_azure.functions_host.worker_double import make_trigger


def _http(route: str | None, *methods: str, name: str = "") -> Function:
    return make_trigger("httpTrigger", name or (route or "f"), route=route, methods=list(methods))


ALL = [
    _http("{*rest}"),
    _http("items/{id}"),
    _http("items/{id:int}"),
    _http("items/new"),
    _http("items/{id}/parts/{part?}"),
    _http("files/{name}.{ext}"),
    _http("health", "GET"),
]


@pytest.mark.parametrize(
    ("method", "path", "expected", "parameters"),
    [
        ("GET", "/items/new", "items/new", {}),
        ("GET", "/ITEMS/New/", "items/new", {}),
        ("GET", "/items/12", "items/{id:int}", {"id": "12"}),
        ("GET", "/items/x12", "items/{id}", {"id": "x12"}),
        ("GET", "/items/a%2Fb%20c", "items/{id}", {"id": "a/b c"}),
        ("GET", "/items/1/parts", "items/{id}/parts/{part?}", {"id": "1"}),
        ("GET", "/items/1/parts/2", "items/{id}/parts/{part?}", {"id": "1", "part": "2"}),
        ("GET", "/files/a.tar.gz", "files/{name}.{ext}", {"name": "a.tar", "ext": "gz"}),
        ("GET", "/health", "health", {}),
        ("POST", "/health", "{*rest}", {"rest": "health"}),
        ("GET", "/", "{*rest}", {}),
        ("GET", "/a/b//c", "{*rest}", {"rest": "a/b//c"}),
    ],
)
def test_the_most_specific_route_answers(method: str, path: str, expected: str, parameters: dict[str, str]) -> None:
    """A literal beats a constrained parameter beats a parameter beats a catch-all; a wrong method is no match."""
    match = find_route(make_routes(ALL, ""), method, path)

    assert match is not None
    assert (expected, parameters) == (match.function.name, match.parameters)


def test_the_prefix_stands_before_every_route() -> None:
    """Without the prefix nothing matches; with it, a function without a route answers to its name."""
    routes = make_routes([_http(None, name="say")], "api")

    assert ["api/say"] == [route.template for route in routes]
    assert find_route(routes, "GET", "/say") is None
    assert find_route(routes, "GET", "/api/say") is not None


def test_other_triggers_and_disabled_functions_have_no_route() -> None:
    """Only enabled HTTP functions have one."""
    disabled = Function(name="off", function_id="1", bindings=_http("off").bindings, disabled=True)

    assert [] == make_routes([make_trigger("queueTrigger"), disabled], "")


@pytest.mark.parametrize("route", ["a/{id:regex(^x$)}", "a/{id:int:min}", "a/{", "a/{b c}"])
def test_a_template_that_is_not_understood_is_refused(route: str) -> None:
    """The function is named rather than its route ignored."""
    with pytest.raises(BindingError, match="function odd has"):
        make_routes([_http(route, name="odd")], "")
