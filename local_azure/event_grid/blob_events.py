"""Blob events in the shapes that Event Grid gives them.

https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.storage.blob import BlobProperties

from local_azure.event_grid.access_log import StorageWrite
from local_azure.event_grid.events import Event


@dataclass(frozen=True, kw_only=True)
class BlobEventMaker:
    """Makes the events of one storage account."""

    resource_id: str
    """What the events name as their topic."""
    endpoint: str
    """The account's blob endpoint, without a slash at the end."""

    def created(self, write: StorageWrite, blob: BlobProperties, sequence: int, moment: datetime) -> Event:
        """A BlobCreated event for ``write``, of which ``blob`` is the outcome."""
        facts = {
            "eTag": str(blob.etag).strip('"'),
            "contentType": blob.content_settings.content_type or "application/octet-stream",
            "contentLength": blob.size,
            "blobType": _blob_type(blob),
        }
        return self._event("Microsoft.Storage.BlobCreated", write, facts, sequence, moment)

    def deleted(self, write: StorageWrite, sequence: int, moment: datetime) -> Event:
        """A BlobDeleted event; what the blob was is gone with it."""
        facts = {"contentType": "application/octet-stream", "blobType": "BlockBlob"}
        return self._event("Microsoft.Storage.BlobDeleted", write, facts, sequence, moment)

    def _event(self, kind: str, write: StorageWrite, facts: dict[str, Any], sequence: int, moment: datetime) -> Event:
        container, _, blob = write.encoded_path.partition("/")
        data = {
            "api": write.api,
            "clientRequestId": str(uuid.uuid4()),
            "requestId": str(uuid.uuid4()),
            **facts,
            "url": f"{self.endpoint}/{write.encoded_path}",
            "sequencer": f"{sequence:032X}",
            "storageDiagnostics": {"batchId": str(uuid.uuid4())},
        }
        body = {
            "topic": self.resource_id,
            "subject": f"/blobServices/default/containers/{container}/blobs/{blob}",
            "eventType": kind,
            "id": str(uuid.uuid4()),
            "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%f0Z"),
            "data": data,
            "dataVersion": "",
            "metadataVersion": "1",
        }
        return Event(schema="event_grid", body=body)


def _blob_type(blob: BlobProperties) -> str:
    return str(getattr(blob.blob_type, "value", blob.blob_type))
