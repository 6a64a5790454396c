"""Timer triggers: one run per occurrence, never two at once, and the memory of the last one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker, Outcome
from local_azure.functions_host.schedules import Schedule
from local_azure.functions_host.worker_messages import TypedData


@dataclass(frozen=True, kw_only=True)
class TimerStatus:
    """When a timer last fired and would fire next."""

    last: datetime
    next: datetime

    def as_json(self) -> dict[str, str]:
        """The Functions host's form of it."""
        return {
            "Last": self.last.isoformat(),
            "Next": self.next.isoformat(),
            "LastUpdated": self.last.isoformat(),
        }


class TimerMemory(Protocol):
    """Keeps timer statuses beyond the process."""

    async def load(self, function_name: str) -> TimerStatus | None:
        """What was saved last, or None."""

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Replace what was saved."""


def utcnow() -> datetime:
    """The time, aware."""
    return datetime.now(UTC)


@dataclass(kw_only=True)
class TimerListener:
    """Fires one timer function on its schedule until told to stop."""

    function: Function
    schedule: Schedule
    invoker: Invoker
    memory: TimerMemory
    now: Callable[[], datetime] = utcnow
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Fire on time; an occurrence that passes while the function still runs is skipped."""
        await self._fire_at_start()
        due = self.now()
        while not self.stopping.is_set():
            # A sleep may end a little early by the wall clock; the same occurrence must not come twice.
            due = self.schedule.next_after(max(due, self.now()))
            if await self._rest((due - self.now()).total_seconds()):
                await self.fire(past_due=False)

    async def fire(self, *, past_due: bool) -> Outcome:
        """Run the function now, after a run that is going on."""
        async with self._one_at_a_time:
            last = self.now()
            status = TimerStatus(last=last, next=self.schedule.next_after(last))
            outcome = await self.invoker.invoke(self.function, TypedData(json=_timer_json(status, past_due=past_due)))
            await self.memory.save(self.function.name, status)
            return outcome

    async def _fire_at_start(self) -> None:
        saved = await self.memory.load(self.function.name)
        past_due = saved is not None and saved.next < self.now()
        if past_due or self.function.trigger.get("runOnStartup"):
            await self.fire(past_due=past_due)

    async def _rest(self, seconds: float) -> bool:
        """Whether the time passed without a request to stop."""
        with contextlib.suppress(TimeoutError):  # the time-out is what a timer waits for
            await asyncio.wait_for(self.stopping.wait(), max(0.0, seconds))
        return not self.stopping.is_set()


def _timer_json(status: TimerStatus, *, past_due: bool) -> str:
    return json.dumps({"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status.as_json(), "IsPastDue": past_due})
