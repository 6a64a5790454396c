"""The twin's four processes: their commands, environments, logs and what shows that they are ready."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from local_azure.twin import places as names
from local_azure.twin.app_settings import SYSTEM_KEY_SETTING
from local_azure.twin.children import ROOT, Part
from local_azure.twin.environment import clean_environment
from local_azure.twin.errors import TwinError
from local_azure.twin.options import TwinOptions
from local_azure.twin.places import Places
from local_azure.twin.probes import answers, listening
from local_azure.twin.state import write_atomically

UPLOAD_EVENTS = ["Microsoft.Storage.BlobCreated"]
TRAINING_IMAGE = "landfall-training:local"
"""Stands for an image: the Azure ML emulator runs the training in .venv-training."""
FUNCTIONS_HOST = "the Functions dev host"
RUN_EVENTS = [
    "Microsoft.MachineLearningServices.RunCompleted",
    "Microsoft.MachineLearningServices.RunStatusChanged",
]


def azurite(places: Places, options: TwinOptions) -> Part:
    """Storage: one Azurite with two accounts. Raises TwinError where it is not installed."""
    node = shutil.which("node")
    if node is None or not options.azurite.is_file():
        raise TwinError(f"Azurite is not installed ({options.azurite}, run by node): run `make setup`.")
    ports = [places.ports[name] for name in ("blob", "queue", "table")]
    flags = ["--location", str(places.folder / "azurite")]
    for name in ("blob", "queue", "table"):
        flags += [f"--{name}Host", "127.0.0.1", f"--{name}Port", str(places.ports[name])]
    accounts = {names.HOST_ACCOUNT: names.HOST_ACCOUNT_KEY, names.DATA_ACCOUNT: places.secrets.data_account_key}
    return Part(
        name="Azurite",
        command=[node, str(options.azurite), *flags, "--skipApiVersionCheck", "--disableTelemetry", "--loose"],
        env={**clean_environment(), "AZURITE_ACCOUNTS": ";".join(f"{a}:{key}" for a, key in accounts.items())},
        log=places.logs / "azurite.log",
        stdout=places.access_log,
        ready=lambda: listening(ports),
    )


def azure_ml(places: Places, options: TwinOptions) -> Part:
    """Azure ML: the emulator that runs jobs under mpirun."""
    if not (options.training_python / "bin" / "python").exists():
        raise TwinError(f"the training's environment {options.training_python} is missing: run `make setup`.")
    storage = {names.HOST_ACCOUNT: places.host_connection, names.DATA_ACCOUNT: places.data_connection}
    return Part(
        name="the Azure ML emulator",
        command=_module(
            "local_azure.azure_ml",
            port=places.ports["azure_ml"],
            state=places.ca_file.parent,
            python_environment=f"landfall-training={options.training_python}",
            node_start_delay_s=options.node_start_delay_s,
            node_idle_s=options.node_idle_s,
            environment_build_s=options.environment_build_s,
            events_endpoint=f"{places.event_grid_url}/topics/azureml/api/events",
        ),
        env={
            **clean_environment(),
            "LANDFALL_TWIN_STORAGE": json.dumps(storage),
            "LANDFALL_TWIN_TOPIC_KEY": places.secrets.topic_key,
            "IDENTITY_HEADER": places.secrets.identity_header,
        },
        log=places.logs / "azure_ml.log",
        ready=lambda: answers(f"{places.azure_ml_url}/twin/cluster", ca_file=places.ca_file),
        grace_s=8.0,
    )


def event_grid(places: Places, options: TwinOptions) -> Part:
    """Event Grid: uploads and runs become deliveries."""
    config = places.folder / "event_grid.json"
    write_atomically(config, json.dumps(event_grid_config(places, options), indent=1), mode=0o600)
    return Part(
        name="the Event Grid emulator",
        command=_module("local_azure.event_grid", port=places.ports["event_grid"], config=config),
        env={
            **clean_environment(),
            "AzureWebJobsStorage": places.host_connection,
            "DataStorage": places.data_connection,
            "LANDFALL_TWIN_TOPIC_KEY": places.secrets.topic_key,
        },
        log=places.logs / "event_grid.log",
        ready=lambda: answers(f"{places.event_grid_url}/health"),
    )


def publishing(places: Places, options: TwinOptions) -> Part:
    """What a deployment does once: `landfall publish`. It ends by itself."""
    return Part(
        name="publishing to Azure ML",
        command=_module(
            "cli",
            "publish",
            format="json",
            pipelines=options.pipelines,
            subscription=names.SUBSCRIPTION,
            resource_group=names.RESOURCE_GROUP,
            workspace=names.WORKSPACE,
            data_account=names.DATA_ACCOUNT,
            host_account=names.HOST_ACCOUNT,
            image=TRAINING_IMAGE,
        ),
        env={**clean_environment(), **places.identity, "AZURE_CLIENT_ID": names.OPERATOR_IDENTITY},
        log=places.logs / "publish.log",
        stdout=published_file(places),
        ready_within_s=120.0,
    )


def published_file(places: Places) -> Path:
    """Where publishing leaves the settings that it prints."""
    return places.logs / "published.json"


def functions_host(places: Places, settings: Mapping[str, str], options: TwinOptions) -> Part:
    """The dev host with the function app of this clone."""
    return Part(
        name=FUNCTIONS_HOST,
        command=_module(
            "local_azure.functions_host",
            root=ROOT,
            port=places.ports["functions"],
            system_key_env=SYSTEM_KEY_SETTING,
            queue_lease_s=options.queue_lease_s,
        ),
        env={**clean_environment(), **settings},
        log=places.logs / "functions_host.log",
        ready=lambda: answers(f"{places.functions_url}/admin/host/status"),
    )


def event_grid_config(places: Places, options: TwinOptions) -> dict[str, object]:
    """Return which events go where: what Event Grid's subscriptions say in Azure."""
    code = places.secrets.function_key
    hook = f"{places.functions_url}/runtime/webhooks/eventgrid?functionName=run_changed&code={code}"
    common = {
        "dead_letter_container": names.DEAD_LETTER_CONTAINER,
        "retry_schedule_s": options.event_retry_schedule_s,
    }
    shards = {
        "name": "shards",
        "topic": "storage",
        "included_event_types": UPLOAD_EVENTS,
        "subject_begins_with": f"/blobServices/default/containers/{names.DATA_CONTAINER}/",
        "queue": names.QUEUES[0],
        **common,
    }
    runs = {"name": "runs", "topic": "azureml", "included_event_types": RUN_EVENTS, "webhook": hook, **common}
    log: Path = places.access_log
    return {
        "storage": {"access_log": str(log), "account": names.DATA_ACCOUNT, "connection_env": "DataStorage"},
        "queue_connection_env": "AzureWebJobsStorage",
        "subscriptions": [shards, runs],
        "topics": ["storage", "azureml", "landfall"],
    }


def _module(name: str, *words: str, **flags: object) -> list[str]:
    """Return the command that runs a module of this clone; ``node_idle_s=2`` becomes ``--node-idle-s 2``."""
    command = [sys.executable, "-m", name, *words]
    for flag, value in flags.items():
        command += ["--" + flag.replace("_", "-"), str(value)]
    return command
