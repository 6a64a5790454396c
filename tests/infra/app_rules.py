"""What the function app and the twin say about a deployment: its settings and its event subscriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from function_app.adapters.connections import read_connection
from function_app.config.settings import IN_AZURE, read_settings, read_url
from function_app.domain.errors import SettingsError
from local_azure.twin import addresses
from local_azure.twin.parts import FUNCTION_THREADS, event_grid_config
from tests.architecture.trees import ROOT
from tools.bicep_files import BicepFile, Expression, all_resources, expected, member

Files = Mapping[str, BicepFile]
GUID = "11111111-2222-3333-4444-555555555555"
WORKSPACE_ID = (
    f"/subscriptions/{GUID}/resourceGroups/rg-x/providers/Microsoft.MachineLearningServices/workspaces/mlw-x"
)
SAMPLES = {
    "hostBlobUri": "https://lfhostx.blob.core.windows.net/",
    "hostQueueUri": "https://lfhostx.queue.core.windows.net/",
    "hostTableUri": "https://lfhostx.table.core.windows.net/",
    "dataBlobUri": "https://lfdatax.blob.core.windows.net/",
    "workspaceBlobUri": "https://lfmlx.blob.core.windows.net/",
    "topicEndpoint": "https://evgt-x.westeurope-1.eventgrid.azure.net/api/events",
    "insightsConnectionString": "IngestionEndpoint=https://x/",
    "appClientId": GUID,
    "workspaceId": WORKSPACE_ID,
    "workspaceName": "mlw-x",
    "environmentVersion": "0123456789abcdef",
    "codeVersion": "fedcba9876543210",
    "clusterSizes": "landfall-gpu=Standard_NC6s_v3",
    "environment().suffixes.storage": "core.windows.net",
    "subscription().subscriptionId": GUID,
    "resourceGroup().name": "rg-x",
}
"""What a deployment would compute."""


def deployed_settings(file: BicepFile) -> dict[str, str]:
    """Return the app settings with samples for what a deployment computes."""
    found: dict[str, str] = {}
    for name, value in file.of("var")["settings"].body.items():
        text = value.text if isinstance(value, Expression) else str(value)
        for sample, replacement in SAMPLES.items():
            text = replacement if text == sample else text.replace(f"${{{sample}}}", replacement)
        found[name] = text.strip("'")
    return found


KNOWN_TO_HOST = {
    *(f"AzureWebJobsStorage__{name}" for name in ("blobServiceUri", "queueServiceUri", "tableServiceUri")),
    *(
        f"{account}__{name}"
        for account in ("AzureWebJobsStorage", "DataStorage")
        for name in ("credential", "clientId")
    ),
    *(
        "DataStorage__blobServiceUri",
        "AzureWebJobsDisableHomepage",
        "AZURE_CLIENT_ID",
        "PYTHON_THREADPOOL_THREAD_COUNT",
    ),
    *("APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"),
}


def settings(files: Files) -> Iterator[str]:
    """The app accepts the settings, and reads each of them; all but those with a good default are set."""
    found = deployed_settings(files["modules/functions.bicep"])
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## App settings")[2]
    documented = set(re.findall(r"`(LANDFALL_[A-Z_]+)`", page)) | KNOWN_TO_HOST
    yield from (f"the app does not read the setting {name}" for name in sorted(found.keys() - documented))
    yield from (f"the setting {name} is missing" for name in sorted(KNOWN_TO_HOST - found.keys()))
    if "LANDFALL_RECONCILE_SCHEDULE" not in found:
        yield "the setting LANDFALL_RECONCILE_SCHEDULE is missing"
    try:
        read = read_settings(found | {IN_AZURE[0]: "1"})
        connections = [
            read_connection(found, "AzureWebJobsStorage"),
            read_connection(found, "DataStorage", ("blob",)),
        ]
        topic = read_url(found, "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT")
    except SettingsError as error:
        yield f"the app refuses the settings: {error}"
        return
    seen = {
        "client ids": {read.client_id, *(one.client_id for one in connections)},
        "host": connections[0].service_uris["queue"],
        "data": connections[1].service_uris["blob"],
        "logs": read.workspace_blob_uri,
        "topic": topic,
        "telemetry": found.get("APPLICATIONINSIGHTS_AUTHENTICATION_STRING"),
        "threads": found.get("PYTHON_THREADPOOL_THREAD_COUNT"),
        "containers": (read.data_container, read.state_container, read.runs_container),
        "ids": (read.workspace.environment_id, read.workspace.code_id),
        "managed": {one.managed_identity for one in connections},
    }
    wanted = {
        "client ids": {GUID},
        "host": SAMPLES["hostQueueUri"].rstrip("/"),
        "data": SAMPLES["dataBlobUri"].rstrip("/"),
        "logs": SAMPLES["workspaceBlobUri"],
        "topic": SAMPLES["topicEndpoint"],
        "telemetry": f"ClientId={GUID};Authorization=AAD",
        "threads": str(FUNCTION_THREADS),
        "containers": (addresses.DATA_CONTAINER, addresses.STATE_CONTAINER, addresses.RUNS_CONTAINER),
        "ids": (
            f"{WORKSPACE_ID}/environments/landfall-training/versions/{SAMPLES['environmentVersion']}",
            f"{WORKSPACE_ID}/codes/landfall-training/versions/{SAMPLES['codeVersion']}",
        ),
        "managed": {True},
    }
    for name, value in wanted.items():
        if seen[name] != value:
            yield f"settings: {name}: expected {value}, got {seen[name]}"


def events(files: Files) -> Iterator[str]:
    """Filters, queues and limits are those of the twin; each subscription waits for the roles of its topic."""
    places = cast("Any", SimpleNamespace(access_log=""))
    config = event_grid_config(places, cast("Any", SimpleNamespace(event_retry_schedule_s=())))
    twin = {"uploads": config["subscriptions"][0], "runs": config["subscriptions"][1]}  # type: ignore[index]
    found = all_resources(files, "Microsoft.EventGrid/systemTopics/eventSubscriptions")
    if sorted(str(member(one, "parent")) for one in found) != sorted(twin):
        yield f"each of the topics {', '.join(twin)} has one subscription"
        return
    for one in found:
        wanted, delivery = twin[member(one, "parent")], "properties.deliveryWithResourceIdentity"
        dead, filter_ = "properties.deadLetterWithResourceIdentity", "properties.filter"
        yield from expected(
            one,
            {
                f"{filter_}.includedEventTypes": wanted["included_event_types"],
                f"{filter_}.subjectBeginsWith": wanted.get("subject_begins_with"),
                f"{filter_}.subjectEndsWith": None,
                f"{filter_}.advancedFilters": wanted["advanced_filters"],
                "properties.eventDeliverySchema": "EventGridSchema",
                f"{delivery}.identity.type": "SystemAssigned",
                f"{delivery}.destination.endpointType": "StorageQueue",
                f"{delivery}.destination.properties.resourceId": "host.id",
                f"{delivery}.destination.properties.queueName": wanted["queue"],
                f"{delivery}.destination.properties.queueMessageTimeToLiveInSeconds": wanted["message_ttl_s"],
                f"{dead}.identity.type": "SystemAssigned",
                f"{dead}.deadLetterDestination.properties.resourceId": "host.id",
                f"{dead}.deadLetterDestination.properties.blobContainerName": wanted["dead_letter_container"],
                "properties.retryPolicy.maxDeliveryAttempts": 30,
                "properties.retryPolicy.eventTimeToLiveInMinutes": 1440,
            },
        )
        principal = f"{member(one, 'parent')}.identity.principalId"
        assignments = all_resources(files, "Microsoft.Authorization/roleAssignments")
        needed = {each.name for each in assignments if member(each, "properties.principalId") == principal}
        if missing := needed - one.depends_on:
            yield f"{one.place}: {one.name} needs dependsOn {', '.join(sorted(missing))}"
    topics = {one.name: one for one in all_resources(files, "Microsoft.EventGrid/systemTopics")}
    accounts_, workspaces = "Microsoft.Storage.StorageAccounts", "Microsoft.MachineLearningServices.Workspaces"
    yield from expected(topics["uploads"], {"properties.source": "dataAccountId", "properties.topicType": accounts_})
    yield from expected(topics["runs"], {"properties.source": "workspaceId", "properties.topicType": workspaces})
