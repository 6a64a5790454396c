"""Every app setting of the submitter, typed; all that is missing or wrong is reported at once.

The storage connections follow the Functions convention and are read by ``adapters/connections.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from function_app.errors import SettingsError
from function_app.ports import Workspace
from function_app.slices import DEFAULT_BUDGET_S

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
