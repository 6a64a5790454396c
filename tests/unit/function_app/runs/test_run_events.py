"""Recorded events of runs: only the run's id is read, because nothing else can be relied on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from function_app.domain.errors import InvalidEventError
from function_app.domain.run_states import RunState
from function_app.runs.following import handle_run_event, read_run_id
from tests.support.world import World

EVENTS = Path(__file__).resolve().parents[3] / "events"
OURS = "landfall-digits-2026-11-20-1f3a9c2b7d5e-a1"


@pytest.mark.parametrize("path", sorted(EVENTS.glob("run_*.json")), ids=lambda path: path.stem)
def test_every_recorded_event_names_its_run(path: Path) -> None:
    """Status outside data, in any case, fields that are null: all the same to us."""
    (event,) = json.loads(path.read_bytes())
    expected = "calm_river_x1b2" if "another_project" in path.name else OURS
    assert expected == read_run_id(event["subject"], event["data"])


@pytest.mark.parametrize("data", [None, {}, {"runId": None}, {"runId": 5}, {"runId": "x" * 301}, "text"])
def test_without_an_id_in_data_the_subject_names_the_run(data: object) -> None:
    """It ends with the run's id."""
    assert OURS == read_run_id(f"experiments/0fa9dfaa/runs/{OURS}", data)


@pytest.mark.parametrize("subject", [None, "", "experiments/x", "runs/", "runs/a/b"])
def test_an_event_that_names_no_run_raises(subject: str | None) -> None:
    """Event Grid then delivers it again, and in the end dead-letters it."""
    with pytest.raises(InvalidEventError, match="should name its run"):
        read_run_id(subject, {})


def test_an_event_of_our_run_has_it_looked_at() -> None:
    """Whatever the event says, Azure ML is asked."""
    world = World()
    run = world.land_all()
    world.end_job(run)
    handle_run_event(run.run_id, world.services)
    assert RunState.REGISTERED == world.only_run().state


def test_an_event_of_another_project_leaves_no_trace_in_the_ledger() -> None:
    """A subscription covers the whole workspace: there is no bound on how many of them come."""
    world = World()
    handle_run_event("calm_river_x1b2", world.services)
    assert {} == world.ledger.history_rows


def test_an_event_of_a_run_that_looks_like_ours_is_suppressed_with_its_reason() -> None:
    """Somebody may have submitted it by hand, or a ledger was lost."""
    world = World()
    handle_run_event(OURS, world.services)
    assert ["event_suppressed"] == world.actions(OURS)
