"""The app settings, typed and checked, and the validation time limits derived from them.

Storage connections follow the convention of Azure Functions; ``adapters/connections.py`` reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from function_app.config.clusters import CLUSTER_SIZES, MAX_CLUSTERS
from function_app.config.fields import CONTAINER_NAME
from function_app.domain.errors import SettingsError
from function_app.domain.jobs import Workspace
from shared.safe_text import setting_value

MAX_SETTING_CHARS = 2048
PIPELINES_DIR = "LANDFALL_PIPELINES_DIR"
DEFAULT_PIPELINES_DIR = "pipelines"
DEFAULT_MAX_CONCURRENT_RUNS = 10
MAX_CONCURRENT_RUNS = 1000
DEFAULT_REQUESTS_PER_MINUTE = 600
MAX_REQUESTS_PER_MINUTE = 100_000
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

HOST_FILE = Path(__file__).resolve().parents[2] / "host.json"
TIMEOUT_OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
"""Source: learn.microsoft.com/azure/azure-functions/functions-host-json, "Override host.json values"."""
DEFAULT_TIMEOUT_S = 30 * 60
"""Flex Consumption's limit for one execution if host.json has none."""
BUDGET_SHARE = 0.75
"""Share of an execution that a validation may take; the rest is for ``PATIENCE`` and for storing the verdict."""
DEFAULT_BUDGET_S = 20 * 60
PATIENCE = 1.2
"""Factor on the budget for shards whose validation cannot be paused."""
MAX_HOST_FILE_BYTES = 1 << 20
_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,3})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2})(?:\.\d{1,7})?"
)
_UNLIMITED = "-1"

_GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WORKSPACE_ID = (
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+"
)


IN_AZURE = ("WEBSITE_INSTANCE_ID", "CONTAINER_NAME")
"""Variables that App Service and Flex Consumption set on each instance."""
EASY_AUTH_STATE = "WEBSITE_AUTH_ENABLED"
"""App Service's own variable: whether its authentication is on."""
SIGN_IN = "LANDFALL_PAGES_SIGN_IN"
PAGES_URL = "LANDFALL_PAGES_URL"


class SignIn(StrEnum):
    """Who protects the pages, as the app setting states it."""

    OFF = "off"
    """No page is served."""
    EASY_AUTH = "easy-auth"
    """App Service authentication runs in front of the app, and its headers name the person."""
    NONE = "none"
    """Every user of this machine is an admin; refused in Azure."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The app settings, without the storage connections."""

    data_container: str
    state_container: str
    runs_container: str
    workspace: Workspace
    workspace_blob_uri: str | None
    """Blob service of the workspace's storage account; None for the address that Azure ML names."""
    topic_endpoint: str | None
    """Event Grid topic for notifications; None if no pipeline uses it."""
    topic_key: str | None = field(repr=False)
    """Key of the topic; None to authenticate with the identity."""
    client_id: str | None
    """Client id of the user-assigned identity; None for the app's own identity, or the developer's."""
    pipelines_dir: Path
    cluster_sizes: Mapping[str, str]
    """Cluster → the VM size that it has, as `landfall publish` prints it."""
    sweep_grace: timedelta
    """Minimum age of what the sweep repairs: the event of anything younger may still arrive."""
    claim_lease: timedelta
    """Time after which another handler takes over from one that has not finished."""
    validation_budget_s: int
    """Seconds that one execution validates one shard; another execution continues."""
    max_concurrent_runs: int
    """Maximum active runs of all pipelines; further runs wait in the queue."""
    requests_per_minute: int
    """HTTP requests per minute of each caller to one instance."""
    pages_sign_in: SignIn
    in_azure: bool
    """Whether this process is an instance of a function app in Azure."""
    pages_url: str | None = None
    """Address of the pages, for links in notifications; None: there are none."""
    insights_connection: str | None = field(default=None, repr=False)
    """Connection string of Application Insights; None: no telemetry leaves the app."""
    traces_dir: Path | None = None
    """Folder for traces, on the local twin."""

    @property
    def own_containers(self) -> frozenset[str]:
        """Containers that Landfall uses itself."""
        return frozenset({self.data_container, self.state_container, self.runs_container})


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the checked settings. Raises SettingsError with all settings that are missing or wrong."""
    read = _Reader(environ)
    settings = Settings(
        data_container=read.matching("LANDFALL_DATA_CONTAINER", CONTAINER_NAME, "datasets"),
        state_container=read.matching("LANDFALL_STATE_CONTAINER", CONTAINER_NAME, "landfall"),
        runs_container=read.matching("LANDFALL_RUNS_CONTAINER", CONTAINER_NAME, "runs"),
        workspace=_workspace(read),
        workspace_blob_uri=read.url("LANDFALL_WORKSPACE_BLOB_URI"),
        topic_endpoint=read.url("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT"),
        topic_key=read.text("LANDFALL_NOTIFICATION_TOPIC_KEY"),
        client_id=read.matching("AZURE_CLIENT_ID", _GUID, "") or None,
        pipelines_dir=Path(read.text(PIPELINES_DIR) or DEFAULT_PIPELINES_DIR),
        cluster_sizes=read.pairs(CLUSTER_SIZES, MAX_CLUSTERS),
        sweep_grace=timedelta(seconds=read.seconds("LANDFALL_SWEEP_GRACE_S", 120)),
        claim_lease=timedelta(seconds=read.seconds("LANDFALL_CLAIM_LEASE_S", 180)),
        validation_budget_s=read.seconds("LANDFALL_VALIDATION_BUDGET_S", DEFAULT_BUDGET_S),
        max_concurrent_runs=read.count(
            "LANDFALL_MAX_CONCURRENT_RUNS", DEFAULT_MAX_CONCURRENT_RUNS, most=MAX_CONCURRENT_RUNS
        ),
        requests_per_minute=read.count(
            "LANDFALL_REQUESTS_PER_MINUTE", DEFAULT_REQUESTS_PER_MINUTE, most=MAX_REQUESTS_PER_MINUTE
        ),
        pages_sign_in=_sign_in(read, environ),
        in_azure=_in_azure(environ),
        pages_url=_pages_url(read),
        insights_connection=read.text("APPLICATIONINSIGHTS_CONNECTION_STRING"),
        traces_dir=Path(traces) if (traces := read.text("LANDFALL_TRACES_DIR")) else None,
    )
    if read.problems:
        raise SettingsError(*read.problems)
    return settings


def pipelines_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder with the pipeline files, without a check of the other settings."""
    return Path(environ.get(PIPELINES_DIR, "").strip() or DEFAULT_PIPELINES_DIR)


def read_url(environ: Mapping[str, str], name: str) -> str:
    """Return a setting that must contain an address. Raises SettingsError, which does not show the secret value."""
    read = _Reader(environ)
    url = read.url(name)
    if url is None:
        read.problems.append(f"{name} is not set; set it to an https address")
    if read.problems or url is None:
        raise SettingsError(*read.problems)
    return url


def read_apprise_url(environ: Mapping[str, str], name: str) -> str:
    """Return a setting that must contain an Apprise URL. Raises SettingsError, which does not show the secret value.

    Apprise parses it with the first notification, because importing Apprise would slow down every cold start.
    """
    read = _Reader(environ)
    url = read.text(name)
    if url is None:
        read.problems.append(f"{name} is not set; set it to an Apprise URL such as mailtos://…")
    elif not re.fullmatch(r"[a-z][a-z0-9.+-]{1,30}://\S+", url, re.IGNORECASE | re.ASCII):
        read.problems.append(f"{name} must be one Apprise URL, such as mailtos://…, without spaces")
    if read.problems or url is None:
        raise SettingsError(*read.problems)
    return url


def _pages_url(read: _Reader) -> str | None:
    """Return where the pages are: as the setting says, or at the name that App Service gives the app."""
    url, host = read.url(PAGES_URL), read.text("WEBSITE_HOSTNAME")
    if url is None and host is not None and re.fullmatch(r"[A-Za-z0-9.-]{1,253}", host):
        url = f"https://{host}"
    return url and url.rstrip("/")


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


def _in_azure(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in IN_AZURE)


def _sign_in(read: _Reader, environ: Mapping[str, str]) -> SignIn:
    value = read.text(SIGN_IN) or SignIn.OFF
    if value not in set(SignIn):
        read.problems.append(f"{SIGN_IN} must be one of {', '.join(SignIn)}, got {setting_value(value)}")
        return SignIn.OFF
    if value == SignIn.NONE and _in_azure(environ):
        read.problems.append(f"{SIGN_IN} must not be none in Azure, because everybody could read the pages")
    if value == SignIn.EASY_AUTH and environ.get(EASY_AUTH_STATE, "true").lower() == "false":
        read.problems.append(f"{SIGN_IN} is easy-auth, but App Service authentication is off: turn it on first")
    return SignIn(value)


def _scheme(scheme: str) -> str:
    """Say which scheme a wrong address has, if it is a known one: a secret may have a colon too."""
    return f"got scheme {scheme}" if scheme in {"http", "https", "ftp"} else "got another scheme or none"


class _Reader:
    """Reads settings one by one and collects their problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip()
        if len(value) > MAX_SETTING_CHARS:
            self.problems.append(f"{name} must be at most {MAX_SETTING_CHARS} characters, got {len(value)}")
            return None
        return value or None

    def matching(self, name: str, pattern: str, default: str | None = None) -> str:
        """Return a text that matches a pattern; without a default the setting is required."""
        value = self.text(name) or default
        if value is None:
            self.problems.append(f"{name} is not set; it must match {pattern}")
        elif value != default and not re.fullmatch(pattern, value, re.IGNORECASE if "/" in pattern else 0):
            self.problems.append(f"{name} must match {pattern}, got {setting_value(value)}")
        return value or ""

    def url(self, name: str) -> str | None:
        """Return an https address, or http on this machine. Problems do not show the value: it may be secret."""
        value = self.text(name)
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            host = parts.hostname
        except ValueError:
            self.problems.append(f"{name} must be an https address")
            return None
        if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)):
            self.problems.append(f"{name} must be an https address with a host, {_scheme(parts.scheme)}")
        return value

    def pairs(self, name: str, most: int) -> dict[str, str]:
        """Return a list such as ``a=x,b=y``; empty if the setting is not set."""
        value = self.text(name)
        parts = [part.strip().partition("=") for part in value.split(",")] if value else []
        found = {key: text for key, _, text in parts}
        if len(found) < len(parts) or len(parts) > most or not all(key and text for key, text in found.items()):
            self.problems.append(f"{name} must be at most {most} different NAME=VALUE, separated by commas")
        return found

    def seconds(self, name: str, default: int) -> int:
        value = self.text(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,6}", value):
            self.problems.append(f"{name} must be a whole number of seconds, got {setting_value(value)}")
            return default
        return int(value)

    def count(self, name: str, default: int, *, most: int) -> int:
        value = self.text(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,6}", value) or not 1 <= int(value) <= most:
            self.problems.append(f"{name} must be a whole number from 1 to {most}, got {setting_value(value)}")
            return default
        return int(value)


def check_budget(budget_s: int, environ: Mapping[str, str], host_file: Path = HOST_FILE) -> None:
    """Raise SettingsError if a validation may exceed the host's time limit, because it would be killed every time."""
    source, text = _configured_timeout(environ, host_file)
    timeout_s = _seconds(source, text)
    if timeout_s is None or budget_s <= timeout_s * BUDGET_SHARE:
        return
    raise SettingsError(
        f"LANDFALL_VALIDATION_BUDGET_S must be at most {int(timeout_s * BUDGET_SHARE)}, three quarters of the "
        f"{timeout_s} s that {source} allows for one execution, got {budget_s}"
    )


def _configured_timeout(environ: Mapping[str, str], host_file: Path) -> tuple[str, object]:
    if TIMEOUT_OVERRIDE in environ:
        return TIMEOUT_OVERRIDE, environ[TIMEOUT_OVERRIDE]
    source = f"functionTimeout of {host_file.name}"
    try:
        with host_file.open("rb") as file:
            return source, json.loads(file.read(MAX_HOST_FILE_BYTES)).get("functionTimeout")
    except FileNotFoundError:
        return source, None
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(f"{host_file.name} cannot be read as a JSON object: {error}") from error


def _seconds(source: str, text: object) -> int | None:
    """Return a configured timeout in seconds, None if it is unlimited."""
    if text is None:
        return DEFAULT_TIMEOUT_S
    match = _TIME_SPAN.fullmatch(str(text))
    if match is None and text != _UNLIMITED:
        raise SettingsError(
            f"{source} must be a time such as 00:30:00, or -1 for no limit, got {setting_value(str(text))}"
        )
    if match is None:
        return None
    parts = {name: int(number or 0) for name, number in match.groupdict().items()}
    return ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60 + parts["seconds"]
