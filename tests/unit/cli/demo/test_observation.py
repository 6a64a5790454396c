"""The demo asks what a run waits for, where it waits."""

from __future__ import annotations

from cli.demo.observation import awaited_by
from tests.unit.cli.fake_function_app import FunctionApp

PLANNED, SUBMITTED = {"run_id": "r", "state": "planned"}, {"run_id": "r", "state": "submitted"}


def test_a_run_that_stays_planned_waits_for_something() -> None:
    """Its history says for what."""
    app = FunctionApp(body={"awaited": ["its turn, behind run x"]})
    with app.client() as client:
        awaited = awaited_by(client, PLANNED, PLANNED)
    asked = [request.url.path for request in app.requests]
    assert (("its turn, behind run x",), ["/api/why/r"]) == (awaited, asked)


def test_a_run_on_its_way_is_not_asked_about() -> None:
    """Before there is one, at the first look, and once it goes."""
    app = FunctionApp(body={"awaited": ["its submission"]})
    with app.client() as client:
        awaited = [awaited_by(client, *looks) for looks in (({}, {}), ({}, PLANNED), (PLANNED, SUBMITTED))]
    assert ([(), (), ()], []) == (awaited, app.requests)
