"""Storage connections by the convention of Azure Functions."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.pipeline.transport import HttpRequest, RequestsTransport
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

from function_app.adapters.connections import (
    HOST_CONNECTION,
    MAX_SETTING_CHARS,
    STORAGE_SUFFIX,
    StorageConnection,
    client_options,
    read_connection,
)
from function_app.domain.errors import SettingsError

NAME = "DataStorage"
STRING = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"
BLOBS = {f"{NAME}__blobServiceUri": "https://acme.blob.core.windows.net/"}


def connection(settings: dict[str, str]) -> StorageConnection:
    return StorageConnection(read_connection(settings, NAME, ("blob",)))


def test_a_connection_string_opens_all_three_services() -> None:
    """Each client has the account's address for its service."""
    storage = connection({NAME: STRING})
    urls = [storage.blob_service.url, storage.queue_service.url, storage.table_service.url]
    expected = [f"https://acme.{service}.core.windows.net" for service in ("blob", "queue", "table")]
    assert expected == [url.rstrip("/") for url in urls]


def test_a_client_is_built_once_and_shared() -> None:
    """Clients hold connection pools."""
    storage = connection({NAME: STRING})
    assert storage.blob_service is storage.blob_service


@pytest.mark.parametrize("text", ["UseDevelopmentStorage=true", "usedevelopmentstorage=TRUE;"])
def test_development_storage_is_the_emulator(text: str) -> None:
    """The short form of local settings, however it is spelt, reaches Azurite's ports."""
    storage = connection({NAME: text})
    urls = [storage.blob_service.url, storage.queue_service.url, storage.table_service.url]
    expected = [f"http://127.0.0.1:{port}/devstoreaccount1" for port in (10000, 10001, 10002)]
    assert expected == [url.rstrip("/") for url in urls]


def test_an_address_is_opened_by_an_identity() -> None:
    """Without other settings, azure-identity selects the identity."""
    storage = connection(BLOBS)
    assert storage.blob_service.url == "https://acme.blob.core.windows.net/"
    assert isinstance(storage.blob_service.credential, DefaultAzureCredential)


MANAGED = {f"{NAME}__credential": "managedidentity"}


@pytest.mark.parametrize("extra", [MANAGED | {f"{NAME}__clientId": "c1"}, MANAGED])
def test_a_managed_identity_is_used_where_one_is_named(extra: dict[str, str]) -> None:
    """It is selected by its client id, or it is the app's own."""
    assert isinstance(connection(BLOBS | extra).blob_service.credential, ManagedIdentityCredential)


def test_an_account_name_gives_the_public_addresses() -> None:
    """The Functions host does the same with ``AzureWebJobsStorage__accountName``; a stated URL has priority."""
    table = "https://acme.table.core.usgovcloudapi.net"
    settings = read_connection({f"{NAME}__accountName": "acme", f"{NAME}__tableServiceUri": table}, NAME)
    blob, queue = (f"https://acme.{service}.core.windows.net" for service in ("blob", "queue"))
    assert {"blob": blob, "queue": queue, "table": table} == settings.service_uris


def test_a_sovereign_cloud_has_a_domain_of_its_own() -> None:
    """This applies to the data account; the Functions host assumes the public cloud for its own account."""
    suffix = {STORAGE_SUFFIX: "core.chinacloudapi.cn"}
    settings = read_connection({f"{NAME}__accountName": "acme"} | suffix, NAME)
    assert "https://acme.blob.core.chinacloudapi.cn" == settings.service_uris["blob"]
    with pytest.raises(SettingsError, match=r"means an account of core\.windows\.net to the Functions host"):
        read_connection({f"{HOST_CONNECTION}__accountName": "acme"} | suffix, HOST_CONNECTION)


def test_a_missing_connection_names_the_settings() -> None:
    """Both ways to set it."""
    with pytest.raises(SettingsError, match=r"DataStorage is not set: .*DataStorage__blobServiceUri"):
        read_connection({NAME: "  "}, NAME, ("blob",))


def test_a_service_that_the_settings_do_not_reach_is_named_when_used() -> None:
    """An account of blobs only has no queues."""
    with pytest.raises(SettingsError, match="DataStorage__queueServiceUri is not set"):
        _ = connection(BLOBS).queue_service


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({NAME: "AccountName=acme"}, "DataStorage is not a connection string with AccountKey"),
        ({NAME: "nonsense"}, "DataStorage is not a connection string with AccountKey"),
        ({NAME: "x" * (MAX_SETTING_CHARS + 1)}, "DataStorage has 8193 characters; at most 8192 are allowed"),
        ({f"{NAME}__blobServiceUri": "http://acme.example"}, "DataStorage__blobServiceUri is no service address"),
        ({f"{NAME}__blobServiceUri": "https://a.example/?sv=1"}, "DataStorage__blobServiceUri is no service address"),
        ({f"{NAME}__blobServiceUri": "https://[acme"}, "DataStorage__blobServiceUri is no service address"),
        ({f"{NAME}__accountName": "Acme/x"}, "DataStorage__accountName is 'Acme"),
        (BLOBS | {f"{NAME}__credential": "password"}, "DataStorage__credential is 'password"),
        (
            BLOBS | {f"{NAME}__clientId": "c1"},
            "clientId is set without DataStorage__credential, and the",
        ),
        ({f"{NAME}__accountName": "acme", STORAGE_SUFFIX: ".example"}, "LANDFALL_STORAGE_SUFFIX is '.example'"),
        ({f"{NAME}__accountName": "acme", STORAGE_SUFFIX: "x/y.example"}, "LANDFALL_STORAGE_SUFFIX is 'x/y.example'"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(SettingsError, match=message):
        read_connection(settings, NAME, ("blob",))


def test_a_string_that_only_the_sdk_can_refuse_is_named_when_used() -> None:
    """A key without an account passes the first look."""
    with pytest.raises(SettingsError, match="DataStorage is not a storage account's connection string"):
        _ = connection({NAME: "AccountKey=c2VjcmV0"}).blob_service


def test_a_key_is_never_shown() -> None:
    """It appears neither in printed settings nor in errors."""
    settings = read_connection({NAME: STRING}, NAME)
    with pytest.raises(SettingsError) as caught:
        read_connection({NAME: "AccountName=acme;Key=c2VjcmV0"}, NAME)
    assert ("c2VjcmV0" in repr(settings), "c2VjcmV0" in str(caught.value)) == (False, False)


def test_the_environment_is_read_once_for_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies and certificates are those of the first request; hosts that need no proxy have none."""
    sent: list[tuple[Any, Any, bool]] = []

    def send(self: Any, _request: Any, *, proxies: Any, **_: Any) -> None:
        sent.append((proxies.get("https"), self.connection_config.verify, self.session.trust_env))

    monkeypatch.setattr(RequestsTransport, "send", send)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    for name in ("NO_PROXY", "no_proxy"):  # other tests of this process may have set the lower-case name
        monkeypatch.setenv(name, "direct.example")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "ca.pem")
    for address in ("https://account.example", "https://direct.example", "http://direct.example"):
        transport = client_options(None)["transport"]
        for _ in range(2):
            transport.send(HttpRequest("GET", address))
    proxied, direct, plain = ("http://proxy:3128", "ca.pem", False), (None, "ca.pem", False), (None, True, False)
    assert [proxied, proxied, direct, direct, plain, plain] == sent
