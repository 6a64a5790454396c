"""What was given up, written where a deployment looks for it: a blob of the dead-letter container.

The blob's name and the members that are added to the event are those of
https://learn.microsoft.com/azure/event-grid/manage-event-delivery#set-dead-letter-location and
https://learn.microsoft.com/azure/event-grid/delivery-and-retry#delivery-event-formats. Event Grid lets five minutes
pass before it writes; the emulator writes at once, and one blob for each event.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from local_azure.event_grid.events import Event

log = logging.getLogger("event_grid")

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Between tries to write; the last one is repeated. Event Grid tries for four hours: longer than a twin lives."""


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """An event that no target took, and how its deliveries went."""

    event: Event
    reason: str
    """``MaxDeliveryAttemptsExceeded`` and the like."""
    attempts: int
    outcome: str
    """Of the last attempt, in Event Grid's word."""
    published_at: datetime
    last_attempt_at: datetime

    def as_json(self) -> dict[str, Any]:
        """The event with what is added to it; in a cloud event the names are lower case, as extensions are."""
        members = {
            "deadLetterReason": self.reason,
            "deliveryAttempts": self.attempts,
            "lastDeliveryOutcome": self.outcome,
            "publishTime": _time(self.published_at),
            "lastDeliveryAttemptTime": _time(self.last_attempt_at),
        }
        if self.event.schema == "cloud_events":
            members = {name.lower(): value for name, value in members.items()}
        return {**self.event.body, **members}


@dataclass(frozen=True, kw_only=True)
class DeadLetterContainer:
    """Where the dead letters of one subscription go."""

    container: ContainerClient
    subscription: str

    async def write(self, given_up: GivenUp) -> None:
        """Write a blob, however often that takes; without the container the event is lost, as with Event Grid."""
        name = blob_name(self.subscription, given_up.last_attempt_at)
        content = json.dumps([given_up.as_json()])
        tries = 0
        while True:
            try:
                await self.container.upload_blob(name, content, overwrite=True)
            except ResourceNotFoundError:
                log.error(  # noqa: TRY400 (whose container is missing, not where in the code)
                    f"subscription {self.subscription}: the dead-letter container {self.container.container_name} "
                    f"is missing, event {given_up.event.id} is lost"
                )
                return
            except AzureError as error:
                log.warning(f"subscription {self.subscription}: {name} cannot be written, trying on: {error}")
                await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
            else:
                return


def blob_name(subscription: str, moment: datetime) -> str:
    """``SUBSCRIPTION/2026/11/8/5/<guid>.json``: upper case, the date and the hour (UTC) without leading zeros."""
    when = f"{moment.year}/{moment.month}/{moment.day}/{moment.hour}"
    return f"{subscription.upper()}/{when}/{uuid.uuid4()}.json"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
