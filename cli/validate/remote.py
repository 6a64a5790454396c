"""Shards in Blob storage by their address: with the signature in it, or signed in."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from cli.signatures import shown_address, without_secrets
from shard_validation import ShardSource, SourceForbiddenError, SourceGoneError, SourceUnavailableError

_CONNECTION_SETTING = "DataStorage"
"""As in the function app: where its account is the address's one, it opens it."""
_FORBIDDEN = frozenset({401, 403, 409})
"""409: public access is switched off for the account."""


def open_url(url: str) -> ShardSource:
    """Return a source pinned to the blob's present content. Raises a SourceError."""
    from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

    from function_app.adapters.blobs import BlobShardSource
    from function_app.domain.etags import normalise_etag
    from function_app.domain.records import BlobFacts

    shown = shown_address(url)
    try:
        blob = _client(url)
        properties = blob.get_blob_properties()
    except ResourceNotFoundError as error:
        raise SourceGoneError(f"{shown}: there should be a blob, there is none") from error
    except HttpResponseError as error:
        if error.status_code in _FORBIDDEN:
            raise SourceForbiddenError(f"{shown}: the blob may not be read ({error.status_code})") from error
        raise SourceUnavailableError(f"{shown}: storage answered {error.status_code}") from error
    except (AzureError, ValueError) as error:
        raise SourceUnavailableError(f"{shown}: the blob cannot be opened: {without_secrets(str(error))}") from error
    facts = BlobFacts(
        path=blob.blob_name,
        etag=normalise_etag(properties.etag),
        size_bytes=properties.size,
        last_modified=properties.last_modified,
    )
    return BlobShardSource(blob, facts)


def _client(url: str) -> Any:
    from azure.storage.blob import BlobClient, BlobServiceClient, LinearRetry

    options: dict[str, Any] = {
        "retry_policy": LinearRetry(
            backoff=1, retry_total=3, random_jitter_range=0
        ),  # somebody waits at the terminal
        "connection_timeout": 5,
        "read_timeout": 30,
    }
    address = BlobClient.from_blob_url(url)
    connection = os.environ.get(_CONNECTION_SETTING, "")
    if connection and not urlsplit(url).query:
        service = BlobServiceClient.from_connection_string(connection, **options)
        if url.startswith(service.url.rstrip("/") + "/"):
            return service.get_blob_client(address.container_name, address.blob_name)
    return BlobClient.from_blob_url(url, credential=_credential(url), **options)


def _credential(url: str) -> Any:
    """Sign in where the address is not signed itself; never to a server that is not Azure's."""
    parts = urlsplit(url)
    if "sig=" in parts.query or parts.scheme != "https" or not (parts.hostname or "").endswith(".core.windows.net"):
        return None
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()
