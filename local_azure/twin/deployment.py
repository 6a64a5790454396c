"""What a deployment creates before anything runs: app settings, containers and queues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from local_azure.twin import places as names
from local_azure.twin.options import TwinOptions
from local_azure.twin.places import Places

SYSTEM_KEY_SETTING = "LANDFALL_TWIN_FUNCTION_KEY"
"""Setting of the dev host, not of the function app: the code that Event Grid's deliveries must carry."""


def app_settings(places: Places, published: Mapping[str, str], options: TwinOptions) -> dict[str, str]:
    """Return every app setting; `published` holds those that publishing assets printed."""
    return {
        **workspace_settings(),
        **published,
        **places.identity,
        "AzureWebJobsStorage": places.host_connection,
        "DataStorage": places.data_connection,
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "LANDFALL_DATA_CONTAINER": names.DATA_CONTAINER,
        "LANDFALL_STATE_CONTAINER": names.STATE_CONTAINER,
        "LANDFALL_RUNS_CONTAINER": names.RUNS_CONTAINER,
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": f"{places.event_grid_url}/topics/landfall/api/events",
        "LANDFALL_NOTIFICATION_TOPIC_KEY": places.secrets.topic_key,
        "LANDFALL_WEBHOOK_PEOPLE": places.webhook_url,
        "LANDFALL_PIPELINES_DIR": str(options.pipelines),
        "LANDFALL_RECONCILE_SCHEDULE": options.reconcile_schedule,
        "LANDFALL_CLAIM_LEASE_S": str(options.claim_lease_s),
        "LANDFALL_SWEEP_GRACE_S": str(options.sweep_grace_s),
        SYSTEM_KEY_SETTING: places.secrets.function_key,
        "AZURE_CLIENT_ID": names.FUNCTION_APP_IDENTITY,
        **options.more_settings,
    }


def workspace_settings() -> dict[str, str]:
    """Return the settings that say which workspace is meant."""
    return {
        "LANDFALL_SUBSCRIPTION_ID": names.SUBSCRIPTION,
        "LANDFALL_RESOURCE_GROUP": names.RESOURCE_GROUP,
        "LANDFALL_WORKSPACE": names.WORKSPACE,
    }


def local_settings(settings: Mapping[str, str]) -> str:
    """Return the settings as the ``local.settings.json`` that Azure Functions Core Tools read."""
    return json.dumps({"IsEncrypted": False, "Values": dict(settings)}, indent=1) + "\n"


def create_containers_and_queues(places: Places) -> None:
    """Create the containers and queues that do not exist yet."""
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
