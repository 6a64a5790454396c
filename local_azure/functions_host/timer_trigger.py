"""Timer triggers: schedules, one run per occurrence and never two at once, and the stored last run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient
from croniter import croniter

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker, Outcome
from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.worker import TypedData

log = logging.getLogger("dev_host")
CONTAINER = "azure-webjobs-hosts"


@dataclass(frozen=True, kw_only=True)
class TimerStatus:
    """The times at which a timer last fired and will fire next."""

    last: datetime
    next: datetime

    def as_json(self) -> dict[str, str]:
        """Return the status in the Functions host's format."""
        return {
            "Last": self.last.isoformat(),
            "Next": self.next.isoformat(),
            "LastUpdated": self.last.isoformat(),
        }


class TimerMemory(Protocol):
    """Interface of the storage for timer statuses across restarts."""

    async def load(self, function_name: str) -> TimerStatus | None:
        """Return the last saved status; None before the first one."""

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Replace the saved status."""


def utcnow() -> datetime:
    """Return the current time with its time zone."""
    return datetime.now(UTC)


@dataclass(kw_only=True)
class TimerListener:
    """Fires one timer function on its schedule until `stopping` is set."""

    function: Function
    schedule: Schedule
    invoker: Invoker
    memory: TimerMemory
    now: Callable[[], datetime] = utcnow
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Fire on schedule; skip an occurrence while the function still runs."""
        await self._fire_at_start()
        due = self.now()
        while not self.stopping.is_set():
            # A sleep may end a little early by the wall clock, and an occurrence must not fire twice.
            due = self.schedule.next_after(max(due, self.now()))
            if await self._rest((due - self.now()).total_seconds()):
                await self.fire(past_due=False)

    async def fire(self, *, past_due: bool) -> Outcome:
        """Run the function now, or after its current run."""
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
        """Wait; return whether the time has passed without a request to stop."""
        with contextlib.suppress(TimeoutError):  # The time-out is the normal case.
            await asyncio.wait_for(self.stopping.wait(), max(0.0, seconds))
        return not self.stopping.is_set()


def _timer_json(status: TimerStatus, *, past_due: bool) -> str:
    return json.dumps({"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status.as_json(), "IsPastDue": past_due})


class NoTimerMemory:
    """Stores nothing, for timers without a monitor, or if there is no storage."""

    async def load(self, function_name: str) -> TimerStatus | None:  # noqa: ARG002 (the port's signature)
        """Return None."""
        return None

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Do nothing."""


class BlobTimerMemory:
    """Stores one small blob per timer. A failure is logged, and only the past-due flag is lost."""

    def __init__(self, service: BlobServiceClient, host_id: str) -> None:
        """`host_id` separates the apps that share a storage account."""
        self._container = service.get_container_client(CONTAINER)
        self._host_id = host_id

    async def load(self, function_name: str) -> TimerStatus | None:
        """Return the saved status; None if there is none, or it is unreadable."""
        try:
            blob = await self._container.download_blob(self._path(function_name))
            content = json.loads(await blob.readall())
            return TimerStatus(
                last=datetime.fromisoformat(content["Last"]), next=datetime.fromisoformat(content["Next"])
            )
        except ResourceNotFoundError:
            return None
        except (AzureError, ValueError, KeyError) as error:
            log.warning(f"timer {function_name}: its saved status cannot be read: {error}")
            return None

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Replace the saved status."""
        try:
            with contextlib.suppress(ResourceExistsError):  # created by an earlier timer
                await self._container.create_container()
            await self._container.upload_blob(self._path(function_name), json.dumps(status.as_json()), overwrite=True)
        except AzureError as error:
            log.warning(f"timer {function_name}: its status cannot be saved: {error}")

    def _path(self, function_name: str) -> str:
        return f"timers/{self._host_id}/{function_name}/status"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``{second} {minute} {hour} {day} {month} {day of week}`` in UTC."""

    expression: str
    """The expression, always with six fields."""

    def next_after(self, moment: datetime) -> datetime:
        """Return the first occurrence after `moment`, which must be aware."""
        # In NCRONTAB both day and day of week must match; in cron, either one.
        times = croniter(self.expression, moment, second_at_beginning=True, day_or=False)
        found: datetime = times.get_next(datetime)
        return found


def parse_schedule(text: str, function_name: str) -> Schedule:
    """Return a schedule from six fields, or five without seconds. Raises BindingError for other texts."""
    fields = text.split()
    expression = " ".join(["0", *fields] if len(fields) == 5 else fields)  # noqa: PLR2004 (no seconds)
    if len(expression.split()) != 6 or not croniter.is_valid(expression, second_at_beginning=True):  # noqa: PLR2004
        raise BindingError(
            f"function {function_name} must have an NCRONTAB schedule of six fields such as '0 */5 * * * *', "
            f"not {text!r}"
        )
    return Schedule(expression=expression)
