"""Events: each outcome has a schema, the flows send what the schemas say, and texts say what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from function_app.config.recipients import Recipient
from function_app.domain.outcomes import GROUPS, OUTCOMES, Links, for_people, outcomes_in
from function_app.domain.records import NotificationRecord
from function_app.explain.overview import overview
from function_app.runs.option_sweeps import runs_of
from function_app.sweep.sweep import sweep
from tests.support.world import ALL_SHARDS, EVENTS, LINKS, WEBHOOK, World, validator_of
from tests.unit.function_app.runs.test_option_sweeps import swept_world
from tests.unit.function_app.web.client import look

EVERYTHING = Recipient(topic=True, outcomes=("everything",))


def curious_world() -> World:
    """A world whose topic hears everything."""
    world = World()
    world.change_pipeline(notify=(EVERYTHING,))
    return world


def heard(world: World) -> list[str]:
    """The outcomes that the topic heard of, in order. Each was checked against its schema."""
    return [each.outcome for each in world.topic.received]


def test_each_outcome_has_one_schema_that_fixes_its_type() -> None:
    """No schema belongs to an outcome that is never sent."""
    assert set(OUTCOMES) == {path.stem for path in EVENTS.glob("*.json")}
    for outcome in OUTCOMES:
        schema: Any = validator_of(f"landfall.{outcome}").schema
        known = (schema["$id"], schema["properties"]["type"], schema["properties"]["dataschema"])
        urn = f"urn:landfall:event:{outcome}:1"
        assert (urn, {"const": f"landfall.{outcome}"}, {"const": urn}) == known


def test_a_training_from_upload_to_model_is_heard_step_by_step() -> None:
    """Version whole, run submitted, run started, registered: once each, however often one looks."""
    world = curious_world()
    run = world.upload_version()
    for _ in range(2):
        world.jobs.become(run.run_id, "Running")
        world.follow(run)
        sweep(world.services)
    world.finish(run)
    world.follow(run)
    world.upload_shards(*ALL_SHARDS)
    sweep(world.services)
    assert ["version_whole", "run_submitted", "run_started", "registered"] == heard(world)


def test_a_rejected_shard_a_failure_and_a_cancellation_are_heard() -> None:
    """Each as its own type."""
    world = curious_world()
    world.deliver(world.put(ALL_SHARDS[0], b"no shard"))
    run = world.upload_version()
    world.finish(run, "Canceled")
    assert ["shard_rejected", "version_whole", "run_submitted", "canceled"] == heard(world)


def test_a_model_that_is_not_good_enough_is_heard_as_not_registered() -> None:
    """It is not reported as a failure."""
    world = curious_world()
    run = world.upload_version()
    world.end_job(run, val_accuracy=0.5)
    world.follow(run)
    assert "not_registered" == heard(world)[-1]


def test_progress_reaches_those_alone_who_ask_for_it() -> None:
    """Recipients of earlier pipeline files hear what they heard before."""
    world = World()
    run = world.upload_version()
    world.finish(run)
    assert ["registered"] == [each.outcome for each in world.people.received]


def test_a_recipient_hears_of_the_outcomes_that_it_names() -> None:
    """Groups and single outcomes; another recipient of the same pipeline hears the rest."""
    world = World()
    people = Recipient(webhook="LANDFALL_WEBHOOK_PEOPLE", outcomes=("problems",))
    world.change_pipeline(notify=(EVERYTHING, people))
    run = world.upload_version()
    world.finish(run)
    assert ([], "registered") == (world.people.received, heard(world)[-1])
    assert [] == [row for row in world.ledger.notifications(run.run_id) if row.recipient == WEBHOOK]


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_stands_for_outcomes(group: str) -> None:
    """A group without any would send nothing."""
    assert outcomes_in([group]) - {"summary", "test"}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_text_says_what_happened_so_what_and_what_now_with_links(outcome: str) -> None:
    """This holds for every outcome."""
    subject = "digits/v1" if OUTCOMES[outcome].about == "version" else "landfall-digits-1"
    row = NotificationRecord(
        key="k",
        subject=subject,
        outcome=outcome,
        recipient="apprise:TEAM",
        content={"text": "This happened.", "dataset": "digits", "version": "v1"},
        created_at=datetime(2026, 11, 20, tzinfo=UTC),
    )
    title, body = for_people(row, LINKS)
    lines = body.splitlines()
    assert ("This happened.", "What it means: ", "What to do: ") == (lines[0], lines[1][:15], lines[2][:12])
    assert lines[3].startswith("Page: https://landfall.example/")
    assert OUTCOMES[outcome].title in title
    assert "{" not in body


def test_links_lead_to_the_page_of_the_thing_and_to_the_studio() -> None:
    """A version's page has no studio."""
    links = Links(pages="https://x.example", workspace_id="/subscriptions/s")
    assert {
        "page": "https://x.example/runs/r-1",
        "studio": "https://ml.azure.com/runs/r-1?wsid=/subscriptions/s",
    } == links.of("run", "r-1", {})
    assert {"page": "https://x.example/datasets/digits/v1"} == links.of("version", "digits/v1", {})
    assert {} == Links().of("run", "r-1", {})


@pytest.mark.parametrize(
    ("outcome", "page"),
    [
        ("failed", "/runs/{subject}"),
        ("version_stalled", "/datasets/{subject}"),
        ("dead_letter", "/dead-letters"),
        ("pipeline_out_of_service", "/pipelines"),
        ("sweep_ended", "/compare?sweep={subject}"),
        ("unknown_job", "/"),
        ("summary", "/"),
        ("outcome_of_an_earlier_release", "/"),
    ],
)
def test_an_undelivered_notification_links_to_a_page_that_exists(outcome: str, page: str) -> None:
    """To the page of its subject; if it has none, to the overview."""
    world, swept = swept_world()
    subjects = {
        "failed": runs_of(swept, world.ledger)[0].run_id,
        "version_stalled": "digits/v1",
        "dead_letter": f"digits/v1/{ALL_SHARDS[0]}",
        "sweep_ended": swept.sweep_id,
    }
    row = NotificationRecord(
        key="k",
        subject=subjects.get(outcome, "summary-0"),
        outcome=outcome,
        recipient="apprise:TEAM",
        content={},
        created_at=world.clock(),
        last_error="refused",
    )
    world.ledger.add_notification(row)
    [found] = [each.page for each in overview(world.services).concerns if "apprise:TEAM" in each.text]
    assert (page.format(subject=row.subject), 200) == (found, look(world, found).status_code)


def test_what_is_sent_is_json() -> None:
    """The schema files are too."""
    assert all(json.loads(path.read_text("utf-8")) for path in EVENTS.glob("*.json"))
