"""The parts of a twin: its processes, and the settings, containers and queues that a deployment creates."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from local_azure.azurite import DATA_ACCOUNT, HOST_ACCOUNT, HOST_ACCOUNT_KEY, SERVICES, azurite_program
from local_azure.processes import (
    ROOT,
    Program,
    TwinError,
    azure_ml_program,
    clean_environment,
    event_grid_program,
    functions_host_program,
    module_command,
)
from local_azure.twin.addresses import (
    CLUSTER_IDENTITY,
    DATA_CONTAINER,
    DEAD_LETTER_CONTAINER,
    FUNCTION_APP_IDENTITY,
    OPERATOR_IDENTITY,
    QUARANTINE_CONTAINER,
    QUEUES,
    RESOURCE_GROUP,
    RUNS_CONTAINER,
    STATE_CONTAINER,
    SUBSCRIPTION,
    WORKSPACE,
    WORKSPACE_CONTAINER,
    Places,
    TwinOptions,
)
from local_azure.twin.state import Secrets, write_atomically

KEYS_SETTING = "LANDFALL_TWIN_KEYS"
"""Setting of the dev host, not of the function app, with the keys for requests."""
FUNCTION_THREADS = 8
"""Enough threads for all functions, because the twin is one instance; Flex Consumption has one per function."""
UPLOAD_EVENTS = ["Microsoft.Storage.BlobCreated"]
FINAL_WRITES = ["PutBlob", "PutBlockList", "CopyBlob", "FlushWithClose"]
"""Storage calls after which a blob is complete."""
TRAINING_IMAGE = f"landfall-training@sha256:{0:064x}"
"""Stands for an image, because the Azure ML emulator runs the training in .venv-training."""
RUN_EVENTS = [
    "Microsoft.MachineLearningServices.RunCompleted",
    "Microsoft.MachineLearningServices.RunStatusChanged",
]


def azurite(places: Places, options: TwinOptions) -> Program:
    """Return Azurite with two accounts."""
    return azurite_program(
        data=places.folder / "azurite",
        accounts={HOST_ACCOUNT: HOST_ACCOUNT_KEY, DATA_ACCOUNT: places.secrets.data_account_key},
        ports={service: places.ports[service] for service in SERVICES},
        log=places.logs / "azurite.log",
        access_log=places.access_log,
        script=options.azurite,
    )


def azure_ml(places: Places, options: TwinOptions) -> Program:
    """Return the Azure ML emulator, which runs jobs under mpirun. Raises TwinError without .venv-training."""
    if not (options.training_python / "bin" / "python").exists():
        raise TwinError(f"the training's environment {options.training_python} is missing: run `make setup`.")
    return azure_ml_program(
        log=places.logs / "azure_ml.log",
        state=places.ca_file.parent,
        storage={HOST_ACCOUNT: places.host_connection, DATA_ACCOUNT: places.data_connection},
        identity_header=places.secrets.identity_header,
        topic_key=places.secrets.topic_key,
        port=places.ports["azure_ml"],
        options=[
            *("--python-environment", f"landfall-training={options.training_python}"),
            *("--python-environment", f"landfall-own={options.training_python}"),
            *("--node-start-delay-s", str(options.node_start_delay_s)),
            *("--node-idle-s", str(options.node_idle_s)),
            *("--environment-build-s", str(options.environment_build_s)),
            *(("--fault", options.fault) if options.fault else ()),
            *("--storage-identity", CLUSTER_IDENTITY),
            *("--log-reader", FUNCTION_APP_IDENTITY),
            *("--storage-writer", OPERATOR_IDENTITY),
            *("--subscription-reader", OPERATOR_IDENTITY),
            *("--events-endpoint", f"{places.event_grid_url}/topics/azureml/api/events"),
        ],
    )


def event_grid(places: Places, options: TwinOptions) -> Program:
    """Return the Event Grid emulator, which delivers the events of uploads and runs."""
    config = places.folder / "event_grid.json"
    write_atomically(config, json.dumps(event_grid_config(places, options), indent=1), mode=0o600)
    return event_grid_program(
        log=places.logs / "event_grid.log",
        config=config,
        settings={"AzureWebJobsStorage": places.host_connection, "DataStorage": places.data_connection},
        topic_key=places.secrets.topic_key,
        port=places.ports["event_grid"],
    )


def functions_host(places: Places, settings: Mapping[str, str], options: TwinOptions) -> Program:
    """Return the dev host with the function app of this clone."""
    return functions_host_program(
        log=places.logs / "functions_host.log",
        root=ROOT,
        settings=settings,
        port=places.ports["functions"],
        options=["--keys-env", KEYS_SETTING, "--queue-lease-s", str(options.queue_lease_s)],
    )


def publishing(places: Places, options: TwinOptions) -> Program:
    """Return `landfall publish`, which a deployment runs once; it ends by itself."""
    return Program(
        name="publishing to Azure ML",
        command=module_command(
            "cli",
            "publish",
            "--json",
            pipelines=options.pipelines,
            subscription=SUBSCRIPTION,
            resource_group=RESOURCE_GROUP,
            workspace=WORKSPACE,
            data_account=DATA_ACCOUNT,
            host_account=HOST_ACCOUNT,
            cluster_identity=CLUSTER_IDENTITY,
            image=TRAINING_IMAGE,
        ),
        environment={
            **clean_environment(),
            **places.identity,
            "AZURE_CLIENT_ID": OPERATOR_IDENTITY,
            "LANDFALL_WORKSPACE_BLOB_URI": workspace_blob_uri(places),
        },
        log=places.logs / "publish.log",
        stdout=published_file(places),
    )


def workspace_blob_uri(places: Places) -> str:
    """Return the address at which the workspace's storage accepts identities."""
    return f"{places.azure_ml_url}/blob/{HOST_ACCOUNT}"


def published_file(places: Places) -> Path:
    """Return the file for the settings that publishing prints."""
    return places.logs / "published.json"


def event_grid_config(places: Places, options: TwinOptions) -> dict[str, object]:
    """Return the emulator's configuration, with the topics and the subscriptions that a deployment creates."""
    return {
        "storage": {"access_log": str(places.access_log), "account": DATA_ACCOUNT, "connection_env": "DataStorage"},
        "queue_connection_env": "AzureWebJobsStorage",
        "subscriptions": [
            one | {"retry_schedule_s": options.event_retry_schedule_s} for one in event_subscriptions()
        ],
        "topics": ["storage", "azureml", "landfall"],
    }


def event_subscriptions() -> list[dict[str, Any]]:
    """Return the subscriptions that a deployment creates, here and in Azure."""
    uploads, _, _, run_events, _ = QUEUES
    common = {"message_ttl_s": -1, "dead_letter_container": DEAD_LETTER_CONTAINER}
    shards = {
        "name": "shards",
        "topic": "storage",
        "included_event_types": UPLOAD_EVENTS,
        "subject_begins_with": f"/blobServices/default/containers/{DATA_CONTAINER}/blobs/",
        "advanced_filters": [{"operatorType": "StringIn", "key": "data.api", "values": FINAL_WRITES}],
        "queue": uploads,
        **common,
    }
    runs = {
        "name": "runs",
        "topic": "azureml",
        "included_event_types": RUN_EVENTS,
        "advanced_filters": [{"operatorType": "StringContains", "key": "subject", "values": ["/runs/landfall-"]}],
        "queue": run_events,
        **common,
    }
    return [shards, runs]


def app_settings(places: Places, published: Mapping[str, str], options: TwinOptions) -> dict[str, str]:
    """Return all app settings; `published` are the settings that publishing the assets printed."""
    return {
        **workspace_settings(),
        **published,
        **places.identity,
        "AzureWebJobsStorage": places.host_connection,
        "DataStorage": places.data_connection,
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "PYTHON_THREADPOOL_THREAD_COUNT": str(FUNCTION_THREADS),
        "LANDFALL_DATA_CONTAINER": DATA_CONTAINER,
        "LANDFALL_STATE_CONTAINER": STATE_CONTAINER,
        "LANDFALL_RUNS_CONTAINER": RUNS_CONTAINER,
        "LANDFALL_WORKSPACE_BLOB_URI": workspace_blob_uri(places),
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": f"{places.event_grid_url}/topics/landfall/api/events",
        "LANDFALL_NOTIFICATION_TOPIC_KEY": places.secrets.topic_key,
        "LANDFALL_WEBHOOK_PEOPLE": places.webhook_url,
        "LANDFALL_PIPELINES_DIR": str(options.pipelines),
        "LANDFALL_TRACES_DIR": str(places.traces),
        "LANDFALL_RECONCILE_SCHEDULE": options.reconcile_schedule,
        "LANDFALL_PAGES_SIGN_IN": "none",
        "LANDFALL_CLAIM_LEASE_S": str(options.claim_lease_s),
        "LANDFALL_SWEEP_GRACE_S": str(options.sweep_grace_s),
        KEYS_SETTING: json.dumps(keys(places.secrets)),
        "AZURE_CLIENT_ID": FUNCTION_APP_IDENTITY,
        **options.more_settings,
    }


def keys(secrets: Secrets) -> dict[str, object]:
    """Return the function app's keys in the form of `az functionapp keys list`."""
    return {
        "masterKey": secrets.master_key,
        "functionKeys": {"default": secrets.function_key},
    }


def workspace_settings() -> dict[str, str]:
    """Return the settings for the workspace."""
    return {
        "LANDFALL_SUBSCRIPTION_ID": SUBSCRIPTION,
        "LANDFALL_RESOURCE_GROUP": RESOURCE_GROUP,
        "LANDFALL_WORKSPACE": WORKSPACE,
    }


def local_settings(settings: Mapping[str, str]) -> str:
    """Return the settings in the format of ``local.settings.json``, for Azure Functions Core Tools."""
    return json.dumps({"IsEncrypted": False, "Values": dict(settings)}, indent=1) + "\n"


def create_containers_and_queues(places: Places) -> None:
    """Create the containers and queues that do not exist yet."""
    host = (STATE_CONTAINER, RUNS_CONTAINER, WORKSPACE_CONTAINER, DEAD_LETTER_CONTAINER)
    _create_containers(places.host_connection, host)
    _create_containers(places.data_connection, (DATA_CONTAINER, QUARANTINE_CONTAINER))
    with QueueServiceClient.from_connection_string(places.host_connection) as queues:
        for name in QUEUES:
            with contextlib.suppress(ResourceExistsError):  # kept from an earlier start
                queues.create_queue(name)


def _create_containers(connection: str, containers: tuple[str, ...]) -> None:
    with BlobServiceClient.from_connection_string(connection) as blobs:
        for name in containers:
            with contextlib.suppress(ResourceExistsError):  # kept from an earlier start
                blobs.create_container(name)
