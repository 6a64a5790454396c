"""Delivery of a topic's events to one target: in order, with retries, and a dead letter after the last."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from local_azure.event_grid.config import SubscriptionConfig
from local_azure.event_grid.events import Event, matches
from local_azure.event_grid.faults import Admitted
from local_azure.event_grid.journal import Cursor, Journal
from local_azure.event_grid.targets import DeadLetter, DeadLetterContainer, DeliveryFailedError, Target

log = logging.getLogger("event_grid")

HANDSHAKE_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between handshakes, as the endpoint may start later. Event Grid itself would refuse the subscription."""


@dataclass(kw_only=True)
class Subscription:
    """Takes events, and delivers them while `run` runs."""

    config: SubscriptionConfig
    target: Target
    cursor: Cursor
    dead_letters: Journal
    """Dead letters, for people and tests."""
    dead_letter_container: DeadLetterContainer | None = None
    """Destination of dead letters; None where the subscription has none."""
    ready: bool = False
    """Whether the target is ready: a webhook after its handshake, a queue once it exists."""
    delivered: int = 0
    failed_attempts: int = 0
    last_error: str = ""
    _waiting: asyncio.Queue[tuple[float, Admitted]] = field(default_factory=asyncio.Queue)
    """Each with its earliest time of delivery on the monotonic clock."""
    _retries: set[asyncio.Task[None]] = field(default_factory=set)

    def expect(self, seq: int, event: Event) -> None:
        """Note that `event` is on its way, so that a restart delivers it."""
        if matches(event, self.config):
            self.cursor.begin(seq)
        else:
            self.cursor.skip(seq)

    def offer(self, admitted: Admitted) -> None:
        """Take the event for delivery if the filters accept it."""
        if matches(admitted.event, self.config):
            self._waiting.put_nowait((time.monotonic() + admitted.delay_s, admitted))

    async def run(self) -> None:
        """Deliver until cancelled. First attempts are made in order, one event at a time; retries are not."""
        await self._prepare()
        while True:
            due, admitted = await self._waiting.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            copies = [self._attempt(admitted, 0) for _ in range(admitted.copies)]
            failed = [error for error in await asyncio.gather(*copies) if error]
            if failed:
                task = asyncio.create_task(self._retry_all(admitted, failed))
                self._retries.add(task)
                task.add_done_callback(self._retries.discard)
            else:
                self.cursor.finish(admitted.seq)

    def stop(self) -> None:
        """Cancel the retries; the cursor still has their events."""
        for task in self._retries:
            task.cancel()

    def describe(self) -> dict[str, Any]:
        """Return the state, for people and tests."""
        return {
            "name": self.config.name,
            "topic": self.config.topic,
            "target": self.config.queue or self.config.webhook.partition("?")[0],  # the query may hold a key
            "ready": self.ready,
            "delivered": self.delivered,
            "pending": len(self.cursor.unfinished),
            "failed_attempts": self.failed_attempts,
            "dead_letters": self.dead_letters.last_seq,
            "last_error": self.last_error,
        }

    async def _prepare(self) -> None:
        tries = 0
        while not self.ready:
            try:
                await self.target.prepare()
                self.ready = True
            except DeliveryFailedError as error:
                self.last_error = str(error)
                if tries == 0:
                    log.warning(f"subscription {self.config.name}: not ready, will retry: {error}")
                await asyncio.sleep(HANDSHAKE_PAUSES_S[min(tries, len(HANDSHAKE_PAUSES_S) - 1)])
                tries += 1
        log.info(f"subscription {self.config.name}: ready")

    async def _attempt(self, admitted: Admitted, attempt: int) -> DeliveryFailedError | None:
        try:
            await self.target.deliver(admitted.event, attempt)
        except DeliveryFailedError as error:
            self.failed_attempts += 1
            self.last_error = str(error)
            log.warning(
                f"subscription {self.config.name}: attempt {attempt + 1} of {admitted.event.id} failed: {error}"
            )
            return error
        self.delivered += 1
        return None

    async def _retry_all(self, admitted: Admitted, failed: list[DeliveryFailedError]) -> None:
        """Retry every failed copy until it succeeds or becomes a dead letter."""
        await asyncio.gather(*(self._retry(admitted, error) for error in failed))
        self.cursor.finish(admitted.seq)

    async def _retry(self, admitted: Admitted, error: DeliveryFailedError | None) -> None:
        attempts = 1
        for pause_s in self.config.retry_schedule_s[1:]:
            if error is None or error.final:
                break
            await asyncio.sleep(pause_s)
            error = await self._attempt(admitted, attempts)
            attempts += 1
        if error:
            await self._dead_letter(admitted.event, error, attempts)

    async def _dead_letter(self, event: Event, error: DeliveryFailedError, attempts: int) -> None:
        now = datetime.now(UTC)
        letter = DeadLetter(
            event=event,
            reason=error.dead_letter_reason,
            attempts=attempts,
            outcome=error.outcome,
            published_at=event.published_at or now,
            last_attempt_at=now,
        )
        if self.dead_letter_container is not None:
            await self.dead_letter_container.write(letter)
        self.dead_letters.append({"lastError": str(error), "event": letter.as_json()})
        log.error(f"subscription {self.config.name}: dead-lettered {event.id} after {attempts} attempts: {error}")
