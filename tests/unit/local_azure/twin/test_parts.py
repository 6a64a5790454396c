"""The twin's app settings have every setting that the function app reads, in its form."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from cli.demo.following import SILENCE_S
from cli.deploy.assets import CODE_NAME, DATASTORES, ENVIRONMENT_NAME
from cli.deploy.workspace import WorkspaceId
from function_app.config.pipeline_files import load_pipelines
from function_app.config.settings import read_settings, read_url
from function_app.domain.events import FINAL_WRITES
from function_app.domain.jobs import PREFIX
from local_azure.event_grid.config import load_config
from local_azure.event_grid.events import Event, matches
from local_azure.twin import addresses as names
from local_azure.twin.addresses import Places, TwinOptions
from local_azure.twin.parts import app_settings, azure_ml, event_grid_config, workspace_settings
from local_azure.twin.state import DEFAULT_PORTS, Ports, Secrets

MINUTE_S = 60


def settings(folder: Path) -> dict[str, str]:
    """The settings of a twin whose assets are published."""
    places = Places(folder=folder, ports=Ports(DEFAULT_PORTS), secrets=Secrets.random())
    workspace = WorkspaceId(
        subscription=names.SUBSCRIPTION, resource_group=names.RESOURCE_GROUP, workspace=names.WORKSPACE
    )
    published = {
        "LANDFALL_ENVIRONMENT_ID": workspace.asset("environments", ENVIRONMENT_NAME, "1"),
        "LANDFALL_CODE_ID": workspace.asset("codes", CODE_NAME, "1"),
        **{f"LANDFALL_{key}_DATASTORE": name for key, name in DATASTORES.items()},
    }
    return app_settings(places, published, TwinOptions())


def test_the_function_app_accepts_the_twins_settings(tmp_path: Path) -> None:
    """Nothing is missing or wrong, and the workspace is the twin's."""
    values = settings(tmp_path)
    read = read_settings(values)
    assert (names.WORKSPACE, names.FUNCTION_APP_IDENTITY, values["LANDFALL_CODE_ID"]) == (
        read.workspace.name,
        read.client_id,
        read.workspace.code_id,
    )


def test_a_demo_outlasts_what_a_killed_twin_was_at(tmp_path: Path) -> None:
    """A claim of a process that was killed is taken over before the next demo's wait for its turn ends."""
    values = settings(tmp_path)
    claim_s = read_settings(values).claim_lease.total_seconds()
    assert ("0 * * * * *", True) == (values["LANDFALL_RECONCILE_SCHEDULE"], claim_s + 2 * MINUTE_S < SILENCE_S)


def test_every_recipient_of_this_clones_pipelines_has_its_setting(tmp_path: Path) -> None:
    """A webhook that a pipeline names by its setting is the twin's own receiver."""
    pipelines = load_pipelines(TwinOptions().pipelines)
    webhooks = {one.webhook for p in pipelines.values() for one in p.notify if one.webhook is not None}
    values = settings(tmp_path)
    expected = dict.fromkeys(webhooks, "http://127.0.0.1:10080/webhooks/people")
    assert expected == {name: read_url(values, name) for name in webhooks}


def test_a_fault_and_the_app_that_may_read_logs_reach_the_emulator(tmp_path: Path) -> None:
    """`landfall up --fault NAME`, and the role that a deployment gives the app's identity."""
    places = Places(folder=tmp_path, ports=Ports(DEFAULT_PORTS), secrets=Secrets.random())
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    command = azure_ml(places, TwinOptions(fault="throttled", training_python=tmp_path)).command
    pairs = [" ".join(pair) for pair in itertools.pairwise(command)]
    assert [True, True] == [
        pair in pairs for pair in ("--fault throttled", f"--log-reader {names.FUNCTION_APP_IDENTITY}")
    ]


def passes(name: str, subject: str, folder: Path, **data: str) -> bool:
    """Whether one of the twin's subscriptions passes an event on."""
    places = Places(folder=folder, ports=Ports(DEFAULT_PORTS), secrets=Secrets.random())
    path = folder / "event_grid.json"
    path.write_text(json.dumps(event_grid_config(places, TwinOptions())))
    [subscription] = [one for one in load_config(path).subscriptions if one.name == name]
    kind = next(iter(subscription.included_event_types))
    event = Event(schema="event_grid", body={"eventType": kind, "subject": subject, "data": data})
    return matches(event, subscription)


def test_only_complete_blobs_of_the_data_container_are_announced(tmp_path: Path) -> None:
    """The subscription filters as the deployed one does; what it lets through is what the app looks at."""
    subject = "/blobServices/default/containers/datasets/blobs/digits/v1/train-00000-of-00001.tfrecord"
    apis = [*FINAL_WRITES, "CreateFile", "PutBlock"]
    assert set(FINAL_WRITES) == {api for api in apis if passes("shards", subject, tmp_path, api=api)}
    assert not passes("shards", subject.replace("datasets", "datasets2"), tmp_path, api="PutBlob")


def test_only_landfalls_own_runs_are_announced(tmp_path: Path) -> None:
    """Other people's runs in the workspace cost nothing; those of a job that Landfall planned all pass."""
    assert passes("runs", f"experiments/digits/runs/{PREFIX}digits-v1-1f3a9c2b7d5e-a1", tmp_path)
    assert not passes("runs", "experiments/landfall/runs/calm_river_x1b2", tmp_path)


def test_no_message_expires_and_no_address_holds_a_key(tmp_path: Path) -> None:
    """Both subscriptions write to queues, which keep a message until it is handled."""
    places = Places(folder=tmp_path, ports=Ports(DEFAULT_PORTS), secrets=Secrets.random())
    path = tmp_path / "event_grid.json"
    path.write_text(json.dumps(event_grid_config(places, TwinOptions())))
    subscriptions = load_config(path).subscriptions
    assert [("shard-uploaded", -1), ("run-changed", -1)] == [(one.queue, one.message_ttl_s) for one in subscriptions]
    assert not any(key in path.read_text() for key in vars(places.secrets).values())


def test_the_data_account_has_blobs_only(tmp_path: Path) -> None:
    """This is like a premium account: code that uses its queues fails here already."""
    connection = settings(tmp_path)["DataStorage"]
    assert (True, False, False) == tuple(f"{s}Endpoint=" in connection for s in ("Blob", "Queue", "Table"))


def test_the_workspace_is_named_alike_everywhere(tmp_path: Path) -> None:
    """Publishing and submitting mean the same workspace."""
    values = settings(tmp_path)
    assert workspace_settings() == {name: values[name] for name in workspace_settings()}
