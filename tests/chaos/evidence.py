"""What is left after the storm, gathered from the ledger, Azure ML, storage, the recipients and Event Grid."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from azure.storage.blob import BlobServiceClient

from cli.demo.following import received
from function_app.domain.jobs import TAG
from function_app.domain.records import DatasetVersion, HistoryEntry, RunRecord, ShardState, manifest_path
from function_app.ports import Ledger
from local_azure.twin.addresses import RUNS_CONTAINER, STATE_CONTAINER
from shared.manifest import Manifest
from tests.chaos.plan import ChaosPlan
from tests.support.twin import WORKSPACE_ID, TwinUnderTest

TOPICS = ("storage", "azureml")
SUPPRESSED = ("event_suppressed", "request_suppressed")
MAX_ENTRIES = 1_000_000
MODEL_FILE = "model.keras"
API_VERSION = "2023-08-01-preview"
PREFIXES = ("chaos-", "landfall-chaos-")
"""Subjects of the history: blobs and versions, then runs."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A registered model version: what it says of its data, and what its training read."""

    run_id: str
    """From the address of its files."""
    tags: Mapping[str, str]
    read: Mapping[str, Any]
    """What the stand-in for a training wrote into it: ``shards`` (name → CRC32C) and ``sha256`` of all bytes."""
    manifest: Manifest
    """The manifest of the generation that the tags name."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the promises are judged by."""

    runs: list[RunRecord]
    jobs: list[str]
    """Names of the jobs in Azure ML."""
    models: list[Model]
    accepted: Mapping[str, Mapping[str, str]]
    """Dataset → CRC32C of each accepted shard."""
    closings: Mapping[str, Sequence[str]]
    """Dataset → fingerprints of its generations, oldest first."""
    commits: Mapping[str, Sequence[int]]
    """Delta table → its versions that its generations are of, oldest first."""
    notified: Counter[tuple[str, str, str]]
    """(run, recipient, outcome) → distinct notifications, compared by id as recipients do."""
    deliveries: int
    """Notifications received, including repetitions."""
    suppressed: list[HistoryEntry]
    dead_letters: int
    events: Mapping[str, int]
    """Number of events that were published, dropped, duplicated and late."""
    failed_calls: Counter[str]
    """HTTP status → failed calls of Azure ML by the function app; 0 means a broken connection."""
    faults: Sequence[tuple[str, str]]
    """Each named fault of Azure ML that was met, with the job that met it."""


def gather(plan: ChaosPlan, twin: TwinUnderTest, ledger: Ledger) -> Evidence:
    """Ask the ledger, Azure ML and the emulators."""
    runs = ledger.runs(limit=MAX_ENTRIES)
    versions = list(ledger.versions())
    notified = {(n["subject"], n["recipient"], n["outcome"], n["id"]) for n in notifications(twin)}
    generations = {version.dataset: list(reversed(ledger.generations(version))) for version in versions}
    entries = [entry for prefix in PREFIXES for entry in ledger.history_below(prefix, limit=MAX_ENTRIES)]
    return Evidence(
        runs=runs,
        jobs=names(twin, "jobs"),
        models=models(plan, twin),
        accepted={version.dataset: accepted(version, ledger) for version in versions},
        closings={dataset: [one.fingerprint for one in own] for dataset, own in generations.items()},
        commits={
            dataset: [one.table_version for one in own if one.table_version is not None]
            for dataset, own in generations.items()
        },
        notified=Counter((subject, recipient, outcome) for subject, recipient, outcome, _ in notified),
        deliveries=len(notifications(twin)),
        suppressed=[entry for entry in entries if entry.action in SUPPRESSED],
        dead_letters=len(ledger.dead_letters(limit=MAX_ENTRIES)),
        events=events(twin),
        failed_calls=Counter(str(call["status"]) for call in twin.client.calls() if not 200 <= call["status"] < 400),
        faults=twin.client.faults_met(),
    )


def notifications(twin: TwinUnderTest) -> list[dict[str, Any]]:
    """Return all notifications that any recipient received."""
    posted = (json.loads(entry["body"]) for entry in twin.client.webhook_received())
    events = [*(entry["event"] for entry in twin.client.received()), *posted]
    subjects = sorted({str(event.get("subject")) for event in events})
    return [one for subject in subjects for one in received(twin.client, subject)]


def events(twin: TwinUnderTest) -> dict[str, int]:
    """Return how many events of uploads and runs were published, dropped, duplicated and late."""
    faults = twin.client.event_faults()
    counted = {what: sum(faults[topic][what] for topic in TOPICS) for what in ("dropped", "duplicated", "late")}
    return {"published": sum(len(twin.client.received(topic)) for topic in TOPICS), **counted}


def accepted(version: DatasetVersion, ledger: Ledger) -> dict[str, str]:
    """Return the CRC32C of each accepted shard of a version."""
    return {row.name: row.crc32c for row in ledger.shards(version) if row.state is ShardState.ACCEPTED}


def models(plan: ChaosPlan, twin: TwinUnderTest) -> list[Model]:
    """Return every registered model version with its files' content and the manifest that its tags name."""
    outputs = {job["name"]: job["properties"]["outputs"] for job in listed(twin, "jobs")}
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as blobs:
        return [
            _model(model["properties"], outputs, blobs)
            for dataset in plan.datasets
            for model in listed(twin, f"models/{dataset}-model/versions")
        ]


def _model(properties: Mapping[str, Any], outputs: Mapping[str, Any], blobs: BlobServiceClient) -> Model:
    run_id, tags = properties["modelUri"].split("/jobs/")[1].split("/")[0], properties["tags"]
    dataset, _, version = tags[TAG + "dataset_version"].partition("/")
    dataset_version = DatasetVersion(dataset=dataset, version=version)
    listing = manifest_path(dataset_version, int(tags[TAG + "generation"]), tags[TAG + "fingerprint"])
    files = outputs[run_id]["model"]["uri"].partition("/paths/")[2]
    return Model(
        run_id=run_id,
        tags=tags,
        read=json.loads(_content(blobs, RUNS_CONTAINER, f"{files}/{MODEL_FILE}")),
        manifest=Manifest.from_json(_content(blobs, STATE_CONTAINER, listing)),
    )


def _content(blobs: BlobServiceClient, container: str, path: str) -> bytes:
    return blobs.get_blob_client(container, path).download_blob().readall()


def names(twin: TwinUnderTest, kind: str) -> list[str]:
    """Return the names of all resources of a kind."""
    return [str(one["name"]) for one in listed(twin, kind)]


def listed(twin: TwinUnderTest, path: str) -> list[dict[str, Any]]:
    """List resources of Azure ML; empty if there is no such collection."""
    answer = ask_azure_ml(twin, "GET", path)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return []
    found: list[dict[str, Any]] = answer.raise_for_status().json()["value"]
    return found


def ask_azure_ml(twin: TwinUnderTest, method: str, path: str, body: Any = None) -> httpx.Response:
    """Call Azure ML with a token, as any client can."""
    places = twin.twin.places
    verify = ssl.create_default_context(cafile=places.ca_file)
    with httpx.Client(base_url=places.azure_ml_url, verify=verify, trust_env=False, timeout=30.0) as http:
        secret = {"X-IDENTITY-HEADER": places.secrets.identity_header}
        token = http.get("/msi/token?resource=chaos", headers=secret).raise_for_status().json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        return http.request(method, f"{WORKSPACE_ID}/{path}?api-version={API_VERSION}", json=body, headers=headers)
