"""Delivering a topic's events to one target: in order, repeated on failure, given up in the end."""

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
from local_azure.event_grid.targets import DeadLetterContainer, DeliveryFailedError, Undelivered, Target

log = logging.getLogger("event_grid")

HANDSHAKE_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between handshakes: the endpoint may start after us. Event Grid itself would refuse the subscription."""


@dataclass(kw_only=True)
class Subscription:
    """Takes admitted events, and delivers them as long as ``run`` runs."""

    config: SubscriptionConfig
    target: Target
    cursor: Cursor
    dead_letters: Journal
    """What was given up, for people and tests."""
    dead_letter_container: DeadLetterContainer | None = None
    """Where a deployment looks for it; None where the subscription names no destination."""
    ready: bool = False
    """Whether the target was made ready, which for a webhook is the handshake."""
    delivered: int = 0
    failed_attempts: int = 0
    last_error: str = ""
    _waiting: asyncio.Queue[tuple[float, Admitted]] = field(default_factory=asyncio.Queue)
    """With the earliest moment of delivery on the monotonic clock."""
    _retries: set[asyncio.Task[None]] = field(default_factory=set)

    def expect(self, seq: int, event: Event) -> None:
        """Note that ``event`` is on its way, so that a restart does not forget it."""
        if matches(event, self.config):
            self.cursor.begin(seq)
        else:
            self.cursor.skip(seq)

    def offer(self, admitted: Admitted) -> None:
        """Take the event for delivery if the filters let it through."""
        if matches(admitted.event, self.config):
            self._waiting.put_nowait((time.monotonic() + admitted.delay_s, admitted))

    async def run(self) -> None:
        """Deliver for ever. First attempts are made in order, one event at a time; repetitions are not."""
        await self._prepare()
        while True:
            due, admitted = await self._waiting.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            copies = [self._attempt(admitted, 0) for _ in range(admitted.copies)]
            failed = [error for error in await asyncio.gather(*copies) if error]
            if failed:
                task = asyncio.create_task(self._insist(admitted, failed))
                self._retries.add(task)
                task.add_done_callback(self._retries.discard)
            else:
                self.cursor.finish(admitted.seq)

    def stop(self) -> None:
        """Forget repetitions; they are still in the cursor."""
        for task in self._retries:
            task.cancel()

    def describe(self) -> dict[str, Any]:
        """Its state, for people and tests."""
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
                    log.warning(f"subscription {self.config.name}: not ready, trying on: {error}")
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

    async def _insist(self, admitted: Admitted, failed: list[DeliveryFailedError]) -> None:
        """Repeat every copy that failed, until it succeeds or is given up."""
        await asyncio.gather(*(self._repeat(admitted, error) for error in failed))
        self.cursor.finish(admitted.seq)

    async def _repeat(self, admitted: Admitted, error: DeliveryFailedError | None) -> None:
        attempts = 1
        for pause_s in self.config.retry_schedule_s[1:]:
            if error is None or error.final:
                break
            await asyncio.sleep(pause_s)
            error = await self._attempt(admitted, attempts)
            attempts += 1
        if error:
            await self._give_up(admitted.event, error, attempts)

    async def _give_up(self, event: Event, error: DeliveryFailedError, attempts: int) -> None:
        now = datetime.now(UTC)
        undelivered = Undelivered(
            event=event,
            reason=error.dead_letter_reason,
            attempts=attempts,
            outcome=error.outcome,
            published_at=event.published_at or now,
            last_attempt_at=now,
        )
        if self.dead_letter_container is not None:
            await self.dead_letter_container.write(undelivered)
        self.dead_letters.append({"lastError": str(error), "event": undelivered.as_json()})
        log.error(f"subscription {self.config.name}: gave up {event.id} after {attempts} attempts: {error}")
