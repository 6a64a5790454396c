"""The world of the unit tests, built from the shipped doubles: a pipeline, a store, a ledger and a movable clock."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from jsonschema import Draft202012Validator

from function_app.adapters.notifiers import event_members
from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import parse_clusters, parse_pipeline
from function_app.config.pipelines import Pipeline
from function_app.domain.events import (
    CREATED,
    RUN_CHANGED,
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    SWEEP_REQUESTED,
    TRAINING_REQUESTED,
    TrainingRequest,
    Upload,
    read_uploads,
)
from function_app.domain.jobs import Workspace, model_folder, report_path, spec_from_json
from function_app.domain.outcomes import Links
from function_app.domain.records import DatasetVersion, NotificationRecord, RunRecord, Undelivered
from function_app.ingest.uploads import handle_upload
from function_app.runs.following import follow_run
from function_app.runs.submission import handle_request
from function_app.services import Services
from function_app.testing.azure_ml import MemoryJobs, MemoryModels, MemoryNotifier
from function_app.testing.ledger import MemoryDeadLetterSource, MemoryLedger
from function_app.testing.stores import (
    MemoryDocumentStore,
    MemoryRejectedCopies,
    MemoryRequestQueue,
    MemoryShardStore,
)
from shard_validation import encode_example
from shared.record_framing import frame_record
from shared.training_report import TrainingReport

VERSION = DatasetVersion(dataset="digits", version="v1")
WEBHOOK = "webhook:LANDFALL_WEBHOOK_PEOPLE"
PIPELINE = """
pipeline: digits
dataset: digits
data:
  format: tfrecord
  splits: [train, validation]
  features:
    label: {kind: int64, minimum: 0, maximum: 9}
    image: {kind: float, shape: [2, 2, 1]}
  small_shard_ratio: 0.0
on_change: notify
train:
  cluster: landfall-gpu
  num_nodes: 2
  timeout_s: 3600
  options: {epochs: 3, per_process_batch_size: 1}
  overrides:
    epochs: {minimum: 1, maximum: 100}
    learning_rate: {minimum: 0.0001, maximum: 0.1}
    optimizer: {allowed: [adam, sgd]}
register:
  model: digits-cnn
  require:
    - {metric: val_accuracy, at_least: 0.95}
notify:
  - topic
  - webhook: LANDFALL_WEBHOOK_PEOPLE
"""
CLUSTERS = """
landfall-gpu:
  sizes:
    - {vm_size: Standard_NC6s_v3}
    - {vm_size: Standard_NC24ads_A100_v4}
landfall-a100:
  sizes: [{vm_size: Standard_ND96asr_v4}]
landfall-cpu:
  sizes: [{vm_size: Standard_D8s_v5, processes_per_node: 4}]
"""
SIZES = {
    "landfall-gpu": "Standard_NC24ads_A100_v4",
    "landfall-a100": "Standard_ND96asr_v4",
    "landfall-cpu": "Standard_D8s_v5",
}
_ARM = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
WORKSPACE = Workspace(
    subscription_id="00000000-0000-0000-0000-000000000000",
    resource_group="landfall",
    name="landfall",
    environment_id=f"{_ARM}/environments/landfall-training/versions/1",
    code_id=f"{_ARM}/codes/landfall-training/versions/abc",
    data_datastore="landfall_datasets",
    state_datastore="landfall_state",
    runs_datastore="landfall_runs",
)


def clusters(**sizes: Any) -> Clusters:
    """Return the clusters of the tests; ``sizes`` replaces the sizes of landfall-gpu by one with these members."""
    text = CLUSTERS
    if sizes:
        text = f"landfall-gpu: {{max_nodes: 100, sizes: [{json.dumps(sizes)}]}}"
    return _parsed_clusters(text)


@functools.cache
def _parsed_clusters(text: str) -> Clusters:
    return Clusters(clusters=parse_clusters(text.encode(), "clusters.yaml"))


def read_pipeline(text: str, name: str = "digits.yaml", on: Clusters | None = None) -> Pipeline:
    """Read a pipeline from a text, on the clusters of the tests."""
    return _parsed(text, name).on(on or clusters())


@functools.cache
def _parsed(text: str, name: str) -> Pipeline:
    return parse_pipeline(text.encode(), name)


def own_script(text: str) -> str:
    """Return a pipeline's YAML text with a script of the user's own."""
    text = re.sub(r"^  (options|overrides):.*\n(    .*\n)*", "", text, flags=re.MULTILINE)
    return text.replace("train:\n", "train:\n  script: scripts/x.py\n")


def pipeline(on: Clusters | None = None, **changes: Any) -> Pipeline:
    """Return the pipeline of the tests, with members of its top level replaced."""
    return _parsed(PIPELINE, "digits.yaml").model_copy(update=changes).on(on or clusters())


def shard_content(*labels: int) -> bytes:
    """Return a TFRecord shard with a small image and a label for each record."""
    image = [0.0, 0.25, 0.5, 1.0]
    return b"".join(frame_record(encode_example({"label": [label], "image": image})) for label in labels)


EVENTS = Path(__file__).resolve().parents[2] / "docs" / "events"
LINKS = Links(pages="https://landfall.example", workspace_id="/subscriptions/s/workspaces/w")


def event_message(paths: Iterable[str], **data: Any) -> str:
    """Return a message as Event Grid sends it: one event for each path of a blob, each with ``data`` as well."""
    subject = "/blobServices/default/containers/datasets/blobs/"
    data = {"api": "PutBlob", **data}
    return json.dumps([{"id": path, "eventType": CREATED, "subject": subject + path, "data": data} for path in paths])


@functools.cache
def validator_of(event_type: str) -> Draft202012Validator:
    """Return the strict validator of an event type: it rejects members that the schema does not describe."""
    schema: dict[str, Any] = json.loads((EVENTS / f"{event_type.removeprefix('landfall.')}.json").read_text("utf-8"))
    schema["additionalProperties"] = schema["properties"]["data"]["additionalProperties"] = False
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def check_event(event: dict[str, Any]) -> None:
    """Fail if an event does not match its schema."""
    problems = [f"{error.json_path}: {error.message}" for error in validator_of(event["type"]).iter_errors(event)]
    if problems:  # pytest.fail, because the outbox handles an AssertionError as a failed delivery
        pytest.fail(f"{event['type']} is not as docs/events says: {problems}")


@dataclass
class CheckedNotifier(MemoryNotifier):
    """An in-memory recipient that checks every event against its schema."""

    def send(self, notification: NotificationRecord) -> None:
        """Check the event and store it."""
        check_event(json.loads(json.dumps(event_members(notification, LINKS))))
        super().send(notification)


class MovableClock:
    """A clock that advances only when it is moved, apart from a microsecond at every reading."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now

    def move(self, **duration: float) -> None:
        """Advance the clock."""
        self.now += timedelta(**duration)


@dataclass(kw_only=True)
class World:
    """Everything that the steps call, and methods that simulate the outside."""

    clock: MovableClock = field(default_factory=MovableClock)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    shards: MemoryShardStore = field(init=False)
    rejected_copies: MemoryRejectedCopies = field(init=False)
    documents: MemoryDocumentStore = field(default_factory=MemoryDocumentStore)
    run_outputs: MemoryDocumentStore = field(default_factory=MemoryDocumentStore)
    requests: MemoryRequestQueue = field(default_factory=MemoryRequestQueue)
    jobs: MemoryJobs = field(default_factory=MemoryJobs)
    models: MemoryModels = field(default_factory=MemoryModels)
    topic: MemoryNotifier = field(default_factory=CheckedNotifier)
    people: MemoryNotifier = field(default_factory=CheckedNotifier)
    undelivered: MemoryDeadLetterSource = field(default_factory=MemoryDeadLetterSource)
    uploads: MemoryRequestQueue = field(default_factory=MemoryRequestQueue)
    """The queue of uploads, for messages that are sent back to it."""
    bulk: MemoryRequestQueue = field(default_factory=MemoryRequestQueue)
    """The queue of datasets that upload many shards at once."""
    run_events: MemoryRequestQueue = field(default_factory=MemoryRequestQueue)
    sweep_requests: MemoryRequestQueue = field(default_factory=MemoryRequestQueue)
    services: Services = field(init=False)

    def __post_init__(self) -> None:
        self.shards = MemoryShardStore(self.clock)
        self.rejected_copies = MemoryRejectedCopies(self.shards)
        self.services = Services(
            pipelines={"digits": pipeline()},
            workspace=WORKSPACE,
            data_container="datasets",
            ledger=self.ledger,
            shards=self.shards,
            rejected_copies=self.rejected_copies,
            documents=self.documents,
            run_outputs=self.run_outputs,
            requests=self.requests,
            jobs=self.jobs,
            models=self.models,
            notifiers={"topic": self.topic, WEBHOOK: self.people},
            dead_letter_sources=[self.undelivered],
            queues={
                SHARD_UPLOADED: self.uploads,
                SHARD_UPLOADED_BULK: self.bulk,
                TRAINING_REQUESTED: self.requests,
                RUN_CHANGED: self.run_events,
                SWEEP_REQUESTED: self.sweep_requests,
            },
            clock=self.clock,
        )

    def change_pipeline(self, on: Clusters | None = None, **changes: Any) -> None:
        """Deploy another version of the pipeline."""
        self.services = replace(self.services, pipelines={"digits": pipeline(on, **changes)})

    def change_machines(self, **size: Any) -> None:
        """Deploy the pipelines with a cluster of another size with these members."""
        moved = {name: one.on(clusters(**size)) for name, one in self.services.pipelines.items()}
        self.services = replace(self.services, pipelines=moved)

    def break_pipeline(self, dataset: str = "digits") -> None:
        """Deploy a pipeline file that cannot be used."""
        others = {name: known for name, known in self.services.pipelines.items() if name != dataset}
        problems = (f"{dataset}.yaml: train: is required",)
        self.services = replace(
            self.services,
            pipelines=others,
            out_of_service={dataset: problems},
            outage_recipients={dataset: pipeline().notify},
        )

    def correct_pipeline(self) -> None:
        """Deploy the pipeline as it was before it was broken."""
        pipelines = {"digits": pipeline(), **self.services.pipelines}
        self.services = replace(self.services, pipelines=pipelines, out_of_service={})

    def add_pipelines(self, *datasets: str, **changes: Any) -> None:
        """Deploy more pipelines, each like that of `digits`, for a dataset of its own."""
        more = {name: pipeline(pipeline=name, dataset=name, **changes) for name in datasets}
        self.services = replace(self.services, pipelines={**self.services.pipelines, **more})

    def put(self, name: str, content: bytes | None = None, version: str = "v1", dataset: str = "digits") -> str:
        """Upload a shard (by default a valid one with its own content); return its path. No event is delivered."""
        path = f"{dataset}/{version}/{name}"
        self.shards.put(path, shard_content(len(name) % 10, *_digits(name)) if content is None else content)
        return path

    def remove(self, path: str) -> None:
        """Delete a blob, if it exists. No event is delivered."""
        self.shards.blobs.pop(path, None)

    def overwrite_manifests(self, content: bytes) -> None:
        """Overwrite the manifests with damaged content."""
        for path in self.documents.documents:
            if path.startswith("manifests/"):
                self.documents.documents[path] = content

    def forget_runs(self) -> None:
        """Delete the rows of all runs."""
        self.ledger.run_rows.clear()

    def give_up(self, payload: str) -> None:
        """Move a message of the queue of uploads to the poison queue, as the host does."""
        letter = Undelivered(
            source=SHARD_UPLOADED,
            payload=payload,
            identity=payload,
            error="",
            tries=5,
            died_at=self.clock(),
            death=str(uuid4()),
        )
        self.undelivered.lying.append(letter)

    def leave_upload(self, message: str) -> None:
        """Put a message into the queue of uploads, as Event Grid does."""
        self.uploads.send_text(message)

    def clear_uploads(self) -> None:
        """Empty the queue of uploads."""
        self.uploads.messages.clear()

    def deliver(self, path: str, **members: Any) -> None:
        """Deliver the event of an upload."""
        event: dict[str, Any] = {"event_type": CREATED, "api": "PutBlob", "container": "datasets", "path": path}
        handle_upload(Upload(**{"event_id": "e", **event, **members}), self.services)

    def upload_shards(self, *names: str, version: str = "v1", dataset: str = "digits") -> None:
        """Upload valid shards and deliver their events."""
        for name in names:
            self.deliver(self.put(name, version=version, dataset=dataset))

    def serve_requests(self) -> None:
        """Handle everything in the queues."""
        while self.uploads.messages:
            for upload in read_uploads(self.uploads.messages.pop(0)):
                handle_upload(upload, self.services)
        self.requests.reappear()
        while self.requests.messages:
            handle_request(TrainingRequest.from_json(self.requests.messages.pop(0)), self.services)

    def upload_version(self) -> RunRecord:
        """Upload a complete version and have it submitted; return its run."""
        self.upload_shards(*ALL_SHARDS)
        self.serve_requests()
        return self.only_run()

    def only_run(self) -> RunRecord:
        """Return the only run."""
        (run,) = self.ledger.runs()
        return run

    def train(self, *, version: str = "v1", dataset: str = "digits") -> RunRecord:
        """Upload a version, serve the queue, and return the newest run of the dataset."""
        self.upload_shards(*ALL_SHARDS, version=version, dataset=dataset)
        self.serve_requests()
        return self.ledger.runs(dataset=dataset)[0]

    def change_shard(self, label: int, *, version: str = "v1", dataset: str = "digits") -> RunRecord:
        """Overwrite a shard with other content, serve the queue, and return the newest run of the dataset."""
        self.deliver(self.put(TRAIN_SHARDS[0], shard_content(label), version, dataset))
        self.serve_requests()
        return self.ledger.runs(dataset=dataset)[0]

    def stands(self, run: RunRecord) -> RunRecord:
        """Return the current record of a run."""
        return self.ledger.run_rows[run.run_id]

    def finish(self, run: RunRecord, status: str = "Completed") -> RunRecord:
        """End a job, reconcile its run and serve the queue; return the run."""
        self.end_job(run, status)
        self.follow(run)
        self.serve_requests()
        return self.stands(run)

    def follow(self, run: RunRecord) -> RunRecord:
        """Reconcile a run with its job; return the run."""
        return follow_run(self.stands(run), self.services)

    def end_job(self, run: RunRecord, status: str = "Completed", **metrics: float) -> None:
        """End the job, with a report if it completed."""
        if status == "Completed":
            machines = {"world_size": run.world_size, "num_nodes": run.num_nodes} if run.sweep_id else {}
            self.write_report(run, metrics or {"val_accuracy": 0.97}, **machines)
        self.jobs.become(run.run_id, status)

    def write_report(self, run: RunRecord, metrics: Mapping[str, float], **members: Any) -> None:
        """Write a training report as the job would."""
        report = TrainingReport(
            run_id=run.run_id,
            fingerprint=run.fingerprint,
            metrics=metrics,
            epochs=(),
            world_size=2,
            num_nodes=2,
            images_per_s=100.0,
            rank_plan={},
            seed=0,
            versions={},
            started_at="2026-11-20T12:00:00+00:00",
            ended_at="2026-11-20T12:01:00+00:00",
            contents_checked=True,
            device="gpu",
        )
        path = report_path(spec_from_json(run.spec))
        self.run_outputs.write(path, replace(report, **members).to_json().encode())

    def leave_model(self, run: RunRecord) -> None:
        """Write a model as the job would."""
        self.run_outputs.write(f"{model_folder(spec_from_json(run.spec))}/model.keras", b"a model")

    def actions(self, subject: str | DatasetVersion) -> list[str]:
        """Return the actions in the history of a subject, in order."""
        return [entry.action for entry in self.ledger.history(str(subject))]


TRAIN_SHARDS = tuple(f"train-{index:05d}-of-00002.tfrecord" for index in range(2))
VALIDATION_SHARDS = ("validation-00000-of-00001.tfrecord",)
ALL_SHARDS = (*TRAIN_SHARDS, *VALIDATION_SHARDS)


def _digits(name: str) -> list[int]:
    """Return labels that differ from shard to shard."""
    return [int(character) for character in name if character.isdigit()]


def ended_run(status: str = "Completed", **metrics: float) -> tuple[World, RunRecord]:
    """Return a world whose run has ended, and the reconciled run."""
    world = World()
    run = world.upload_version()
    world.end_job(run, status, **metrics)
    return world, world.follow(run)


def unregistered() -> tuple[World, RunRecord]:
    """Return a world, with a model's files, and its run, which has completed without meeting its requirements."""
    world, run = ended_run(val_accuracy=0.9)
    world.leave_model(run)
    return world, world.stands(run)
