"""Every app setting of the submitter, typed; all that is missing or wrong is reported at once.

The storage connections follow the Functions convention and are read by ``adapters/connections.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from function_app.domain.errors import SettingsError
from function_app.domain.jobs import Workspace

MAX_SETTING_CHARS = 2048
DEFAULT_MAX_CONCURRENT_RUNS = 10
MAX_CONCURRENT_RUNS = 1000
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

_GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CONTAINER = r"[a-z0-9](-?[a-z0-9]){2,62}"
_WORKSPACE_ID = (
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the app settings say, besides the storage connections."""

    data_container: str
    state_container: str
    runs_container: str
    workspace: Workspace
    topic_endpoint: str | None
    """Event Grid topic for notifications; None where no pipeline names it."""
    topic_key: str | None = field(repr=False)
    """None: the identity is used."""
    client_id: str | None
    """Of the user-assigned identity, None for the app's own (or the developer's)."""
    pipelines_dir: Path
    sweep_grace: timedelta
    """The sweep leaves alone what is younger: its own event may still be on the way."""
    claim_lease: timedelta
    """What a dead handler was at is taken over after it."""
    validation_budget_s: int
    """How long one execution validates one shard; what is left then is another execution's."""
    max_concurrent_runs: int
    """Over all pipelines; what comes then waits for its turn."""

    @property
    def own_containers(self) -> frozenset[str]:
        """Containers that are in use for something already."""
        return frozenset({self.data_container, self.state_container, self.runs_container})


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read and check the settings. Raises SettingsError listing every one that is missing or wrong."""
    read = _Reader(environ)
    settings = Settings(
        data_container=read.matching("LANDFALL_DATA_CONTAINER", _CONTAINER, "datasets"),
        state_container=read.matching("LANDFALL_STATE_CONTAINER", _CONTAINER, "landfall"),
        runs_container=read.matching("LANDFALL_RUNS_CONTAINER", _CONTAINER, "runs"),
        workspace=_workspace(read),
        topic_endpoint=read.url("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT"),
        topic_key=read.text("LANDFALL_NOTIFICATION_TOPIC_KEY"),
        client_id=read.matching("AZURE_CLIENT_ID", _GUID, "") or None,
        pipelines_dir=Path(read.text("LANDFALL_PIPELINES_DIR") or "pipelines"),
        sweep_grace=timedelta(seconds=read.seconds("LANDFALL_SWEEP_GRACE_S", 120)),
        claim_lease=timedelta(seconds=read.seconds("LANDFALL_CLAIM_LEASE_S", 180)),
        validation_budget_s=read.seconds("LANDFALL_VALIDATION_BUDGET_S", DEFAULT_BUDGET_S),
        max_concurrent_runs=read.count("LANDFALL_MAX_CONCURRENT_RUNS", DEFAULT_MAX_CONCURRENT_RUNS),
    )
    if read.problems:
        raise SettingsError(*read.problems)
    return settings


def read_url(environ: Mapping[str, str], name: str) -> str:
    """Return a setting that must hold a web address. Raises SettingsError; the value is a secret and not shown."""
    read = _Reader(environ)
    url = read.url(name)
    if url is None:
        read.problems.append(f"{name} is not set: should hold an https address")
    if read.problems or url is None:
        raise SettingsError(*read.problems)
    return url


def _workspace(read: _Reader) -> Workspace:
    datastore = r"[a-zA-Z0-9_]{1,255}"
    return Workspace(
        subscription_id=read.matching("LANDFALL_SUBSCRIPTION_ID", _GUID),
        resource_group=read.matching("LANDFALL_RESOURCE_GROUP", r"[-\w.()]{1,90}"),
        name=read.matching("LANDFALL_WORKSPACE", r"[a-zA-Z0-9][\w-]{2,32}"),
        environment_id=read.matching(
            "LANDFALL_ENVIRONMENT_ID", _WORKSPACE_ID + r"/environments/[^/]+/versions/[^/]+"
        ),
        code_id=read.matching("LANDFALL_CODE_ID", _WORKSPACE_ID + r"/codes/[^/]+/versions/[^/]+"),
        data_datastore=read.matching("LANDFALL_DATA_DATASTORE", datastore, "landfall_datasets"),
        state_datastore=read.matching("LANDFALL_STATE_DATASTORE", datastore, "landfall_state"),
        runs_datastore=read.matching("LANDFALL_RUNS_DATASTORE", datastore, "landfall_runs"),
    )


class _Reader:
    """Reads settings one by one and gathers what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip()
        if len(value) > MAX_SETTING_CHARS:
            self.problems.append(f"{name} should be at most {MAX_SETTING_CHARS} characters, was {len(value)}")
            return None
        return value or None

    def matching(self, name: str, pattern: str, default: str | None = None) -> str:
        """Return a text of a pattern; ``default`` None means that the setting is required."""
        value = self.text(name) or default
        if value is None:
            self.problems.append(f"{name} is not set: should look like {pattern}")
        elif value != default and not re.fullmatch(pattern, value, re.IGNORECASE if "/" in pattern else 0):
            self.problems.append(f"{name} should look like {pattern}, was {value!r}")
        return value or ""

    def url(self, name: str) -> str | None:
        """Return a web address: https, or http on this machine. The value may be a secret, so it is not shown."""
        value = self.text(name)
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            host = parts.hostname
        except ValueError:
            self.problems.append(f"{name} should be an https address, was none")
            return None
        if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)):
            self.problems.append(f"{name} should be an https address with a host, was {parts.scheme or 'no'} scheme")
        return value

    def seconds(self, name: str, default: int) -> int:
        value = self.text(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,6}", value):
            self.problems.append(f"{name} should be a whole number of seconds, was {value!r}")
            return default
        return int(value)

    def count(self, name: str, default: int) -> int:
        value = self.text(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,6}", value) or not 1 <= int(value) <= MAX_CONCURRENT_RUNS:
            self.problems.append(f"{name} should be a whole number from 1 to {MAX_CONCURRENT_RUNS}, was {value!r}")
            return default
        return int(value)


HOST_FILE = Path(__file__).resolve().parent.parent / "host.json"
OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
"""Source: learn.microsoft.com/azure/azure-functions/functions-host-json, "Override host.json values"."""
BUDGET_SHARE = 0.75
"""Of an execution: what cannot be paused has 1.2 times the budget, and the verdict is to be written down after it."""
DEFAULT_S = 30 * 60
"""Of Flex Consumption, where host.json says nothing."""
MAX_FILE_BYTES = 1 << 20
_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,3})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2})(?:\.\d{1,7})?"
)
_UNLIMITED = "-1"


def check_budget(budget_s: int, environ: Mapping[str, str], host_file: Path = HOST_FILE) -> None:
    """Raise SettingsError where a validation may take longer than the host lets it: it would be killed, for ever."""
    source, text = _stated(environ, host_file)
    timeout_s = _seconds(source, text)
    if timeout_s is None or budget_s <= timeout_s * BUDGET_SHARE:
        return
    raise SettingsError(
        f"LANDFALL_VALIDATION_BUDGET_S should be at most {int(timeout_s * BUDGET_SHARE)}, three quarters of the "
        f"{timeout_s} s that {source} allows an execution, was {budget_s}"
    )


def _stated(environ: Mapping[str, str], host_file: Path) -> tuple[str, object]:
    if OVERRIDE in environ:
        return OVERRIDE, environ[OVERRIDE]
    source = f"functionTimeout of {host_file.name}"
    try:
        with host_file.open("rb") as file:
            return source, json.loads(file.read(MAX_FILE_BYTES)).get("functionTimeout")
    except FileNotFoundError:
        return source, None
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(f"{host_file.name} should be a JSON object, cannot be read: {error}") from error


def _seconds(source: str, text: object) -> int | None:
    """Return None where there is no limit."""
    if text is None:
        return DEFAULT_S
    match = _TIME_SPAN.fullmatch(str(text))
    if match is None and text != _UNLIMITED:
        raise SettingsError(f"{source} should look like 00:30:00, or be -1 for no limit, was {text!r}")
    if match is None:
        return None
    parts = {name: int(number or 0) for name, number in match.groupdict().items()}
    return ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60 + parts["seconds"]


DEFAULT_BUDGET_S = 20 * 60
"""Flex Consumption ends an execution after 30 minutes by default; the last chunk and the verdict need some of it."""


PATIENCE = 1.2
"""Times the budget: how long an execution may take where a shard cannot be paused."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Durations by a clock that only goes forward."""

    budget_s: float = DEFAULT_BUDGET_S
    """After this an execution leaves the rest to the next one."""
    patience_s: float = DEFAULT_BUDGET_S * PATIENCE
    """After this a shard that cannot be paused is rejected: the next execution would come no further."""
    checkpoint_every_s: float = 60.0
    """An instance that is recycled without a word loses so much work at most, and one chunk."""
    min_bytes: int = 256 << 20
    """A smaller shard takes seconds: it is judged in one go, and costs no checkpoint."""
    seconds: Callable[[], float] = time.monotonic
