"""The state machine of a run in one table: states, legal transitions, and the actors that may cause them.

``python -m tools.reference_pages`` generates ``docs/states.md`` from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from function_app.domain.errors import IllegalTransitionError


class RunState(StrEnum):
    """A run's state, as stored."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    LOST = "lost"
    REGISTERED = "registered"
    NOT_REGISTERED = "not_registered"
    SUPPRESSED = "suppressed"


class Actor(StrEnum):
    """An actor that changes a run's state."""

    SUBMISSION = "submission"
    RECONCILIATION = "reconciliation"
    PERSON = "person"
    SWEEP = "sweep"


MEANINGS: Mapping[RunState, str] = {
    RunState.PLANNED: "Recorded but not submitted yet: it is about to be, or waits for its turn.",
    RunState.SUBMITTING: "One handler is sending the job to Azure ML; its claim expires.",
    RunState.SUBMITTED: "Azure ML has the job.",
    RunState.QUEUED: "Azure ML builds the image, or waits for nodes.",
    RunState.RUNNING: "The job is running, or its outputs are being written.",
    RunState.COMPLETED: "The job succeeded; the registration is not decided yet.",
    RunState.FAILED: "The job failed, or Azure ML refused it; another attempt may follow.",
    RunState.CANCELED: "Canceled by a person, by a newer generation, or by the job's time limit.",
    RunState.LOST: "Azure ML does not know the job that was submitted, or its cluster is gone.",
    RunState.REGISTERED: "The model is registered: the gate allowed it, or a person overrode the gate.",
    RunState.NOT_REGISTERED: "The job completed without a registered model; the reason says why, and a person may "
    "register the model.",
    RunState.SUPPRESSED: "Never submitted: another run took its place, or a person canceled the run before it.",
}


@dataclass(frozen=True)
class Transition:
    """One legal transition."""

    source: RunState
    target: RunState
    actors: frozenset[Actor]


_S = RunState
_SUBMITTERS = frozenset({Actor.SUBMISSION, Actor.SWEEP})
_FOLLOWERS = frozenset({Actor.RECONCILIATION, Actor.SWEEP})
_CANCELERS = frozenset({Actor.SUBMISSION, Actor.PERSON, Actor.SWEEP})
"""Actors that may cancel: a person, and the submission of a newer generation with `cancel_and_train`."""

_OVERRIDERS = frozenset({Actor.PERSON})
"""A person registers a model against the gate's decision. No other transition starts from an end state."""


def _moves(source: RunState, targets: tuple[RunState, ...], actors: frozenset[Actor]) -> tuple[Transition, ...]:
    return tuple(Transition(source, target, actors) for target in targets)


TABLE: tuple[Transition, ...] = (
    *_moves(_S.PLANNED, (_S.SUBMITTING,), _SUBMITTERS),
    *_moves(_S.PLANNED, (_S.SUPPRESSED,), _CANCELERS | _FOLLOWERS),
    *_moves(_S.PLANNED, (_S.CANCELED,), _CANCELERS),
    *_moves(_S.SUBMITTING, (_S.SUBMITTED, _S.FAILED), _SUBMITTERS),
    *_moves(_S.SUBMITTING, (_S.CANCELED,), _CANCELERS),
    *_moves(_S.SUBMITTED, (_S.QUEUED, _S.RUNNING, _S.COMPLETED, _S.FAILED, _S.CANCELED, _S.LOST), _FOLLOWERS),
    *_moves(_S.QUEUED, (_S.RUNNING, _S.COMPLETED, _S.FAILED, _S.CANCELED, _S.LOST), _FOLLOWERS),
    *_moves(_S.RUNNING, (_S.COMPLETED, _S.FAILED, _S.CANCELED, _S.LOST), _FOLLOWERS),
    *_moves(_S.COMPLETED, (_S.REGISTERED, _S.NOT_REGISTERED), _FOLLOWERS),
    *_moves(_S.NOT_REGISTERED, (_S.REGISTERED,), _OVERRIDERS),
)
"""Transitions only go forward. ``notified`` is a time, not a state, so that the state still says how the run ended.

A running job is canceled by a request to Azure ML; reconciliation moves the run when the job has ended.
"""

_ACTORS = {(move.source, move.target): move.actors for move in TABLE}
TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    state: frozenset(move.target for move in TABLE if move.source is state) for state in RunState
}
SETTLED = frozenset(RunState) - {move.source for move in TABLE if move.actors != _OVERRIDERS}
"""End states, in which only the notifications of a run remain to be sent."""
AWAITING_SUBMISSION = frozenset({RunState.PLANNED, RunState.SUBMITTING})


def is_legal(source: RunState, target: RunState, actor: Actor) -> bool:
    """Whether an actor may move a run from one state to another."""
    return actor in _ACTORS.get((source, target), frozenset())


def check_transition(run_id: str, current: RunState, target: RunState) -> None:
    """Raise IllegalTransitionError if a run may not change from one state to another; staying is always legal."""
    if target is not current and target not in TRANSITIONS[current]:
        raise IllegalTransitionError(run_id, current, target)
