"""App settings and host.json of the served app."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

MAX_FILE_BYTES = 1 << 20
MAX_BATCH_SIZE = 32
"""Maximum number of messages that a queue returns at once."""

LOCAL_POLLING_CAP_S = 1.0
"""Maximum pause between polls of an idle queue. The Functions host's minute is too long at a terminal."""

OVERRIDE = "AzureFunctionsJobHost__"
"""Prefix of settings that override host.json."""

_TIME_SPAN = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?")


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """``extensions.queues`` of host.json, with the Functions host's defaults."""

    batch_size: int = 16
    new_batch_threshold: int = 8
    """Number of messages in progress at or below which new ones are fetched."""
    max_dequeue_count: int = 5
    """Number of tries before a message is moved to the poison queue."""
    visibility_timeout_s: float = 0.0
    """How long a failed message stays invisible before its next try."""
    max_polling_interval_s: float = LOCAL_POLLING_CAP_S
    message_encoding: Literal["base64", "none"] = "base64"


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The options of host.json that the dev host uses."""

    route_prefix: str = "api"
    queues: QueueOptions = QueueOptions()


def local_settings(root: Path) -> dict[str, str]:
    """Return ``Values`` of local.settings.json in `root`; empty if there is no such file."""
    values = _read_json(root / "local.settings.json").get("Values", {})
    if not isinstance(values, dict):
        raise DevHostError(f"{root / 'local.settings.json'}: Values must be an object, not {type(values).__name__}")
    return {str(key): str(value) for key, value in values.items()}


def app_settings(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return local.settings.json, overridden by the environment."""
    return local_settings(root) | dict(environment)


def host_id(root: Path, settings: Mapping[str, str]) -> str:
    """Return the app's unique id in its storage account: the setting, or an id made from its folder."""
    made = f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    return settings.get("AzureFunctionsWebHost__hostid") or made


def host_options(root: Path, settings: Mapping[str, str] | None = None) -> HostOptions:
    """Return the options in host.json, overridden by settings: ``AzureFunctionsJobHost__a__b`` for a.b.

    Raises DevHostError, which names the wrong field. Source of the settings' form:
    https://learn.microsoft.com/azure/azure-functions/functions-host-json#override-hostjson-values.
    """
    path = root / "host.json"
    extensions = _section(_overridden(_read_json(path), settings or {}, path), "extensions", path)
    http = _section(extensions, "http", path)
    queues = _section(extensions, "queues", path)
    try:
        return HostOptions(route_prefix=str(http.get("routePrefix", "api")).strip("/"), queues=_queue_options(queues))
    except ValueError as error:
        raise DevHostError(f"{path}: extensions.queues: {error}") from error


def _overridden(content: dict[str, Any], settings: Mapping[str, str], path: Path) -> dict[str, Any]:
    for name, value in settings.items():
        if name.startswith(OVERRIDE):
            *parents, last = name.removeprefix(OVERRIDE).split("__")
            section = content
            for parent in parents:
                child = dict(_section(section, parent, path))
                section[parent] = child
                section = child
            section[last] = int(value) if value.isdecimal() else value
    return content


def _queue_options(section: Mapping[str, Any]) -> QueueOptions:
    batch_size = _whole_number(section, "batchSize", 16, 1, MAX_BATCH_SIZE)
    encoding = str(section.get("messageEncoding", "base64")).lower()
    if encoding not in ("base64", "none"):
        raise ValueError(f"messageEncoding must be base64 or none, not {encoding!r}")
    return QueueOptions(
        batch_size=batch_size,
        new_batch_threshold=_whole_number(section, "newBatchThreshold", batch_size // 2, 0, 1000),
        max_dequeue_count=_whole_number(section, "maxDequeueCount", 5, 1, 1000),
        visibility_timeout_s=seconds(section.get("visibilityTimeout", "00:00:00")),
        max_polling_interval_s=min(seconds(section.get("maxPollingInterval", "00:01:00")), LOCAL_POLLING_CAP_S),
        message_encoding="base64" if encoding == "base64" else "none",
    )


def seconds(value: object) -> float:
    """Return the seconds of a .NET time span such as ``00:00:30`` or ``1.02:00:00.5``, or of whole milliseconds."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value / 1000
    match = _TIME_SPAN.fullmatch(str(value).strip())
    if not match:
        raise ValueError(f"a time span must look like 00:00:30, not {value!r}")
    days, hours, minutes, whole, fraction = match.groups()
    total = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(whole)
    return total + float(f"0.{fraction or 0}")


def _whole_number(section: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = section.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def _section(parent: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = parent.get(name) or {}
    if not isinstance(section, dict):
        raise DevHostError(f"{path}: {name} must be an object, not {type(section).__name__}")
    return section


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DevHostError(f"{path} has {path.stat().st_size} bytes, more than {MAX_FILE_BYTES}")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DevHostError(f"{path} must be JSON: {error}") from error
    if not isinstance(content, dict):
        raise DevHostError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content


class DevHostError(Exception):
    """The dev host cannot start; the message is one paragraph for the terminal."""


class BindingError(DevHostError):
    """A function's binding has an invalid value, or uses a setting that is not set."""
