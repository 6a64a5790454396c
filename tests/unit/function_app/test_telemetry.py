"""Traces and metrics of a version's way through the flows."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from azure.functions.queue import QueueMessage

from cli.traces import read_trace, tree
from function_app.adapters.notifiers import event_members
from function_app.adapters.telemetry import METRICS_FILE, to_files
from function_app.domain.checks import ONE_ITEM, Check, CheckState
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import CREATED, read_uploads
from function_app.explain.doctor import examine
from function_app.functions import failures_on_record
from function_app.ingest.messages import handle_passed_on
from function_app.ingest.uploads import handle_upload
from function_app.runs.following import handle_run_event
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import run_sweep
from function_app.telemetry import MAX_CHARS, Span, TelemetrySink
from shared.errors import LandfallError
from shared.traces import place_of_run, place_of_version
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, clusters

CHAIN = ["dataset version", "BlobCreated", "closed", "run", "run event", "notified"]
"""The way from the last shard to a notification, from the root down."""


@dataclass(kw_only=True)
class MemorySink:
    """Keeps what it gets."""

    spans: list[Span] = field(default_factory=list)
    counted: list[tuple[str, int, Mapping[str, str]]] = field(default_factory=list)
    measured: list[tuple[str, float, Mapping[str, str]]] = field(default_factory=list)

    def export(self, span: Span) -> None:
        """See TelemetrySink."""
        self.spans.append(span)

    def count(self, name: str, number: int, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self.counted.append((name, number, dimensions))

    def measure(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self.measured.append((name, value, dimensions))

    def deliver(self, span: Span) -> str:
        """See TelemetrySink."""
        self.spans.append(span)
        return "kept"

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def way_of(self, span: Span) -> list[str]:
        """Return the names from the root to a span."""
        by_id = {each.place.span_id: each for each in self.spans}
        above = by_id.get(span.parent.span_id) if span.parent else None
        return [*(self.way_of(above) if above else ["?"] if span.parent else []), span.name]


class BrokenSink:
    """Fails whatever it gets."""

    def export(self, span: Span) -> None:
        """See TelemetrySink."""
        raise RuntimeError(f"no telemetry today: {span.name}")

    def count(self, name: str, number: int, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        raise OSError(name, number, dimensions)

    def measure(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        raise MemoryError(name, value, dimensions)

    def deliver(self, span: Span) -> str:
        """See TelemetrySink."""
        raise LandfallError(span.name)


def traced_world(sink: TelemetrySink | None) -> World:
    """A world whose closings submit their runs themselves, as production does."""
    world = World()
    world.services = replace(world.services, telemetry_sink=sink, start=handle_request)
    return world


def train(world: World) -> None:
    """Upload a version, and let its job end."""
    world.upload_shards(*ALL_SHARDS)
    run = world.only_run()
    world.end_job(run)
    handle_run_event(run.run_id, world.services)


def test_a_version_is_one_trace_from_its_upload_to_the_notifications() -> None:
    """Every span hangs together with the root, and the last one is below all the others."""
    sink = MemorySink()
    train(traced_world(sink))
    ways = [sink.way_of(span) for span in sink.spans]
    assert {place_of_version(VERSION).trace_id} == {span.place.trace_id for span in sink.spans}
    assert {"dataset version"} == {way[0] for way in ways}
    assert [CHAIN, CHAIN] == [way for way in ways if way[-1] == "notified"]
    assert {(*CHAIN[:4], "submitted"), (*CHAIN[:5], "registered"), (*CHAIN[:2], "verdict")} <= {*map(tuple, ways)}


def test_the_queues_function_submits_in_the_same_trace() -> None:
    """The message names version and generation; the ids follow from these."""
    sink = MemorySink()
    world = traced_world(sink)
    world.services = replace(world.services, start=None)
    world.upload_version()
    assert 1 == len(sink.named("submitted"))
    world.end_job(world.only_run())
    handle_run_event(world.only_run().run_id, world.services)
    assert [[*CHAIN[:4], "submitted"]] == [sink.way_of(span) for span in sink.named("submitted")]


def test_a_duplicate_and_a_changed_shard_belong_to_the_trace() -> None:
    """A second closing is another branch below the same root, which is written once."""
    sink = MemorySink()
    world = traced_world(sink)
    train(world)
    world.deliver(f"digits/v1/{ALL_SHARDS[0]}")
    assert ["event_suppressed"] == [event.name for event in sink.spans[-1].events]
    world.change_shard(7)
    assert (1, [1, 2]) == (
        len(sink.named("dataset version")),
        [span.attributes["landfall.generation"] for span in sink.named("closed")],
    )
    assert {place_of_version(VERSION).trace_id} == {span.place.trace_id for span in sink.spans}


def test_the_senders_span_is_a_link() -> None:
    """An event of CloudEvents may state one; it never decides which trace it is."""
    sink = MemorySink()
    world = traced_world(sink)
    path = world.put(ALL_SHARDS[0])
    event = {
        "specversion": "1.0",
        "id": "1",
        "type": "Microsoft.Storage.BlobCreated",
        "subject": f"/blobServices/default/containers/datasets/blobs/{path}",
        "data": {"api": "PutBlob"},
        "traceparent": place_of_version("another/trace").traceparent,
    }
    for stated in (event["traceparent"], "00-xyz", {"a": 1}):
        (upload,) = read_uploads(json.dumps({**event, "traceparent": stated}))
        handle_upload(upload, world.services)
    links = [span.link.trace_id if span.link else None for span in sink.named("BlobCreated")]
    assert [place_of_version("another/trace").trace_id, None, None] == links


def test_a_flood_leaves_a_bounded_number_of_spans() -> None:
    """Every 16th of 1,000 shards is traced, and all of them are counted."""
    sink = MemorySink()
    world = traced_world(sink)
    world.upload_shards(*(f"train-{index:05d}-of-01000.tfrecord" for index in range(1000)))
    assert 63 == len(sink.named("BlobCreated")) == len(sink.named("verdict"))
    assert 1000 == sum(number for _, number, each in sink.counted if each.get("action") == "shard_accepted")


def test_a_shard_that_closes_its_version_is_traced_in_any_case() -> None:
    """Its closing is below it, so the tree has no hole."""
    sink = MemorySink()
    world = traced_world(sink)
    names = [f"train-{index:05d}-of-00066.tfrecord" for index in range(66)]
    world.upload_shards("validation-00000-of-00001.tfrecord", *names)
    (closed,) = sink.named("closed")
    assert (["dataset version", "BlobCreated", "closed"], 35) == (sink.way_of(closed), len(sink.named("BlobCreated")))


def test_shards_that_close_their_version_together_are_traced_as_one() -> None:
    """The verdicts of a bucket are recorded in one transaction: its last shard stands for it in the trace."""
    sink = MemorySink()
    world = traced_world(sink)
    names = [f"train-{index:05d}-of-00066.tfrecord" for index in range(66)]
    world.upload_shards("validation-00000-of-00001.tfrecord", *names[::2])
    paths = [world.put(name) for name in names[1::2]]
    subject, data = "/blobServices/default/containers/datasets/blobs/", {"api": "PutBlob", "contentLength": 100}
    events = [{"id": path, "eventType": CREATED, "subject": subject + path, "data": data} for path in paths]
    handle_passed_on(json.dumps(events).encode(), world.services)
    (closed,) = sink.named("closed")
    assert (["dataset version", "BlobCreated", "closed"], 35) == (sink.way_of(closed), len(sink.named("BlobCreated")))


@pytest.mark.parametrize("sink", [BrokenSink(), None])
def test_no_step_depends_on_telemetry(sink: TelemetrySink | None) -> None:
    """If the sink fails or is missing, the same models are registered and the same people notified."""
    world = traced_world(sink)
    train(world)
    assert (["digits-cnn"], 1, 1) == (
        [model.name for model in world.models.registered.values()],
        len(world.topic.received),
        len(world.people.received),
    )


def test_the_trace_goes_through_the_job_and_comes_back_in_its_report() -> None:
    """Tag and variable name the run's place, the report repeats it, and the notification's event has it."""
    sink = MemorySink()
    world = traced_world(sink)
    world.upload_shards(*ALL_SHARDS)
    run = world.only_run()
    place = place_of_run(VERSION, run.run_id)
    assert [place.traceparent] * 2 == [
        run.spec["tags"]["landfall.traceparent"],
        run.spec["environment_variables"]["TRACEPARENT"],
    ]
    began = world.clock()
    world.clock.move(minutes=1)
    times = {"started_at": began.isoformat(), "ended_at": world.clock().isoformat()}
    world.write_report(run, {"val_accuracy": 0.97}, details={"traceparent": place.traceparent}, **times)
    world.jobs.become(run.run_id, "Completed")
    handle_run_event(run.run_id, world.services)
    (training,) = sink.named("training")
    assert ([*CHAIN[:4], "training"], 60) == (
        sink.way_of(training),
        (training.ended_at - training.started_at).seconds,
    )
    assert {place.traceparent} == {event_members(each)["traceparent"] for each in world.topic.received}


@pytest.mark.parametrize(
    "members",
    [
        {"details": {}},
        {"details": ["traceparent"]},
        {"started_at": None, "images_per_s": "fast"},
        {"started_at": "2026-11-20T12:00:00", "images_per_s": math.inf},
        {"started_at": "2020-01-01T00:00:00+00:00", "images_per_s": True},
    ],
)
def test_a_report_that_states_nonsense_is_no_training(members: Mapping[str, Any]) -> None:
    """A report is what a job wrote: times outside of the run's, or of no kind, lead to no span, and stop nothing."""
    sink = MemorySink()
    world = traced_world(sink)
    world.upload_shards(*ALL_SHARDS)
    run = world.only_run()
    now = world.clock().isoformat()
    traceparent = {"traceparent": place_of_run(VERSION, run.run_id).traceparent}
    stated: dict[str, Any] = {"details": traceparent, "started_at": now, "ended_at": now, **members}
    world.write_report(run, {"val_accuracy": 0.97}, **stated)
    world.jobs.become(run.run_id, "Completed")
    handle_run_event(run.run_id, world.services)
    assert ("registered", []) == (world.only_run().state, sink.named("training"))


def test_the_next_attempt_is_another_branch() -> None:
    """Below the same closing, with its own tag and variable."""
    sink = MemorySink()
    world = traced_world(sink)
    world.upload_shards(*ALL_SHARDS)
    world.jobs.become(world.only_run().run_id, "Failed", error="preempted", error_code="JobPreempted")
    first = world.only_run()
    handle_run_event(first.run_id, world.services)
    second = world.ledger.run(world.stands(first).next_run_id or "")
    assert second is not None
    traceparent = place_of_run(VERSION, second.run_id).traceparent
    assert (traceparent, traceparent, CHAIN[:4]) == (
        second.spec["tags"]["landfall.traceparent"],
        second.spec["environment_variables"]["TRACEPARENT"],
        sink.way_of(sink.named("run")[0]),
    )


def test_the_sweep_leaves_a_span_where_it_finds_something() -> None:
    """A run whose events were lost is as complete a tree; a look that finds nothing is left out."""
    sink = MemorySink()
    world = traced_world(sink)
    world.upload_shards(*ALL_SHARDS)
    run = world.only_run()
    run_sweep(world.services)
    assert [] == sink.named("run event")
    world.end_job(run)
    run_sweep(world.services)
    assert [CHAIN, CHAIN] == [sink.way_of(span) for span in sink.named("notified")]


def test_what_is_measured_has_few_dimensions() -> None:
    """Messages by queue and outcome, time from the last shard to the submission, rate and cost by dataset."""
    sink = MemorySink()
    world = traced_world(sink)
    world.change_pipeline(on=clusters(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.0))
    inserted_at = world.clock()
    world.clock.move(seconds=5)
    message = QueueMessage(body="{}", insertion_time=inserted_at)
    with failures_on_record("shard-uploaded", message, world.services):
        pass
    world.upload_shards(*ALL_SHARDS)
    run = world.only_run()
    world.jobs.become(run.run_id, "Running")
    handle_run_event(run.run_id, world.services)
    world.clock.move(minutes=30)
    run_sweep(world.services)
    world.end_job(run)
    handle_run_event(run.run_id, world.services)
    measured = {name: (round(value, 2), dict(dimensions)) for name, value, dimensions in sink.measured}
    by_dataset = {"dataset": "digits"}
    assert {
        "landfall.queue.age": (5.0, {"queue": "shard-uploaded"}),
        "landfall.submission.delay": (0.0, by_dataset),
        "landfall.run.age": (1800.0, {"state": "running"}),
        "landfall.images_per_s": (100.0, by_dataset),
        "landfall.node_hours": (1.0, by_dataset),
        "landfall.cost": (3.0, by_dataset),
    } == measured
    assert ("landfall.messages", 1, {"queue": "shard-uploaded", "result": "handled"}) in sink.counted
    states = [dict(each)["action"] for name, _, each in sink.counted if name == "landfall.history"]
    assert {"run_planned", "run_submitted", "run_running", "run_completed", "run_registered"} <= set(states)


def test_texts_from_outside_are_bounded_and_without_secrets() -> None:
    """An error quotes what a service answered."""
    sink = MemorySink()
    world = traced_world(sink)
    said = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"

    def refuse(*_: object, **__: object) -> None:
        raise ServiceUnavailableError(f"{said} \x1b[2J{'x' * 5000}")

    world.services = replace(world.services, validate=refuse)  # type: ignore[arg-type]
    with pytest.raises(ServiceUnavailableError):
        world.deliver(world.put(ALL_SHARDS[0]))
    (span,) = sink.named("BlobCreated")
    assert span.error is not None
    assert (MAX_CHARS, False, False) == (len(span.error), "abcdefghij" in span.error, "\x1b" in span.error)


def test_the_twins_file_is_printed_as_a_tree(tmp_path: Path) -> None:
    """Through OpenTelemetry's own spans and their JSON."""
    train(traced_world(to_files(tmp_path)))
    lines = list(tree(read_trace(tmp_path, str(VERSION)), str(VERSION)))
    assert f"trace {place_of_version(VERSION).trace_id}" == lines[0]
    depth = {word: len(line) - len(line.lstrip("│├└─ ")) for line in lines for word in CHAIN if f"  {word}  " in line}
    assert [0, 3, 6, 9, 12, 15] == [depth[word] for word in CHAIN]
    assert f"shard={TRAIN_SHARDS[0]}" in lines[2]


def test_the_twins_metrics_are_lines_of_one_file_that_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value at once; a full file is kept in place of the last one."""
    monkeypatch.setattr("function_app.adapters.telemetry.MAX_METRICS_BYTES", 300)
    sink = to_files(tmp_path / "traces")
    sink.measure("landfall.cost", 3.5, {"dataset": "digits"})
    [line] = (tmp_path / "traces" / METRICS_FILE).read_text().splitlines()
    value = json.loads(line)
    assert ("landfall.cost", 3.5, {"dataset": "digits"}) == (value["name"], value["value"], value["dimensions"])
    for _ in range(20):
        sink.count("landfall.history", 1, {"action": "shard_accepted"})
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "traces").iterdir()}
    assert {METRICS_FILE, "metrics.1.jsonl"} >= sizes.keys()
    assert max(sizes.values()) < 500


def item(world: World) -> tuple[Check, str]:
    """What the doctor says of the item that it sends, and its trace."""
    found = examine(world.services)
    (check,) = (each for each in found.checks if each.subject == ONE_ITEM)
    return check, found.telemetry_trace


def test_the_doctor_sends_one_item_in_a_trace_of_its_own() -> None:
    """The trace is stated, so that the command line can look for the item."""
    sink = MemorySink()
    world = traced_world(sink)
    (first, one), (_, another) = item(world), item(world)
    assert (CheckState.OK, "kept", [one, another]) == (
        first.state,
        first.says,
        [span.place.trace_id for span in sink.named("doctor")],
    )
    assert one != another
    assert [CheckState.WRONG, CheckState.ABSENT] == [
        item(traced_world(each))[0].state for each in (BrokenSink(), None)
    ]


def test_the_doctors_item_is_read_back_from_the_twins_folder(tmp_path: Path) -> None:
    """The item is deleted; a folder that cannot be written is reported."""
    world = traced_world(to_files(tmp_path / "traces"))
    assert (CheckState.OK, f"written to {tmp_path / 'traces'} and read back") == (
        item(world)[0].state,
        item(world)[0].says,
    )
    assert [] == list((tmp_path / "traces").iterdir())
    (tmp_path / "file").write_text("not a folder")
    broken, _ = item(traced_world(to_files(tmp_path / "file")))
    assert (CheckState.WRONG, f"traces cannot be written to {tmp_path / 'file'}: File exists") == (
        broken.state,
        broken.says,
    )


def test_without_a_setting_nothing_is_imported() -> None:
    """A cold start pays for OpenTelemetry only where telemetry goes somewhere."""
    from tests.architecture.trees import run_python

    code = "import sys, function_app.services, function_app.runs.submission; print('opentelemetry' in sys.modules)"
    assert "False" == run_python(code).stdout.strip(), sys.path
