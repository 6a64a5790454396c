"""The emulator's configuration file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MAX_FILE_BYTES = 1 << 20
STORAGE_TOPIC = "storage"
"""The topic that receives the writes of the storage account."""

DEFAULT_RETRY_SCHEDULE_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Pauses before each attempt. Event Grid's pauses, 10 s to 12 h, are too long for a person who waits."""

DEFAULT_MESSAGE_TTL_S = 7 * 24 * 3600
"""Default of ``queueMessageTimeToLiveInSeconds`` for subscriptions to queues."""
MAX_FILTERS, MAX_FILTER_VALUES = 25, 25
"""Event Grid's limits for one subscription, and for all filters of it together."""
OPERATORS = ("StringIn", "StringContains")

RESOURCE_GROUP_ID = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/landfall"

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.IGNORECASE)


class ConfigurationError(Exception):
    """A field of the configuration file is missing or wrong; the message names it."""


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """The storage account whose writes become events."""

    access_log: Path
    """Azurite's standard output."""
    account: str
    connection_env: str
    """The setting with the account's connection."""

    @property
    def resource_id(self) -> str:
        """The account's resource id, which is the topic of the events."""
        return f"{RESOURCE_GROUP_ID}/providers/Microsoft.Storage/storageAccounts/{self.account}"


@dataclass(frozen=True, kw_only=True)
class AdvancedFilter:
    """One of a subscription's ``advancedFilters``: a member of the event must equal, or contain, one of some texts.

    Source: https://learn.microsoft.com/azure/event-grid/event-filtering.
    """

    operator: str
    """``StringIn`` or ``StringContains``."""
    key: str
    """``subject``, or a member of the data, such as ``data.api``."""
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SubscriptionConfig:
    """A subscription: its topic, filters and target."""

    name: str
    topic: str
    included_event_types: frozenset[str] = frozenset()
    """Event types; empty for all."""
    subject_begins_with: str = ""
    subject_ends_with: str = ""
    advanced_filters: tuple[AdvancedFilter, ...] = ()
    """Filters, all of which must accept an event."""
    queue: str = ""
    """A storage queue's name; empty if there is a webhook."""
    message_ttl_s: int = DEFAULT_MESSAGE_TTL_S
    """Time after which the queue drops a message; -1 for never."""
    webhook: str = ""
    """A URL; empty if there is a queue."""
    cloud_events: bool = False
    """Whether the webhook is validated as CloudEvents specifies (OPTIONS)."""
    retry_schedule_s: tuple[float, ...] = DEFAULT_RETRY_SCHEDULE_S
    dead_letter_container: str = ""
    """A container in the queues' account; without it, undeliverable events are only in the journal, for tests."""

    def as_arm(self) -> dict[str, Any]:
        """Return the ``properties`` of the subscription in the format of Azure Resource Manager."""
        ttl = {"queueName": self.queue, "queueMessageTimeToLiveInSeconds": self.message_ttl_s}
        dead = {"deadLetterDestination": {"properties": {"blobContainerName": self.dead_letter_container}}}
        filters = [
            {"operatorType": one.operator, "key": one.key, "values": list(one.values)}
            for one in self.advanced_filters
        ]
        return {
            "provisioningState": "Succeeded",
            "eventDeliverySchema": "CloudEventSchemaV1_0" if self.cloud_events else "EventGridSchema",
            "deliveryWithResourceIdentity": {"destination": {"properties": ttl if self.queue else {}}},
            "deadLetterWithResourceIdentity": dead if self.dead_letter_container else None,
            "filter": {
                "includedEventTypes": sorted(self.included_event_types),
                "subjectBeginsWith": self.subject_begins_with,
                "subjectEndsWith": self.subject_ends_with,
                "advancedFilters": filters,
            },
        }


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole configuration."""

    folder: Path
    """Folder of the file, in which the emulator also stores its state."""
    topics: tuple[str, ...]
    subscriptions: tuple[SubscriptionConfig, ...]
    queue_connection_env: str
    """The setting with the connection of the account for the subscriptions' queues and dead letters."""
    storage: StorageConfig | None = field(default=None)
    """None if no storage account raises events."""


def load_config(path: Path) -> Config:
    """Read and check the file. Raises ConfigurationError, which names the wrong field."""
    content = _read(path)
    storage = _storage(content.get("storage"), path.parent)
    topics = tuple(_name(topic, "topics") for topic in _list(content, "topics"))
    subscriptions = tuple(_subscription(item, topics) for item in _list(content, "subscriptions"))
    names = [subscription.name for subscription in subscriptions]
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{path}: subscriptions must have different names, not {names}")
    if storage and STORAGE_TOPIC not in topics:
        raise ConfigurationError(
            f"{path}: topics must contain {STORAGE_TOPIC!r} where there is a storage section, not {topics}"
        )
    return Config(
        folder=path.parent,
        topics=topics,
        subscriptions=subscriptions,
        queue_connection_env=str(content.get("queue_connection_env", "AzureWebJobsStorage")),
        storage=storage,
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} must be a file of at most {MAX_FILE_BYTES} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{path} must be JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content


def _storage(section: Any, folder: Path) -> StorageConfig | None:
    if section is None:
        return None
    if not isinstance(section, dict):
        raise ConfigurationError(f"storage must be an object, not {type(section).__name__}")
    return StorageConfig(
        access_log=folder / _text(section, "access_log", "storage"),
        account=_text(section, "account", "storage"),
        connection_env=_text(section, "connection_env", "storage"),
    )


def _subscription(item: Any, topics: tuple[str, ...]) -> SubscriptionConfig:
    if not isinstance(item, dict):
        raise ConfigurationError(f"a subscription must be an object, not {type(item).__name__}")
    name = _name(item.get("name"), "a subscription's name")
    topic = _text(item, "topic", name)
    if topic not in topics:
        raise ConfigurationError(f"subscription {name}: topic must be one of {list(topics)}, not {topic!r}")
    queue, webhook = str(item.get("queue", "")), str(item.get("webhook", ""))
    if bool(queue) == bool(webhook):
        raise ConfigurationError(f"subscription {name} must have either a queue or a webhook")
    if webhook and (urlsplit(webhook).scheme not in ("http", "https") or not urlsplit(webhook).hostname):
        raise ConfigurationError(f"subscription {name}: webhook must be an http URL, not {webhook!r}")
    return SubscriptionConfig(
        name=name,
        topic=topic,
        included_event_types=frozenset(str(kind) for kind in _list(item, "included_event_types")),
        subject_begins_with=str(item.get("subject_begins_with", "")),
        subject_ends_with=str(item.get("subject_ends_with", "")),
        advanced_filters=_filters(item, name),
        message_ttl_s=_ttl(item, name),
        queue=queue,
        webhook=webhook,
        cloud_events=bool(item.get("cloud_events", False)),
        retry_schedule_s=_schedule(item, name),
        dead_letter_container=str(item.get("dead_letter_container", "")),
    )


def _filters(item: Mapping[str, Any], name: str) -> tuple[AdvancedFilter, ...]:
    found = tuple(_filter(one, name) for one in _list(item, "advanced_filters"))
    if len(found) > MAX_FILTERS or sum(len(one.values) for one in found) > MAX_FILTER_VALUES:
        raise ConfigurationError(
            f"subscription {name}: advanced_filters may be {MAX_FILTERS}, with {MAX_FILTER_VALUES} values in all"
        )
    return found


def _filter(one: Any, name: str) -> AdvancedFilter:
    where = f"subscription {name}: an advanced filter"
    if not isinstance(one, dict):
        raise ConfigurationError(f"{where} must be an object, not {type(one).__name__}")
    operator, key = _text(one, "operatorType", where), _text(one, "key", where)
    values = tuple(str(value) for value in _list(one, "values"))
    if operator not in OPERATORS or not values or (key != "subject" and not key.startswith("data.")):
        raise ConfigurationError(
            f"{where} needs an operatorType of {', '.join(OPERATORS)}, a key subject or data.MEMBER, and values"
        )
    return AdvancedFilter(operator=operator, key=key, values=values)


def _ttl(item: Mapping[str, Any], name: str) -> int:
    seconds = item.get("message_ttl_s", DEFAULT_MESSAGE_TTL_S)
    if type(seconds) is not int or (seconds != -1 and seconds < 1):
        raise ConfigurationError(f"subscription {name}: message_ttl_s must be seconds or -1, not {seconds!r}")
    return seconds


def _schedule(item: Mapping[str, Any], name: str) -> tuple[float, ...]:
    pauses = item.get("retry_schedule_s", DEFAULT_RETRY_SCHEDULE_S)
    numbers = isinstance(pauses, list | tuple) and all(isinstance(one, int | float) and one >= 0 for one in pauses)
    if not numbers or not pauses:
        raise ConfigurationError(f"subscription {name}: retry_schedule_s must be a list of seconds, not {pauses!r}")
    return tuple(float(one) for one in pauses)


def _list(section: Mapping[str, Any], name: str) -> list[Any]:
    value = section.get(name, [])
    if not isinstance(value, list):
        raise ConfigurationError(f"{name} must be a list, not {type(value).__name__}")
    return value


def _text(section: Mapping[str, Any], name: str, where: str) -> str:
    value = section.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where}: {name} must be a text, not {value!r}")
    return value


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigurationError(f"{what} must be letters, digits, - and _ only, not {value!r}")
    return value
