"""The app settings that the deployment would give the function app, for the twin."""

from __future__ import annotations

import json
from collections.abc import Mapping

from local_azure.twin import places as names
from local_azure.twin.options import TwinOptions
from local_azure.twin.places import Places

SYSTEM_KEY_SETTING = "LANDFALL_TWIN_FUNCTION_KEY"
"""For the dev host, not for the function app: what Event Grid's deliveries carry as their code."""


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
