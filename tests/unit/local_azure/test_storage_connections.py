from __future__ import annotations

import pytest

from local_azure.storage_connections import (
    DEVELOPMENT_STORAGE,
    StorageConnection,
    StorageConnectionError,
    storage_connection,
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"Store": "AccountName=a"}, StorageConnection(name="Store", connection_string="AccountName=a")),
        (
            {"Store": "UseDevelopmentStorage=true;"},
            StorageConnection(name="Store", connection_string=DEVELOPMENT_STORAGE),
        ),
        (
            {"AzureWebJobsStore": "AccountName=b"},
            StorageConnection(name="AzureWebJobsStore", connection_string="AccountName=b"),
        ),
        (
            {"Store__queueServiceUri": "https://a.queue", "Store__clientId": "c"},
            StorageConnection(name="Store", queue_uri="https://a.queue", client_id="c"),
        ),
    ],
)
def test_a_connection_is_found_in_every_form(settings: dict[str, str], expected: StorageConnection) -> None:
    """A connection string, the short form for Azurite, the prefixed name, or URIs."""
    assert expected == storage_connection("Store", settings)


def test_a_connection_that_is_not_there_is_named() -> None:
    """The error has the settings that were read."""
    with pytest.raises(
        StorageConnectionError, match="connection string in the setting Store, or URIs in Store__blob"
    ):
        storage_connection("Store", {"Store": " "})


def test_a_service_without_a_uri_is_named() -> None:
    """Queues can be there without blobs."""
    connection = storage_connection("Store", {"Store__queueServiceUri": "https://a.queue"})

    with pytest.raises(StorageConnectionError, match="setting Store__blobServiceUri is not set"):
        connection.blob_service()
