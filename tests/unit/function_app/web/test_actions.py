"""Actions of the pages: what they say, what they do, for whom, and that no other site can make a browser do them."""

from __future__ import annotations

import re

import httpx
import pytest

from function_app.config.settings import SignIn
from function_app.domain.jobs import ModelRegistration
from function_app.domain.records import OVERRIDE
from function_app.domain.run_states import RunState
from function_app.registry.promotion import current_model
from function_app.runs.registration import model_version
from function_app.sweep.sweep import sweep
from tests.support.world import VERSION, World, unregistered
from tests.unit.function_app.planning.worlds import planning_world
from tests.unit.function_app.web.client import call, look, principal, send_form

OWN = {"Sec-Fetch-Site": "same-origin"}


def key_of(page: httpx.Response) -> str:
    """Return the key in a page's form."""
    assert 200 == page.status_code, page.text
    found = re.search(r'name="key" value="(\w+)"', page.text)
    assert found is not None, page.text
    return found[1]


def confirm(world: World, path: str, **headers: str) -> httpx.Response:
    """Open a page that asks, and confirm it."""
    return send_form(world, path, key=key_of(look(world, path)), headers=headers or OWN)


def test_a_run_is_canceled_by_a_person_whose_name_is_on_record() -> None:
    """The page says what will happen; the history and the run say who asked."""
    world = World()
    run = world.upload_version()
    path = f"/runs/{run.run_id}/cancel"
    assert "no further attempt starts" in look(world, path).text
    answer = confirm(world, path)
    assert (303, f"/runs/{run.run_id}") == (answer.status_code, answer.headers["Location"])
    assert RunState.CANCELED is world.finish(run, "Canceled").state
    assert "canceled by you on a page" in (world.stands(run).cancel_reason or "")
    assert "you asked on a page to cancel it" in [entry.reason for entry in world.ledger.history(run.run_id)]


def test_a_version_is_trained_again_once_for_each_page_that_is_confirmed() -> None:
    """A double click, or a browser that repeats a request, starts no second run."""
    world = World()
    world.finish(world.upload_version())
    path = f"/datasets/{VERSION}/submit"
    page = look(world, path)
    assert "at most 1 h: at most 2.0 node-hours for each attempt" in page.text
    answers = [send_form(world, path, key=key_of(page), headers=OWN) for _ in range(3)]
    assert {303} == {answer.status_code for answer in answers}
    assert 1 == len({answer.headers["Location"] for answer in answers})
    assert 2 == len(world.ledger.runs())


def test_before_a_training_the_page_says_what_its_plan_expects() -> None:
    """The page states time and money at the plan's price, beside the maximum time."""
    world = planning_world()
    world.finish(world.upload_version())
    page = look(world, f"/datasets/{VERSION}/submit").text
    assert "at most 2.0 node-hours, 6.12 USD for each attempt" in page
    assert "The plan expects 7 min and 0.92 USD" in page
    assert '<button class="do">Train</button>' in page


def test_before_a_run_is_canceled_the_page_says_what_it_has_taken() -> None:
    """Canceling does not bring it back."""
    world = planning_world()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(hours=1)
    assert "is spent: 2.00 node-hours, 6.12 USD." in look(world, f"/runs/{run.run_id}/cancel").text


def test_a_dead_letter_is_replayed() -> None:
    """Its message is in the queue again, and the history says who asked."""
    world = World()
    world.give_up('{"broken": 1}')
    sweep(world.services)
    (letter,) = world.ledger.dead_letters()
    answer = confirm(world, f"/dead-letters/{letter.dead_letter_id}/replay")
    assert 303 == answer.status_code
    assert ['{"broken": 1}'] == world.uploads.messages


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:7071"},
    ],
)
def test_a_form_of_another_site_does_nothing(headers: dict[str, str]) -> None:
    """The browser sends a person's sign-in with it, and says where it comes from."""
    world = World()
    run = world.upload_version()
    path = f"/runs/{run.run_id}/cancel"
    answer = send_form(world, path, key=key_of(look(world, path)), headers=headers)
    assert 403 == answer.status_code
    assert world.stands(run).cancel_requested_at is None


def test_an_old_browser_that_states_the_origin_only_may_act() -> None:
    """Some browsers do not send Sec-Fetch-Site."""
    world = World()
    run = world.upload_version()
    assert 303 == confirm(world, f"/runs/{run.run_id}/cancel", Origin="http://127.0.0.1:7071").status_code


@pytest.mark.parametrize("key", ["", "x", "g" * 32, "a" * 33])
def test_a_form_without_a_key_of_a_page_does_nothing(key: str) -> None:
    """A confirmation must come from the page that shows the consequences."""
    world = World()
    run = world.upload_version()
    assert 403 == send_form(world, f"/runs/{run.run_id}/cancel", key=key, headers=OWN).status_code
    assert world.stands(run).cancel_requested_at is None


@pytest.mark.parametrize(
    ("path", "role", "may"),
    [
        ("/runs/RUN/cancel", "reader", False),
        ("/runs/RUN/cancel", "submitter", True),
        ("/datasets/digits/v1/submit", "reader", False),
        ("/datasets/digits/v1/submit", "submitter", True),
        ("/datasets/digits/v1/release", "submitter", False),
        ("/models/digits-cnn/1/promote", "submitter", False),
        ("/runs/RUN/register", "submitter", False),
        ("/dead-letters/0123/replay", "submitter", False),
    ],
)
def test_each_action_has_its_role(path: str, role: str, *, may: bool) -> None:
    """Its page and its confirmation are refused to others, and a button that would be refused is not shown."""
    world = World()
    run = world.upload_version()
    path = path.replace("RUN", run.run_id)
    header = principal(("preferred_username", "bob"), ("roles", role))
    page = look(world, path, sign_in=SignIn.EASY_AUTH, x_ms_client_principal=header)
    shown = look(world, f"/runs/{run.run_id}", sign_in=SignIn.EASY_AUTH, x_ms_client_principal=header).text
    headers = {**OWN, "X-MS-CLIENT-PRINCIPAL": header}
    answer = send_form(world, path, key="a" * 32, headers=headers, sign_in=SignIn.EASY_AUTH)
    assert ((200, 303) if may else (403, 403)) == (page.status_code, answer.status_code)
    assert ("/cancel" in shown) is (role != "reader")


def test_what_cannot_be_done_is_an_error_that_says_why() -> None:
    """A run that has ended, a version that was never whole or is not on hold, a letter that is not there."""
    world = World()
    run = world.finish(world.upload_version())
    paths = {
        f"/runs/{run.run_id}/cancel": 409,
        "/runs/unknown/cancel": 404,
        "/datasets/digits/v9/submit": 404,
        "/datasets/digits/v1/release": 404,
        "/dead-letters/0123/replay": 404,
    }
    assert paths == {path: look(world, path).status_code for path in paths}


def test_data_on_hold_are_not_trained_on_until_the_hold_is_lifted() -> None:
    """Training again would pass over the hold; its page refuses, and an admin lifts the hold first."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error="exited with status code 10.")
    world.follow(run)
    submit, release = f"/datasets/{VERSION}/submit", f"/datasets/{VERSION}/release"
    assert 409 == look(world, submit).status_code
    assert 409 == send_form(world, submit, key="a" * 32, headers=OWN).status_code
    assert "Lift the hold" in look(world, f"/datasets/{VERSION}").text
    assert 303 == confirm(world, release).status_code
    assert "you asked on a page to lift its hold" in [entry.reason for entry in world.ledger.history(str(VERSION))]
    assert 200 == look(world, submit).status_code


def test_a_version_is_promoted_by_a_person_whose_name_is_on_record() -> None:
    """The page says what serves now; the version that is current is not offered again."""
    world = World()
    run = world.finish(world.upload_version())
    other = ModelRegistration(
        name="digits-cnn",
        version="7",
        path="azureml://jobs/landfall-b-a1/outputs/model",
        description="",
        tags={"landfall.run_id": "landfall-b-a1"},
    )
    world.models.register(other)
    path = "/models/digits-cnn/7/promote"
    assert f"Now it is version {run.model_version} of run {run.run_id}." in look(world, path).text
    assert 303 == confirm(world, path).status_code
    current = current_model("digits-cnn", world.ledger)
    assert current is not None
    assert ("7", "you on a page", run.model_version) == (
        current.version,
        current.by,
        current.previous and current.previous.version,
    )
    assert f"/models/digits-cnn/{run.model_version}/promote" in look(world, "/models").text
    answer = call(world, "POST", f"/api/models/digits-cnn/versions/{run.model_version}/promote")
    assert (200, str(run.model_version), "7") == (
        answer.status_code,
        answer.json()["version"],
        answer.json()["previous"],
    )
    assert f"/models/digits-cnn/{run.model_version}/promote" not in look(world, "/models").text
    shown = call(world, "GET", f"/api/models/digits-cnn/versions/{run.model_version}").json()
    assert (run.run_id, True, {"promoted": True}) == (shown["run_id"], shown["is_current"], shown["evidence"])
    assert 404 == call(world, "POST", "/api/models/digits-cnn/versions/8/promote").status_code


def test_a_model_that_the_gate_refused_is_registered_by_an_admin_who_says_why() -> None:
    """The run's page offers it; the page says what it does, asks why, and the evidence says who and why."""
    world, run = unregistered()
    path = f"/runs/{run.run_id}/register"
    assert path in look(world, f"/runs/{run.run_id}").text
    page = look(world, path)
    for said in (str(model_version(run)), "val_accuracy: expected at least 0.95", "It is not promoted", "<textarea"):
        assert said in page.text
    silent = send_form(world, path, key=key_of(page), headers=OWN)
    assert (409, True, {}) == (silent.status_code, "states no reason" in silent.text, world.models.registered)
    answers = [send_form(world, path, key=key_of(page), headers=OWN, why="<b>known</b>") for _ in range(2)]
    assert [(303, f"/runs/{run.run_id}")] * 2 == [(one.status_code, one.headers["Location"]) for one in answers]
    override = world.stands(run).evidence[OVERRIDE]
    assert ("you on a page", "<b>known</b>", 1) == (override["by"], override["why"], len(world.models.registered))
    shown = look(world, f"/runs/{run.run_id}").text
    assert "by you on a page: &lt;b&gt;known&lt;/b&gt;" in shown
    assert path not in shown
    assert (303, f"/runs/{run.run_id}") == ((again := look(world, path)).status_code, again.headers["Location"])


def test_a_run_that_has_not_ended_is_not_offered_for_registration() -> None:
    """Its page says why not."""
    world = World()
    run = world.upload_version()
    answer = look(world, f"/runs/{run.run_id}/register")
    assert (409, True) == (answer.status_code, "has not ended" in answer.text)
    assert "/register" not in look(world, f"/runs/{run.run_id}").text
