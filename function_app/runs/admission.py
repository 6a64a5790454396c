"""Single flight, carried out: a run takes off when the ledger's board says so, and what waited starts when it ends.

What is decided is one compare-and-swap on the board; what follows from it (messages, rows of runs that lost their
place) can be repeated by whoever comes next, so a handler that dies in between is made up for by the next one or the
sweep.
"""

from __future__ import annotations

from function_app.domain.events import TrainingRequest
from function_app.domain.failures import RETRYING
from function_app.domain.records import PERSON, DatasetVersion, RunRecord
from function_app.domain.run_queue import Flight, FlightBoard, entered, launched, left, settled
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.runs.transitions import move_run
from function_app.services import Services

ARMED = "armed"
"""The trigger of a message that starts what waited."""


def take_off(run: RunRecord, services: Services, *, by: Actor) -> bool:
    """Ask for a place; True where the run may be submitted now. Otherwise it is armed, or lost its place."""
    limit = services.max_concurrent_runs
    before, after = services.ledger.change_flights(lambda board: entered(board, Flight.of(run), limit=limit))
    name = run.logical_run
    if after.is_armed(name) and not before.is_armed(name):
        services.history.record(run.run_id, "run_armed", _why_it_waits(run, after, limit))
    elif after.is_armed(name) and by is Actor.SUBMISSION:  # the sweep looks at it every few minutes
        services.history.record(run.run_id, "request_suppressed", f"it {_why_it_waits(run, after, limit)}")
    _carry_out(before, after, services, by=by, own=name)
    return after.is_going(name)


def land(run: RunRecord, services: Services, *, by: Actor) -> None:
    """Give up the place of a run that has ended, and start what waited for it.

    Where a person canceled it, what its pipeline had armed by then does not start by itself: it is disarmed.
    """
    canceled = run.canceled_by == PERSON  # also a failed run whose next attempt was canceled
    before, after = services.ledger.change_flights(
        lambda board: left(
            board,
            run.logical_run,
            limit=services.max_concurrent_runs,
            disarm_before=run.cancel_requested_at if canceled else None,
            reason=f"a person canceled the run that it waited for: {run.run_id}",
        )
    )
    _carry_out(before, after, services, by=by)


def sweep_flights(services: Services) -> None:
    """Finish what dead handlers left of the board: ended runs that hold a place, places that nobody took."""
    limit = services.max_concurrent_runs
    before, after = services.ledger.change_flights(lambda board: launched(board, limit=limit))
    _carry_out(before, after, services, by=Actor.SWEEP)
    for flight in (*after.going, *after.armed):
        run = last_attempt(flight.first_run_id, services)
        if run is not None and run.state in SETTLED and not awaits_attempt(run):
            land(run, services, by=Actor.SWEEP)


def last_attempt(run_id: str, services: Services) -> RunRecord | None:
    """Return the attempt that a run has come to; None where it is not on record."""
    run = services.ledger.run(run_id)
    while run is not None and run.next_run_id is not None:
        run = services.ledger.run(run.next_run_id)
    return run


def awaits_attempt(run: RunRecord) -> bool:
    """Whether a run has ended, and another attempt was decided on that is not there yet."""
    return run.state in SETTLED and run.next_run_id is None and run.remedy in RETRYING


def _why_it_waits(run: RunRecord, board: FlightBoard, limit: int) -> str:
    going = board.going_of(run.pipeline)
    if going is not None:
        return f"waits for {going.first_run_id}: one run of pipeline {run.pipeline} goes at a time"
    return f"waits for its turn: {len(board.going)} runs are going, which is the limit of {limit}"


def _carry_out(
    before: FlightBoard, after: FlightBoard, services: Services, *, by: Actor, own: str | None = None
) -> None:
    """Start what may start now, other than the caller's own run, and write down who lost a place."""
    for flight in after.going:
        if flight.logical_run != own and not before.is_going(flight.logical_run):
            services.requests.send(_request(flight))
            services.history.record(flight.first_run_id, "run_launched", "its turn has come")
    for lost in after.dropped:
        _suppress(f"{lost.logical_run}-a1", lost.reason, services, by=by)
    if after.dropped:
        names = [lost.logical_run for lost in after.dropped]
        services.ledger.change_flights(lambda board: settled(board, names))


def _request(flight: Flight) -> TrainingRequest:
    version = DatasetVersion(dataset=flight.dataset, version=flight.version)
    return TrainingRequest(
        dataset_version=version, generation=flight.generation, trigger=ARMED, run_id=flight.first_run_id
    )


def _suppress(run_id: str, reason: str, services: Services, *, by: Actor) -> None:
    now = services.clock()
    run, moved = move_run(services.ledger, run_id, RunState.SUPPRESSED, by=by, now=now, ended_at=now, reason=reason)
    if moved:
        services.history.record(run_id, "run_suppressed", reason, by=by)
        services.history.record(str(run.dataset_version), "run_suppressed", f"run {run_id}: {reason}", by=by)
