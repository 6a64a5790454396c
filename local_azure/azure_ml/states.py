"""The states of a run and the moves between them (Azure ML's documented list)."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """State of a run as the service spells it."""

    NOT_STARTED = "NotStarted"
    STARTING = "Starting"
    PREPARING = "Preparing"  # the environment's image is being built
    QUEUED = "Queued"  # waiting for nodes
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


TERMINAL = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELED})

_NEXT = {
    RunState.NOT_STARTED: RunState.STARTING,
    RunState.STARTING: RunState.PREPARING,
    RunState.PREPARING: RunState.QUEUED,
    RunState.QUEUED: RunState.RUNNING,
    RunState.RUNNING: RunState.FINALIZING,
    RunState.FINALIZING: RunState.COMPLETED,
}


def may_follow(current: RunState, wanted: RunState) -> bool:
    """Whether a run in `current` may move to `wanted`.

    A run can fail at any point before its end, and be canceled at any point before Finalizing; a run that
    was asked to cancel ends Canceled, or Failed where the emulator itself was stopped meanwhile.
    """
    if current in TERMINAL:
        return False
    if wanted is RunState.FAILED:
        return True
    if current is RunState.CANCEL_REQUESTED:
        return wanted is RunState.CANCELED
    if wanted is RunState.CANCEL_REQUESTED:
        return current is not RunState.FINALIZING
    return _NEXT.get(current) is wanted
