"""Test messages to the recipients of a pipeline, to show whether notifications would arrive."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from function_app.domain.errors import NotFoundError, TooSoonError
from function_app.domain.outcomes import TEST
from function_app.domain.records import NotificationRecord
from function_app.services import RunServices
from shared.errors import LandfallError

PAUSE = timedelta(seconds=10)
"""Minimum time between two tests of a pipeline, so a script cannot flood people."""
PATIENCE_S = 30.0
"""After this time no further recipient is tried, because the command line waits 60 s."""
NOT_TRIED = "was not tried, because the others took too long; test it alone with --recipient"

Trial = tuple[str, bool, str]
"""A recipient, whether it accepted the message, and its response."""


def try_recipients(dataset: str, only: str | None, services: RunServices) -> list[Trial]:
    """Send a test message to all recipients of a dataset's pipeline, or to one.

    Raises NotFoundError, PipelineOutOfServiceError, TooSoonError.
    """
    known = [one.name for one in services.pipeline_of(dataset).notify]
    names = [name for name in dict.fromkeys(known) if only in (None, name)]
    if not names:
        listed = ", ".join(known) or "none; add some under notify in its file"
        raise NotFoundError(f"the pipeline of dataset {dataset} has no such recipient; its recipients: {listed}")
    _take_turn(dataset, services)
    end_s, trials = time.monotonic() + PATIENCE_S, list[Trial]()
    for name in names:
        trial = (name, *_answer(name, dataset, services)) if time.monotonic() < end_s else (name, False, NOT_TRIED)
        services.history.record(f"notify-test/{dataset}", "notification_tested", f"{name}: {trial[2]}")
        trials.append(trial)
    return trials


def _take_turn(dataset: str, services: RunServices) -> None:
    name, now = f"notify-test/{dataset}", services.clock()
    before = services.ledger.mark(name)
    is_early = before is not None and now - datetime.fromisoformat(before) < PAUSE
    if is_early or not services.ledger.change_mark(name, before, now.isoformat()):
        raise TooSoonError(
            f"the recipients of dataset {dataset} got a test less than {PAUSE.seconds} s ago; wait and try again"
        )


def _answer(name: str, dataset: str, services: RunServices) -> tuple[bool, str]:
    now = services.clock()
    message = NotificationRecord(
        key=f"test/{dataset}/{now.isoformat()}/{name}",
        subject=f"test-{dataset}",
        outcome=TEST,
        recipient=name,
        content={"text": f"A test for the recipients of dataset {dataset}, sent on request.", "dataset": dataset},
        created_at=now,
    )
    try:
        services.notifiers[name].send(message)
    except LandfallError as error:
        return False, str(error)
    return True, "took the message"
