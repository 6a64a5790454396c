"""What is stored or sent, for one complete sample of each kind: table rows, documents, messages, jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from azure.core.exceptions import ResourceNotFoundError

from function_app.adapters.notifiers import event_members
from function_app.adapters.tables import TableLedger
from function_app.config.pipeline_files import load_pipelines
from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import Workspace, plan_run, planned_run
from function_app.domain.records import DeadLetterState, Generation, NotificationState, RunRecord, ShardState
from function_app.domain.run_queue import Dropped, QueueEntry, RunQueue
from function_app.domain.run_states import RunState
from shard_validation.reasons import Reason, ReasonCode
from shared.manifest import FeatureSpec, Manifest, ManifestShard, fingerprint
from shared.training_report import TrainingReport
from tests.golden import source_words
from tests.support.ledger_records import (
    DIGITS,
    NOON,
    dead_letter_record,
    generation_record,
    history_entry,
    notification_record,
    run_record,
    shard_record,
)

WORKSPACE_ID = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg"
    "/providers/Microsoft.MachineLearningServices/workspaces/ws"
)
WORKSPACE = Workspace(
    subscription_id="00000000-0000-0000-0000-000000000000",
    resource_group="rg",
    name="ws",
    environment_id=f"{WORKSPACE_ID}/environments/landfall/versions/1",
    code_id=f"{WORKSPACE_ID}/codes/landfall/versions/1",
    data_datastore="landfall_datasets",
    state_datastore="landfall_state",
    runs_datastore="landfall_runs",
)
REASON = Reason(
    code=ReasonCode.PAYLOAD_CRC,
    shard="train-00003-of-00064.tfrecord",
    message="the payload is damaged",
    record_index=7,
    byte_offset=4096,
    feature="image",
    expected="00c0ffee",
    seen="deadbeef",
)


def rows() -> Any:
    """The tables' rows for a complete record of each kind: table → what was written, in its order."""
    account = RecordingAccount()
    ledger = TableLedger(account)  # type: ignore[arg-type]
    ledger.claim_split_size(DIGITS, "train", 64)
    ledger.record_shard(
        shard_record(
            19, state=ShardState.REJECTED, content_format="tfrecord", reasons=(REASON,), statistics={"labels": [1]}
        )
    )
    ledger.record_shard(shard_record(3, split="a/b c", state=ShardState.ACCEPTED, content_format="tfrecord gzip"))
    ledger.add_generation(generation_record(2, auto_run_id="landfall-digits-v1-000000000001-a1"))
    ledger.add_run(_run())
    ledger.add_run(run_record(2))
    ledger.add_notification(_notification())
    ledger.add_notification(replace(_notification(), key="other", state=NotificationState.SENT))
    ledger.add_history_entry(history_entry(details={"etag": "0X8D1"}))
    ledger.add_dead_letter(
        dead_letter_record(death="d1", state=DeadLetterState.REPLAYED, num_replays=1, replayed_at=NOON)
    )
    entry = QueueEntry.of(_run())
    queue = RunQueue(
        running=(entry,),
        queued=(replace(entry, logical_run="landfall-digits-v1-000000000003"),),
        dropped=(Dropped(logical_run="landfall-digits-v1-000000000004", reason="superseded"),),
    )
    ledger.change_run_queue(lambda _: queue)
    ledger.count("duplicates", "digits/v1")
    ledger.set_mark("sweep", "2026-11-20")
    return account.written


def documents() -> Any:
    """Documents and messages that other programs read: manifest, training report, training request, CloudEvent."""
    shard = ManifestShard(
        split="train", index=0, num_shards=1, name="train-00000-of-00001.tfrecord", size_bytes=1000,
        crc32c="00c0ffee", num_records=10,
    )  # fmt: skip
    feature = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9, allowed=(0, 1))
    manifest = Manifest(
        dataset="digits", version="v1", generation=1, fingerprint=fingerprint([shard]), data_format="tfrecord",
        features=(feature,), shards=(shard,), statistics={"num_records": 10},
    )  # fmt: skip
    report = TrainingReport(
        run_id="r", fingerprint=manifest.fingerprint, metrics={"val_accuracy": 0.5}, epochs=({"epoch": 1},),
        world_size=2, num_nodes=1, images_per_s=1.5, rank_plan={}, seed=1, versions={}, started_at="a", ended_at="b",
        details={},
    )  # fmt: skip
    request = TrainingRequest(dataset_version=DIGITS, generation=1, trigger="closed", run_id="r")
    return {
        "manifest": json.loads(manifest.to_json()),
        "training_report": json.loads(report.to_json()),
        "training_request": json.loads(request.to_json()),
        "cloud_event": event_members(_notification()),
        "rejection": REASON.to_json(),
    }


def jobs() -> Any:
    """The job of each shipped pipeline for a fixed closing and workspace, and the names of the run that it is."""
    return dict(_jobs())


def _jobs() -> Iterator[tuple[str, Any]]:
    for dataset, pipeline in sorted(load_pipelines(source_words.ROOT / "pipelines").items()):
        closing = Generation(
            dataset_version=replace(DIGITS, dataset=dataset), number=3, fingerprint="f" * 64,
            manifest_path=f"manifests/{dataset}/v1/g3.json", num_shards=64, num_records=640, closed_at=NOON,
        )  # fmt: skip
        plan = plan_run(pipeline, closing, WORKSPACE)
        run = planned_run(plan, pipeline, closing, trigger="closed", now=NOON)
        again = plan_run(pipeline, closing, WORKSPACE, again="key")
        yield (
            pipeline.pipeline,
            {
                "run_id": run.run_id,
                "logical_run": run.logical_run,
                "forced_run_id": again.run_id,
                "spec": run.spec,
                "spec_hash": run.spec_hash,
                "world_size": run.world_size,
            },
        )


class RecordingAccount:
    """Stands in for the storage account of the tables: empty, and keeps what is written."""

    def __init__(self) -> None:
        self.written: dict[str, list[Any]] = {}
        self._table = ""

    @property
    def table_service(self) -> RecordingAccount:
        return self

    def create_table_if_not_exists(self, name: str) -> RecordingTable:
        return RecordingTable(self.written.setdefault(name, []))


class RecordingTable:
    """One of its tables."""

    def __init__(self, written: list[Any]) -> None:
        self._written = written

    def get_entity(self, partition: str, key: str) -> NoReturn:
        raise ResourceNotFoundError(f"{partition} {key}")

    def query_entities(self, *_: Any, **__: Any) -> Iterator[Any]:
        return iter(())

    def create_entity(self, entity: dict[str, Any], **_: Any) -> None:
        self.submit_transaction([("create", entity, {})])

    def submit_transaction(self, operations: list[tuple[str, dict[str, Any], Any]], **_: Any) -> None:
        for kind, entity, _options in operations:
            self._written.append([kind, {name: _settled(value) for name, value in entity.items()}])


def _settled(value: Any) -> Any:
    """Read JSON, and blank what differs from call to call: marks of writers and the order of lines."""
    if not isinstance(value, str):
        return value
    if value.startswith(("{", "[")):
        return json.loads(value)
    return re.sub(r"\|\d{20}\|", "|ORDER|", re.sub(r"\b[0-9a-f]{32}\b", "WRITER", value))


def _run() -> RunRecord:
    members: dict[str, Any] = {
        "state": RunState.FAILED,
        "claimed_until": NOON,
        "data_etags": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "submitted_at": NOON,
        "ended_at": NOON,
        "reason": "it failed",
        "log_tail": "the end",
        "model_name": "digits",
        "model_version": "1",
        "metrics": {"val_accuracy": 0.5},
        "num_nodes": 2,
        "world_size": 4,
        "forced_by": "key",
        "started_at": NOON,
        "not_before": NOON,
        "cancel_requested_at": NOON,
        "canceled_by": "person",
        "cancel_reason": "why not",
        "failure_class": "out_of_memory",
        "remedy": "smaller_batch",
        "failure_evidence": "OOM",
        "remedy_reason": "half the batch",
        "next_timeout_s": 60,
        "next_compute": "big",
        "next_run_id": "landfall-digits-v1-000000000001-a2",
        "notified_at": None,
    }
    return run_record(1, **members)


def _notification() -> Any:
    return notification_record(1, tries=1, last_error="503", not_before=NOON, sent_at=NOON)
