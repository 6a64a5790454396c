"""What a deployment creates in the storage accounts before anything runs."""

from __future__ import annotations

import contextlib

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from local_azure.twin import places as names
from local_azure.twin.places import Places


def create_containers_and_queues(places: Places) -> None:
    """Create what is not there yet."""
    host = (names.STATE_CONTAINER, names.RUNS_CONTAINER, names.WORKSPACE_CONTAINER, names.DEAD_LETTER_CONTAINER)
    _create_containers(places.host_connection, host)
    _create_containers(places.data_connection, (names.DATA_CONTAINER,))
    with QueueServiceClient.from_connection_string(places.host_connection) as queues:
        for name in names.QUEUES:
            with contextlib.suppress(ResourceExistsError):  # kept from an earlier start
                queues.create_queue(name)


def _create_containers(connection: str, containers: tuple[str, ...]) -> None:
    with BlobServiceClient.from_connection_string(connection) as blobs:
        for name in containers:
            with contextlib.suppress(ResourceExistsError):  # kept from an earlier start
                blobs.create_container(name)
