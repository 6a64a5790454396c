from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.timer_trigger import TimerListener, TimerStatus, parse_schedule
from tests.unit.local_azure.functions_host.worker_double import RecordingOutputs, RecordingWorker, make_trigger

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class Remembered:
    """Timer statuses in a dictionary."""

    statuses: dict[str, TimerStatus] = field(default_factory=dict)

    async def load(self, function_name: str) -> TimerStatus | None:
        return self.statuses.get(function_name)

    async def save(self, function_name: str, status: TimerStatus) -> None:
        self.statuses[function_name] = status


def _listener(memory: Remembered, worker: RecordingWorker, **trigger: Any) -> TimerListener:
    return TimerListener(
        function=make_trigger("timerTrigger", **trigger),
        schedule=parse_schedule("0 */5 * * * *", "f"),
        invoker=Invoker(worker=worker, outputs=RecordingOutputs(), root=Path()),
        memory=memory,
        now=lambda: NOON,
    )


def _start(memory: Remembered, **trigger: Any) -> list[bool]:
    """Start and stop a timer at noon; for each run, whether it was past due."""
    worker = RecordingWorker()
    listener = _listener(memory, worker, **trigger)
    listener.stopping.set()
    asyncio.run(listener.run())
    return [json.loads(str(request.input_data[0].data.json))["IsPastDue"] for request in worker.requests]


def _missed(minutes: int) -> Remembered:
    due = NOON - timedelta(minutes=minutes)
    return Remembered({"f": TimerStatus(last=due - timedelta(minutes=5), next=due)})


def test_a_missed_occurrence_is_made_up_for_at_the_start() -> None:
    """The timer fires once, as past due, however many were missed."""
    assert [True] == _start(_missed(60))


def test_without_a_missed_occurrence_nothing_runs_at_the_start() -> None:
    """It does not run at the very first start, nor before the next occurrence."""
    assert [] == _start(Remembered())
    assert [] == _start(_missed(-1))


def test_run_on_startup_runs_at_the_start() -> None:
    """It is not past due."""
    assert [False] == _start(Remembered(), runOnStartup=True)


def test_runs_of_one_timer_never_overlap() -> None:
    """Two at once come one after the other, and the next occurrence is remembered."""
    memory, worker = Remembered(), RecordingWorker()

    async def fire_twice() -> None:
        listener = _listener(memory, worker)
        await asyncio.gather(listener.fire(past_due=False), listener.fire(past_due=False))

    asyncio.run(fire_twice())

    assert (2, 1) == (len(worker.requests), worker.most_at_once)
    assert TimerStatus(last=NOON, next=NOON + timedelta(minutes=5)) == memory.statuses["f"]


FRIDAY = datetime(2026, 11, 20, 10, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 */5 * * * *", datetime(2026, 11, 20, 10, 5, tzinfo=UTC)),
        ("*/10 * * * * *", datetime(2026, 11, 20, 10, 2, 40, tzinfo=UTC)),
        ("30 2 10 * * *", datetime(2026, 11, 21, 10, 2, 30, tzinfo=UTC)),
        ("0 30 9 * * 1-5", datetime(2026, 11, 23, 9, 30, tzinfo=UTC)),
        ("0 0 0 13 * 5", datetime(2027, 8, 13, tzinfo=UTC)),
        ("*/5 * * * *", datetime(2026, 11, 20, 10, 5, tzinfo=UTC)),
    ],
)
def test_the_next_occurrence_is_later_and_on_the_schedule(text: str, expected: datetime) -> None:
    """Seconds come first; day and weekday must both match; five fields have no seconds."""
    assert expected == parse_schedule(text, "f").next_after(FRIDAY)


@pytest.mark.parametrize("text", ["", "* * * *", "0 61 * * * *", "00:05:00", "0 0 0 0 0 0 0"])
def test_a_schedule_that_is_none_is_refused(text: str) -> None:
    """The function and the text are named."""
    with pytest.raises(BindingError, match="function f must have an NCRONTAB schedule of six fields"):
        parse_schedule(text, "f")
