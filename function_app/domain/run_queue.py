"""Single flight, as pure decisions on one board: which runs go, which wait for their turn, who is dropped.

- Of each pipeline one run goes at a time, and at most so many over all pipelines.
- Behind it one follow-up is armed, whatever arrives: the newest generation wins, otherwise the latest request.
- What waits starts oldest first. A newer request takes over the place in line of the one that it replaces, so that a
  pipeline whose data changes all the time is not overtaken for ever.

The ledger keeps the board in one row, so every decision is one compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from function_app.domain.records import RunRecord


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A logical run that goes or waits: its attempts share one place."""

    logical_run: str
    pipeline: str
    dataset: str
    version: str
    generation: int
    asked_at: datetime
    waiting_since: datetime
    """Since when this place in line is taken, by this run or one that it replaced."""

    @classmethod
    def of(cls, run: RunRecord) -> Flight:
        """Return the place that a run asks for."""
        return cls(
            logical_run=run.logical_run,
            pipeline=run.pipeline,
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            generation=run.generation,
            asked_at=run.created_at,
            waiting_since=run.created_at,
        )

    @property
    def first_run_id(self) -> str:
        """The job's name of the first attempt."""
        return f"{self.logical_run}-a1"


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A run that lost its place and whose row does not say so yet."""

    logical_run: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class FlightBoard:
    """Everything that goes or waits."""

    going: tuple[Flight, ...] = ()
    armed: tuple[Flight, ...] = ()
    """At most one of each pipeline."""
    dropped: tuple[Dropped, ...] = ()

    def is_going(self, logical_run: str) -> bool:
        """Whether a run has its place."""
        return any(flight.logical_run == logical_run for flight in self.going)

    def is_armed(self, logical_run: str) -> bool:
        """Whether a run waits for its turn."""
        return any(flight.logical_run == logical_run for flight in self.armed)

    def is_dropped(self, logical_run: str) -> bool:
        """Whether a run lost its place."""
        return any(flight.logical_run == logical_run for flight in self.dropped)

    def going_of(self, pipeline: str) -> Flight | None:
        """Return what goes of a pipeline."""
        return next((flight for flight in self.going if flight.pipeline == pipeline), None)


def entered(board: FlightBoard, flight: Flight, *, limit: int) -> FlightBoard:
    """Return the board after a run has asked for a place; asking again changes nothing."""
    name = flight.logical_run
    if not (board.is_going(name) or board.is_armed(name) or board.is_dropped(name)):
        board = _armed(board, flight)
    return launched(board, limit=limit)


def left(
    board: FlightBoard, logical_run: str, *, limit: int, disarm_before: datetime | None = None, reason: str = ""
) -> FlightBoard:
    """Return the board after a run has ended, and what waited may start.

    Where the run was going, ``disarm_before`` also drops what its pipeline had armed until then, with the reason.
    """
    gone = next((flight for flight in board.going if flight.logical_run == logical_run), None)
    board = replace(board, going=_without(board.going, logical_run), armed=_without(board.armed, logical_run))
    if gone is not None and disarm_before is not None:
        disarmed = (f for f in board.armed if f.pipeline == gone.pipeline and f.asked_at <= disarm_before)
        for flight in list(disarmed):
            board = _dropped(board, flight, reason)
    return launched(board, limit=limit)


def launched(board: FlightBoard, *, limit: int) -> FlightBoard:
    """Return the board with everything started that may be, the oldest place in line first."""
    for flight in sorted(board.armed, key=lambda flight: (flight.waiting_since, flight.logical_run)):
        if len(board.going) < limit and board.going_of(flight.pipeline) is None:
            board = replace(board, going=(*board.going, flight), armed=_without(board.armed, flight.logical_run))
    return board


def settled(board: FlightBoard, logical_runs: Iterable[str]) -> FlightBoard:
    """Return the board without the dropped runs whose rows say so now."""
    names = set(logical_runs)
    return replace(board, dropped=tuple(one for one in board.dropped if one.logical_run not in names))


def _armed(board: FlightBoard, flight: Flight) -> FlightBoard:
    rival = next((other for other in board.armed if other.pipeline == flight.pipeline), None)
    if rival is None:
        return replace(board, armed=(*board.armed, flight))
    winner, loser = (flight, rival) if _is_newer(flight, rival) else (rival, flight)
    kept = replace(winner, waiting_since=min(winner.waiting_since, loser.waiting_since))
    board = replace(board, armed=(*_without(board.armed, rival.logical_run), kept))
    return _dropped(board, loser, _replacement(winner, loser))


def _is_newer(flight: Flight, other: Flight) -> bool:
    same_version = (flight.dataset, flight.version) == (other.dataset, other.version)
    if same_version and flight.generation != other.generation:
        return flight.generation > other.generation
    return (flight.asked_at, flight.logical_run) > (other.asked_at, other.logical_run)


def _replacement(winner: Flight, loser: Flight) -> str:
    same_version = (winner.dataset, winner.version) == (loser.dataset, loser.version)
    if same_version and winner.generation != loser.generation:
        return f"superseded by generation {winner.generation} while it waited: {winner.first_run_id}"
    return f"a later request took its place while it waited: {winner.first_run_id}"


def _dropped(board: FlightBoard, flight: Flight, reason: str) -> FlightBoard:
    entry = Dropped(logical_run=flight.logical_run, reason=reason)
    return replace(board, armed=_without(board.armed, flight.logical_run), dropped=(*board.dropped, entry))


def _without(flights: tuple[Flight, ...], logical_run: str) -> tuple[Flight, ...]:
    return tuple(flight for flight in flights if flight.logical_run != logical_run)
