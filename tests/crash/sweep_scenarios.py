"""Scenarios of option sweeps: compared, failed, canceled, or completed by the timer."""

from __future__ import annotations

from contextlib import suppress

from function_app.domain.errors import NotFoundError, RunEndedError
from function_app.domain.option_sweeps import option_sets
from function_app.runs.cancellation import cancel_sweep
from function_app.runs.sweep_requests import SweepRequest, request_sweep
from tests.crash.process import Step
from tests.crash.scenario import Scenario, Serve, deliver_run_events, end_jobs, run_jobs, trained
from tests.support.world import VERSION, World


def ask_sweep(world: World) -> None:
    """Request a sweep of two runs as the HTTP API does."""
    rates = option_sets({"learning_rate": [0.03, 0.01]}, [])
    request = SweepRequest(version=VERSION, option_sets=rates, max_node_hours=2, trigger="http", key="key-3")
    request_sweep(request, world.services)


def trained_run(serve: Serve) -> list[Step]:
    """The next run of the sweep is submitted and ends."""
    return [serve, run_jobs, lambda world: end_jobs(world, "Completed"), deliver_run_events]


def failed_run(serve: Serve) -> list[Step]:
    """The next run of the sweep is submitted and fails."""
    return [serve, run_jobs, lambda world: end_jobs(world, "Failed"), deliver_run_events]


def swept(serve: Serve) -> list[Step]:
    """A person requests a sweep, whose runs end one after the other."""
    return [ask_sweep, *trained_run(serve), *trained_run(serve)]


def canceled(_: Serve) -> list[Step]:
    """A person cancels the sweep."""
    return [cancel_all, lambda world: end_jobs(world, "Canceled"), deliver_run_events]


def half_trained(serve: Serve) -> list[Step]:
    """The first run of a sweep has completed, and the second one is running."""
    return [*trained_and_asked(serve), *trained_run(serve), serve, run_jobs]


def canceled_in_line(serve: Serve) -> list[Step]:
    """A person cancels the sweep before its first run is submitted."""
    return [cancel_all, serve]


def cancel_all(world: World) -> None:
    """Cancel every sweep as the HTTP API does; one that has ended does not change."""
    for sweep_id in {run.sweep_id for run in world.services.ledger.runs() if run.sweep_id}:
        with suppress(NotFoundError, RunEndedError):
            cancel_sweep(sweep_id, reason="canceled by a person", services=world.services)


def trained_and_asked(serve: Serve) -> list[Step]:
    """A version was trained on, and a sweep on it was requested."""
    return [*trained()(serve), ask_sweep]


SWEEPS = (
    Scenario(name="option sweep", steps=swept, prelude=trained(), survives_loss=False),
    Scenario(name="option sweep left to the timer", steps=trained_run, prelude=trained_and_asked),
    Scenario(name="option sweep that fails", steps=failed_run, prelude=trained_and_asked, job_end="Failed"),
    Scenario(name="option sweep canceled", steps=canceled, prelude=half_trained, survives_loss=False),
    Scenario(
        name="option sweep canceled in line", steps=canceled_in_line, prelude=trained_and_asked, survives_loss=False
    ),
)
