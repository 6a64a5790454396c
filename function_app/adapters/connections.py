"""Storage connections by the convention of Azure Functions: one setting, or several with a common prefix.

``X`` is a connection string. Without it, ``X__blobServiceUri``, ``X__queueServiceUri`` and
``X__tableServiceUri`` (or ``X__accountName`` for all three) are the services, which are opened with an identity.
``X__credential=managedidentity`` selects the app's own identity, or with ``X__clientId`` a user-assigned one;
otherwise azure-identity looks for credentials.
Source: https://learn.microsoft.com/azure/azure-functions/functions-reference#connections
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from function_app.domain.errors import SettingsError
from shared.safe_text import setting_value

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline import PipelineResponse
    from azure.data.tables import TableServiceClient
    from azure.storage.blob import BlobServiceClient
    from azure.storage.queue import QueueServiceClient

Service = Literal["blob", "queue", "table"]
ALL_SERVICES: tuple[Service, ...] = ("blob", "queue", "table")

HOST_CONNECTION = "AzureWebJobsStorage"
"""The connection that the Functions host also uses."""
STORAGE_SUFFIX = "LANDFALL_STORAGE_SUFFIX"
DEFAULT_SUFFIX = "core.windows.net"
MAX_SETTING_CHARS = 8192
CONNECTION_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
"""Half of the SDK's 60 s, because a read is at most one range of a shard, and a stuck one is better repeated."""
RETRY_TOTAL = 3
"""Few retries, because the queue delivers again, and retries here delay the other shards of the batch."""

_SUFFIX = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){1,5}")
_ACCOUNT_NAME = re.compile(r"[a-z0-9]{3,24}")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """One storage account, as the app settings describe it."""

    name: str
    """Name of the setting, or prefix of several settings."""
    connection_string: str | None = field(default=None, repr=False)
    """None if an identity is used."""
    service_uris: Mapping[Service, str] = field(default_factory=dict)
    client_id: str | None = None
    """Client id of the user-assigned identity; None for the app's own."""
    managed_identity: bool = False
    """Whether only a managed identity may be used, not a developer's credentials."""


def read_connection(
    settings: Mapping[str, str], name: str, services: tuple[Service, ...] = ALL_SERVICES
) -> ConnectionSettings:
    """Return one connection; ``services`` are the services that it must reach.

    Raises SettingsError, which names the wrong setting or all missing settings and never contains a secret.
    """
    connection_string = _bounded(settings, name)
    if connection_string is not None:
        return ConnectionSettings(name=name, connection_string=_checked_string(name, connection_string))
    uris = _service_uris(settings, name)
    missing = [f"{name}__{service}ServiceUri" for service in services if service not in uris]
    if missing:
        raise SettingsError(
            f"{name} is not set: set it to a connection string, or {', '.join(missing)} to the address of the service"
        )
    client_id = _bounded(settings, f"{name}__clientId")
    credential = _bounded(settings, f"{name}__credential")
    if credential not in (None, "managedidentity"):
        raise SettingsError(
            f"{name}__credential is {setting_value(credential)}; set it to managedidentity, or remove it"
        )
    if client_id is not None and credential is None:
        raise SettingsError(
            f"{name}__clientId is set without {name}__credential, and the Functions host ignores it then: set "
            f"{name}__credential to managedidentity"
        )
    return ConnectionSettings(
        name=name, service_uris=uris, client_id=client_id, managed_identity=credential is not None
    )


def storage_suffix(settings: Mapping[str, str]) -> str:
    """Return the domain of storage accounts, which differs in sovereign clouds. Raises SettingsError."""
    suffix = _bounded(settings, STORAGE_SUFFIX) or DEFAULT_SUFFIX
    if not _SUFFIX.fullmatch(suffix):
        raise SettingsError(
            f"{STORAGE_SUFFIX} is {setting_value(suffix)}; set it to a domain such as {DEFAULT_SUFFIX}, which begins "
            "without a dot"
        )
    return suffix


def _bounded(settings: Mapping[str, str], key: str) -> str | None:
    value = settings.get(key, "").strip()
    if len(value) > MAX_SETTING_CHARS:
        raise SettingsError(f"{key} has {len(value)} characters; at most {MAX_SETTING_CHARS} are allowed")
    return value or None


def _checked_string(name: str, text: str) -> str:
    text = text.rstrip(";")
    if text.lower() == "usedevelopmentstorage=true":
        return "UseDevelopmentStorage=true"  # Both SDKs compare the text, one of them case-sensitively.
    members = {part.partition("=")[0].strip().lower() for part in text.split(";") if "=" in part}
    if not {"accountkey", "sharedaccesssignature"} & members:
        raise SettingsError(
            f"{name} is not a connection string with AccountKey or SharedAccessSignature: it has neither. To use an "
            f"identity, set {name}__blobServiceUri instead"
        )
    return text


def _service_uris(settings: Mapping[str, str], name: str) -> dict[Service, str]:
    account = _bounded(settings, f"{name}__accountName")
    if account is not None and not _ACCOUNT_NAME.fullmatch(account):
        raise SettingsError(
            f"{name}__accountName is {setting_value(account)}; "
            "an account name has 3 to 24 lower-case letters and digits"
        )
    suffix = storage_suffix(settings)
    if account is not None and name == HOST_CONNECTION and suffix != DEFAULT_SUFFIX:
        raise SettingsError(
            f"{name}__accountName means an account of {DEFAULT_SUFFIX} to the Functions host, but {STORAGE_SUFFIX} "
            f"is {suffix}: set {name}__blobServiceUri, {name}__queueServiceUri and {name}__tableServiceUri instead"
        )
    uris: dict[Service, str] = {}
    for service in ALL_SERVICES:
        key = f"{name}__{service}ServiceUri"
        uri = _bounded(settings, key)
        if uri is not None:
            uris[service] = _checked_uri(key, uri)
        elif account is not None:
            uris[service] = f"https://{account}.{service}.{suffix}"
    return uris


def _checked_uri(key: str, uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or local) or parts.query:
        raise SettingsError(
            f"{key} is no service address; set it to https://<account>.<service>.core.windows.net, without a query"
        )
    return uri.rstrip("/")


class StorageConnection:
    """The clients of one storage account, which are built at the first use and then shared.

    ``client_options`` are passed to every client; they override the time-outs and retries that are set here.
    """

    def __init__(self, settings: ConnectionSettings, **client_options: Any) -> None:
        self.settings = settings
        self._client_options = client_options
        self._lock = threading.RLock()
        self._clients: dict[Service, Any] = {}

    @property
    def blob_service(self) -> BlobServiceClient:
        """The account's blobs. Raises SettingsError if the connection does not reach them."""
        from azure.storage.blob import BlobServiceClient, ExponentialRetry

        client: BlobServiceClient = self._client("blob", BlobServiceClient, "account_url", ExponentialRetry)
        return client

    @property
    def queue_service(self) -> QueueServiceClient:
        """The account's queues. Raises SettingsError if the connection does not reach them."""
        from azure.storage.queue import ExponentialRetry, QueueServiceClient

        client: QueueServiceClient = self._client("queue", QueueServiceClient, "account_url", ExponentialRetry)
        return client

    @property
    def table_service(self) -> TableServiceClient:
        """The account's tables. Raises SettingsError if the connection does not reach them."""
        from azure.data.tables import TableServiceClient

        client: TableServiceClient = self._client("table", TableServiceClient, "endpoint", None)
        return client

    def close(self) -> None:
        """Close the clients. Adapters that use them cannot be used afterwards."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _client(self, service: Service, client_class: Any, uri_name: str, retry_class: Any) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._build(
                    service, client_class, uri_name, client_options(retry_class, **self._client_options)
                )
            return self._clients[service]

    def _build(self, service: Service, client_class: Any, uri_name: str, options: dict[str, Any]) -> Any:
        name, text = self.settings.name, self.settings.connection_string
        if text is None:
            uri = self.settings.service_uris.get(service)
            if uri is None:
                raise SettingsError(f"{name}__{service}ServiceUri is not set, but this account's {service}s are used")
            return client_class(**{uri_name: uri}, credential=self._credential, **options)
        try:
            return client_class.from_connection_string(text, **options)
        except ValueError as error:
            raise SettingsError(f"{name} is not a storage account's connection string: {error}") from error

    @cached_property
    def _credential(self) -> TokenCredential:
        from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

        if self.settings.managed_identity:
            client_id = self.settings.client_id
            return ManagedIdentityCredential(client_id=client_id) if client_id else ManagedIdentityCredential()
        return DefaultAzureCredential()


def client_options(retry_class: Any, **own: Any) -> dict[str, Any]:
    """Return the retry and time-out options of every storage client; the caller's options take precedence.

    ``retry_class`` is ExponentialRetry of the service's package; None for tables, which have no such class.
    """
    options = {
        "connection_timeout": CONNECTION_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retry_total": RETRY_TOTAL,
        "retry_backoff_max": 10,
        "raw_response_hook": read_refusal,
    } | own
    if retry_class is not None:
        # The default of the blob and queue clients is 15 s before the first retry.
        options["retry_policy"] = retry_class(
            initial_backoff=1, increment_base=2, retry_total=options["retry_total"], random_jitter_range=1
        )
    if "transport" not in options:
        options["transport"] = _transport(options)
    return options


def _transport(options: Mapping[str, Any]) -> Any:
    """Return a transport that looks for proxies and certificates in the environment once per client.

    The SDK's default reads the whole environment for each request, which takes a sixth of the request's time.
    """
    from azure.core.pipeline.transport import RequestsTransport

    class Transport(RequestsTransport):  # type: ignore[misc]  # the SDK hands it out untyped
        lock, proxies = threading.Lock(), None

        def send(self, request: Any, *, proxies: Any = None, **more: Any) -> Any:
            with self.lock:
                if self.proxies is None:
                    self._read_environment(request.url)
            return super().send(request, proxies=proxies or self.proxies, **more)

        def _read_environment(self, url: str) -> None:
            self.open()
            found = self.session.merge_environment_settings(url, {}, None, self.connection_config.verify, None)
            self.proxies = found["proxies"]
            if url.startswith("https:"):  # Each request would look for a file of certificates on disk.
                self.connection_config.verify = found["verify"]
            self.session.trust_env = False

    return Transport(**options)


def read_refusal(response: PipelineResponse[Any, Any]) -> None:
    """Read the body of a refusal, because an unread body keeps its connection open until garbage collection."""
    if response.http_response.status_code >= HTTPStatus.BAD_REQUEST:
        response.http_response.read()


def credential(client_id: str | None) -> TokenCredential:
    """Return the user-assigned identity, or the default credential if no client id is set."""
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

    return ManagedIdentityCredential(client_id=client_id) if client_id else DefaultAzureCredential()
