"""Targets of deliveries: storage queues, webhooks, and the container for dead letters."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import aiohttp
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueClient

from local_azure.event_grid.config import SubscriptionConfig
from local_azure.event_grid.events import Event, event_time

log = logging.getLogger("event_grid")

ANSWER_TIMEOUT_S = 30
"""Event Grid's time-out: https://learn.microsoft.com/azure/event-grid/delivery-and-retry."""

SUCCESSES = frozenset(range(200, 205))
NOT_RETRIED = frozenset((400, 401, 403, 413))

MAX_ANSWER_BYTES = 1 << 16


OUTCOMES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    408: "TimedOut",
    413: "PayloadTooLarge",
    503: "Busy",
}
"""HTTP status → ``lastDeliveryOutcome`` of a dead letter."""
OTHER_OUTCOME, NO_ANSWER = "GenericError", "TimedOut"

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses between attempts to write; the last one is repeated."""


class DeliveryFailedError(Exception):
    """An attempt failed. It is `final` if a retry would fail too; `status` is the answer's, if there was one."""

    def __init__(self, reason: str, *, final: bool, status: int | None = None) -> None:
        super().__init__(reason)
        self.final = final
        self.outcome = NO_ANSWER if status is None else OUTCOMES.get(status, OTHER_OUTCOME)

    @property
    def dead_letter_reason(self) -> str:
        """The ``deadLetterReason`` if this was the last attempt."""
        return f"UndeliverableDueToHttp{self.outcome}" if self.final else "MaxDeliveryAttemptsExceeded"


class Target(Protocol):
    """Receives deliveries."""

    async def prepare(self) -> None:
        """Prepare the target, as for a new subscription. Raises DeliveryFailedError."""

    async def deliver(self, event: Event, attempt: int) -> None:
        """Make one attempt, counted from 0. Raises DeliveryFailedError."""


class QueueTarget:
    """A storage queue. A message is one event's JSON in base64, as in Event Grid."""

    def __init__(self, queue: QueueClient, message_ttl_s: int) -> None:
        self._queue = queue
        self._message_ttl_s = message_ttl_s

    async def prepare(self) -> None:
        """Create the queue if it does not exist."""
        try:
            with contextlib.suppress(ResourceExistsError):  # the usual case
                await self._queue.create_queue()
        except AzureError as error:
            raise DeliveryFailedError(_first_line(error), final=False) from error

    async def deliver(self, event: Event, attempt: int) -> None:  # noqa: ARG002 (a message does not say which attempt it is)
        """Send the message."""
        try:
            content = base64.b64encode(event.as_json().encode()).decode()
            await self._queue.send_message(content, time_to_live=self._message_ttl_s)
        except HttpResponseError as error:
            status = error.status_code
            raise DeliveryFailedError(_first_line(error), final=status in NOT_RETRIED, status=status) from error
        except AzureError as error:
            raise DeliveryFailedError(_first_line(error), final=False) from error


class WebhookTarget:
    """An HTTP endpoint, which must first answer a handshake."""

    def __init__(self, config: SubscriptionConfig, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._session = session

    async def prepare(self) -> None:
        """Make the handshake in the subscription's schema."""
        if self._config.cloud_events:
            await self._ask_for_consent()
        else:
            await self._validate()

    async def deliver(self, event: Event, attempt: int) -> None:
        """POST an array with one event, or a single cloud event."""
        headers = {**self._headers("Notification"), "aeg-delivery-count": str(attempt)}
        if event.schema == "cloud_events":
            headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
            body = event.as_json()
        else:
            headers |= {"aeg-metadata-version": "1", "aeg-data-version": str(event.body.get("dataVersion", ""))}
            body = f"[{event.as_json()}]"
        status, answer, _ = await self._send("POST", headers, body)
        if status not in SUCCESSES:
            reason = f"answered {status}: {answer[:200]}"
            raise DeliveryFailedError(reason, final=status in NOT_RETRIED, status=status)

    async def _validate(self) -> None:
        code = str(uuid.uuid4())
        status, answer, _ = await self._send("POST", self._headers("SubscriptionValidation"), _validation_event(code))
        with contextlib.suppress(ValueError, AttributeError):  # not a JSON object
            if status == 200 and json.loads(answer).get("validationResponse") == code:  # noqa: PLR2004 (HTTP OK)
                return
        raise DeliveryFailedError(
            f'the handshake must be answered with 200 and {{"validationResponse": code}}; '
            f"the answer was {status}: {answer[:200]}",
            final=False,
        )

    async def _ask_for_consent(self) -> None:
        headers = {**self._headers("SubscriptionValidation"), "WebHook-Request-Origin": "eventgrid.azure.net"}
        status, answer, allowed = await self._send("OPTIONS", headers, "")
        if status not in SUCCESSES or allowed not in ("*", "eventgrid.azure.net"):
            raise DeliveryFailedError(
                f"OPTIONS must be answered with WebHook-Allowed-Origin; the answer was {status}: {answer[:200]}",
                final=False,
            )

    def _headers(self, kind: Literal["Notification", "SubscriptionValidation"]) -> dict[str, str]:
        return {
            "Content-Type": "application/json; charset=utf-8",
            "aeg-event-type": kind,
            "aeg-subscription-name": self._config.name.upper(),
        }

    async def _send(self, method: str, headers: dict[str, str], body: str) -> tuple[int, str, str]:
        """Return the answer's status, its text (bounded), and the origin that it allows."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        request = self._session.request(method, self._config.webhook, data=body, headers=headers, timeout=timeout)
        try:
            async with request as answer:
                text = (await answer.content.read(MAX_ANSWER_BYTES)).decode("utf-8", errors="replace")
                return answer.status, text, answer.headers.get("WebHook-Allowed-Origin", "")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailedError(f"no answer: {type(error).__name__} {error}".strip(), final=False) from error


def _validation_event(code: str) -> str:
    return json.dumps(
        [
            {
                "id": str(uuid.uuid4()),
                "topic": "",
                "subject": "",
                "data": {"validationCode": code, "validationUrl": ""},
                "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
                "eventTime": event_time(datetime.now(UTC)),
                "metadataVersion": "1",
                "dataVersion": "1",
            }
        ]
    )


def _first_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """An event that could not be delivered, with the reason and the attempts."""

    event: Event
    reason: str
    """``MaxDeliveryAttemptsExceeded`` and the like."""
    attempts: int
    outcome: str
    """Outcome of the last attempt, in Event Grid's words."""
    published_at: datetime
    last_attempt_at: datetime

    def as_json(self) -> dict[str, Any]:
        """Return the event with the added members, whose names are lower case in a cloud event."""
        members = {
            "deadLetterReason": self.reason,
            "deliveryAttempts": self.attempts,
            "lastDeliveryOutcome": self.outcome,
            "publishTime": event_time(self.published_at),
            "lastDeliveryAttemptTime": event_time(self.last_attempt_at),
        }
        if self.event.schema == "cloud_events":
            members = {name.lower(): value for name, value in members.items()}
        return {**self.event.body, **members}


@dataclass(frozen=True, kw_only=True)
class DeadLetterContainer:
    """The destination of one subscription's dead letters, with one blob per event.

    Names and members are those of
    https://learn.microsoft.com/azure/event-grid/manage-event-delivery#set-dead-letter-location and
    https://learn.microsoft.com/azure/event-grid/delivery-and-retry#delivery-event-formats. Event Grid writes after
    five minutes; the emulator writes at once.
    """

    container: ContainerClient
    subscription: str

    async def write(self, letter: DeadLetter) -> None:
        """Write a blob, and retry until that succeeds. Without a container the event is lost, as in Azure."""
        name = blob_name(self.subscription, letter.last_attempt_at)
        content = json.dumps([letter.as_json()])
        tries = 0
        while True:
            try:
                await self.container.upload_blob(name, content, overwrite=True)
            except ResourceNotFoundError:
                log.error(  # noqa: TRY400 (whose container is missing, not where in the code)
                    f"subscription {self.subscription}: the dead-letter container {self.container.container_name} "
                    f"is missing, event {letter.event.id} is lost"
                )
                return
            except AzureError as error:
                log.warning(f"subscription {self.subscription}: {name} cannot be written, will retry: {error}")
                await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
            else:
                return


def blob_name(subscription: str, moment: datetime) -> str:
    """``SUBSCRIPTION/2026/11/8/5/<guid>.json``: upper case, the date and the hour (UTC) without leading zeros."""
    when = f"{moment.year}/{moment.month}/{moment.day}/{moment.hour}"
    return f"{subscription.upper()}/{when}/{uuid.uuid4()}.json"
