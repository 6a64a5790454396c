"""Topics and subscriptions: store events, apply the topic's faults, and deliver with retries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from azure.storage.queue.aio import QueueServiceClient

from local_azure.event_grid.config import RESOURCE_GROUP_ID, Config, SubscriptionConfig
from local_azure.event_grid.events import Event, matches
from local_azure.event_grid.faults import Admitted, FaultGate
from local_azure.event_grid.journal import Cursor, Journal
from local_azure.event_grid.targets import (
    DeadLetter,
    DeadLetterContainer,
    DeliveryFailedError,
    QueueTarget,
    Target,
    WebhookTarget,
)
from local_azure.storage_connections import storage_connection

log = logging.getLogger("event_grid")

SAVE_EVERY_S = 0.1
DELIVERIES_AT_ONCE = 8
"""Maximum concurrent first attempts of one subscription, in addition to retries."""
HANDSHAKE_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between handshakes, because the endpoint may start later. Event Grid would refuse the subscription."""


@dataclass(kw_only=True)
class Topic:
    """One topic."""

    name: str
    journal: Journal
    gate: FaultGate = field(default_factory=FaultGate)
    subscriptions: list[Subscription] = field(default_factory=list)

    @property
    def resource_id(self) -> str:
        """The ``topic`` member of events that are published without one."""
        return f"{RESOURCE_GROUP_ID}/providers/Microsoft.EventGrid/topics/{self.name}"

    def publish(self, event: Event) -> None:
        """Store the event, and pass it on according to the faults."""
        moment = datetime.now(UTC)
        event = replace(event, published_at=moment)
        seq = self.journal.append({"time": moment.isoformat(), "schema": event.schema, "event": event.body})
        for subscription in self.subscriptions:
            subscription.expect(seq, event)
        if self.gate.loses_next():
            for subscription in self.subscriptions:
                subscription.cursor.finish(seq)
        else:
            self._offer(self.gate.admit(seq, event))

    def release(self) -> int:
        """Deliver the held events; return their number."""
        released = self.gate.release()
        self._offer(released)
        return len(released)

    def end_faults(self) -> int:
        """Deliver all held and late events and drop the plan; return their number."""
        released = self.gate.end()
        self._offer(released)
        return len(released)

    def resume(self) -> None:
        """Deliver the events that a subscription had not finished when the emulator ended."""
        for subscription in self.subscriptions:
            unfinished = set(subscription.cursor.unfinished)
            first = min(unfinished, default=subscription.cursor.seen + 1)
            for entry in self.journal.since(first - 1):
                if entry["seq"] in unfinished or entry["seq"] > subscription.cursor.seen:
                    moment = datetime.fromisoformat(entry["time"])
                    event = Event(schema=entry["schema"], body=entry["event"], published_at=moment)
                    subscription.expect(entry["seq"], event)
                    subscription.offer(Admitted(seq=entry["seq"], event=event))

    def _offer(self, admitted: list[Admitted]) -> None:
        for one in admitted:
            for subscription in self.subscriptions:
                subscription.offer(one)


@dataclass(kw_only=True)
class Broker:
    """All topics; they deliver within ``async with``."""

    topics: dict[str, Topic]
    subscriptions: dict[str, Subscription]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """Tasks while the broker runs: one per subscription, and one that saves the cursors."""

    async def __aenter__(self) -> Self:
        for topic in self.topics.values():
            topic.resume()
        self.tasks = [asyncio.create_task(one.run()) for one in self.subscriptions.values()]
        self.tasks.append(asyncio.create_task(self._keep_saving()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self.tasks:
            task.cancel()
        for subscription in self.subscriptions.values():
            subscription.stop()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self._save()

    async def _keep_saving(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            self._save()

    def _save(self) -> None:
        for subscription in self.subscriptions.values():
            subscription.cursor.save()

    def describe(self) -> list[dict[str, Any]]:
        """Return the states of all subscriptions."""
        return [subscription.describe() for subscription in self.subscriptions.values()]


async def make_broker(config: Config, settings: Mapping[str, str], resources: AsyncExitStack) -> Broker:
    """Return the configured topics and subscriptions; clients and files are closed with `resources`."""
    folder = config.folder / "event_grid"
    topics = {
        name: Topic(name=name, journal=_journal(folder / f"topic-{name}.jsonl", resources)) for name in config.topics
    }
    session = await resources.enter_async_context(aiohttp.ClientSession())
    queues = await _queue_service(config, settings, resources)
    containers = await _dead_letter_containers(config, settings, resources)
    subscriptions = {}
    for one in config.subscriptions:
        topic = topics[one.topic]
        subscriptions[one.name] = Subscription(
            config=one,
            target=_target(one, queues, session),
            cursor=Cursor(folder / f"cursor-{one.name}.json", newest=topic.journal.last_seq),
            dead_letters=_journal(folder / f"dead-letters-{one.name}.jsonl", resources),
            dead_letter_container=containers.get(one.name),
        )
        topic.subscriptions.append(subscriptions[one.name])
    return Broker(topics=topics, subscriptions=subscriptions)


def _journal(path: Path, resources: AsyncExitStack) -> Journal:
    journal = Journal(path)
    resources.callback(journal.close)
    return journal


async def _queue_service(
    config: Config, settings: Mapping[str, str], resources: AsyncExitStack
) -> QueueServiceClient | None:
    """Return a client; None if no subscription has a queue, so that no storage account is needed."""
    if not any(one.queue for one in config.subscriptions):
        return None
    service = storage_connection(config.queue_connection_env, settings).queue_service()
    return await resources.enter_async_context(service)


async def _dead_letter_containers(
    config: Config, settings: Mapping[str, str], resources: AsyncExitStack
) -> dict[str, DeadLetterContainer]:
    """Return the containers by subscription. If there are none, no storage account is needed."""
    named = {one.name: one.dead_letter_container for one in config.subscriptions if one.dead_letter_container}
    if not named:
        return {}
    service = storage_connection(config.queue_connection_env, settings).blob_service()
    blobs = await resources.enter_async_context(service)
    return {
        name: DeadLetterContainer(container=blobs.get_container_client(container), subscription=name)
        for name, container in named.items()
    }


def _target(config: SubscriptionConfig, queues: QueueServiceClient | None, session: aiohttp.ClientSession) -> Target:
    if config.queue and queues:
        return QueueTarget(queues.get_queue_client(config.queue), config.message_ttl_s)
    return WebhookTarget(config, session)


@dataclass(kw_only=True)
class Subscription:
    """Accepts events, and delivers them while `run` runs."""

    config: SubscriptionConfig
    target: Target
    cursor: Cursor
    dead_letters: Journal
    """Dead letters, for people and tests."""
    dead_letter_container: DeadLetterContainer | None = None
    """Destination of dead letters; None if the subscription has none."""
    ready: bool = False
    """Whether the target is ready: a webhook has made its handshake, a queue exists."""
    delivered: int = 0
    failed_attempts: int = 0
    last_error: str = ""
    _waiting: asyncio.Queue[tuple[float, Admitted]] = field(default_factory=asyncio.Queue)
    """Events with their earliest time of delivery on the monotonic clock."""
    _retries: set[asyncio.Task[None]] = field(default_factory=set)

    def expect(self, seq: int, event: Event) -> None:
        """Record that `event` must be delivered, so that a restart delivers it."""
        if matches(event, self.config):
            self.cursor.begin(seq)
        else:
            self.cursor.skip(seq)

    def offer(self, admitted: Admitted) -> None:
        """Queue the event for delivery if the filters accept it."""
        if matches(admitted.event, self.config):
            self._waiting.put_nowait((time.monotonic() + admitted.delay_s, admitted))

    async def run(self) -> None:
        """Deliver until cancelled: several events at once and in no order, like Event Grid."""
        await self._prepare()
        await asyncio.gather(*(self._keep_delivering() for _ in range(DELIVERIES_AT_ONCE)))

    async def _keep_delivering(self) -> None:
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
            "target": self.config.queue or self.config.webhook.partition("?")[0],  # The query may contain a key.
            "ready": self.ready,
            "delivered": self.delivered,
            "pending": len(self.cursor.unfinished),
            "failed_attempts": self.failed_attempts,
            "dead_letters": self.dead_letters.last_seq,
            "last_error": self.last_error,
            "properties": self.config.as_arm(),
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
