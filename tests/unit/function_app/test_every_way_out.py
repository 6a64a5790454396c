"""Whatever a handler is given, and however it ends: a row says what came of it, or the error goes to the host.

The ways out are read from the source of the handlers and of what decides for them: a new `return` fails a test here
until some scenario takes it, and the scenario fails where nothing is on record afterwards.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from function_app.config.layouts import Layout
from function_app.domain.events import TrainingRequest
from function_app.domain.records import PERSON
from function_app.domain.run_states import RunState
from function_app.ingest import uploads
from function_app.runs import following as run_events
from function_app.runs import submission
from function_app.runs.cancellation import cancel_run
from function_app.runs.following import handle_run_event
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request
from function_app.services import TimeBudget
from shard_validation import SourceGoneError
from tests.support.long_shards import SmallChunkStore, Stopwatch
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content

FILES = [str(module.__file__) for module in (uploads, submission, run_events)]
FUNCTIONS = (
    *("handle_upload", "handle_request", "handle_run_event"),
    *("judge_shard", "_verdict_on", "_judge", "submit_run", "_to_submit", "_claimed_run"),
)
"""The handlers, and what decides in their place whether there is anything to do."""
CLOSED = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed")
FIRST = TRAIN_SHARDS[0]
PATH = f"{VERSION}/{FIRST}"
NO_QUOTA = "not enough quota"

Handling = Callable[[], object]
Way = tuple[str, int]
"""A function's name and the line of one of its returns."""


def ways_out() -> set[Way]:
    """Return every `return` of the functions."""
    trees = [ast.parse(Path(file).read_text(encoding="utf-8")) for file in FILES]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        (function.name, node.lineno)
        for function in functions
        if function.name in FUNCTIONS
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
    }


@contextmanager
def watched() -> Iterator[set[Way]]:
    """Note the ways out that are taken meanwhile."""
    taken: set[Way] = set()

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "return":
            taken.add((frame.f_code.co_name, frame.f_lineno))
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield taken
    finally:
        sys.settrace(before)


def rows(world: World) -> int:
    """Return the number of history lines and counted events on record."""
    counters = (run_events.OTHERS_EVENTS, uploads.OTHERS_UPLOADS)
    counted = sum(sum(world.ledger.counter_rows[name].values()) for name in counters)
    return sum(map(len, world.ledger.history_rows.values())) + counted


def upload(path: str, **members: str) -> Callable[[World], Handling]:
    """The event of an upload comes; nothing was there before but a shard."""

    def scenario(world: World) -> Handling:
        world.put(FIRST)
        return lambda: world.deliver(path, **members)

    return scenario


def marker(world: World) -> Handling:
    """A writer says that all files have come."""
    data = pipeline().data.model_copy(update={"layout": Layout(kind="marker")})
    world.change_pipeline(data=data)
    return lambda: world.deliver(f"{VERSION}/_SUCCESS")


def twice(world: World) -> Handling:
    """An event comes again."""
    world.upload_shards(FIRST)
    return lambda: world.deliver(PATH)


def of_another_set(world: World) -> Handling:
    """A shard contradicts the number of shards that the first one has claimed."""
    world.upload_shards(FIRST)
    path = world.put("train-00000-of-00009.tfrecord")
    return lambda: world.deliver(path)


def long_shard(world: World) -> Handling:
    """A validation ends with its budget, and another message goes on."""
    time_budget = TimeBudget(budget_s=2, checkpoint_every_s=1, min_bytes=1, seconds=Stopwatch())
    world.services = replace(world.services, shards=SmallChunkStore(world.shards), time_budget=time_budget)
    path = world.put(FIRST, shard_content(*[1] * 100))
    return lambda: world.deliver(path)


def deleted_while_read(world: World) -> Handling:
    """The blob goes away under the reader."""

    def gone(*_: object) -> Any:
        raise SourceGoneError("gone")

    world.put(FIRST)
    world.services = replace(world.services, validate=gone)
    return lambda: world.deliver(PATH)


def last_shard(world: World) -> Handling:
    """A version becomes whole."""
    world.upload_shards(*ALL_SHARDS[1:])
    world.put(FIRST)
    return lambda: world.deliver(PATH)


def closing(world: World) -> Handling:
    """A closing asks for its run."""
    world.upload_shards(*ALL_SHARDS)
    return lambda: handle_request(CLOSED, world.services)


def behind_many(world: World) -> Handling:
    """A closing asks for its run, and more earlier ones are not in line than one request puts there."""
    for number in range(submission.MAX_EARLIER + 1):
        world.upload_shards(*ALL_SHARDS, version=f"earlier-{number}")
    return closing(world)


def older_closing(world: World) -> Handling:
    """A closing asks for its run, and the data have changed."""
    world.upload_shards(*ALL_SHARDS)
    world.deliver(world.put(FIRST, shard_content(7, 7)))
    return lambda: handle_request(CLOSED, world.services)


def without_pipeline(world: World) -> Handling:
    """A closing asks for its run, and no pipeline says any more how to train."""
    world.upload_shards(*ALL_SHARDS)
    world.services = replace(world.services, pipelines={})
    return lambda: handle_request(CLOSED, world.services)


def pipeline_out_of_service(world: World) -> Handling:
    """A run is asked for while its pipeline's file is broken."""
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    world.break_pipeline()
    return lambda: handle_request(replace(CLOSED, run_id=run.run_id), world.services)


def upload_out_of_service(world: World) -> Handling:
    """A shard is uploaded while its pipeline's file is broken."""
    world.put(FIRST)
    world.break_pipeline()
    return lambda: world.deliver(PATH)


def submitted_already(world: World) -> Handling:
    """The request of a run comes again."""
    run = world.upload_version()
    return lambda: handle_request(replace(CLOSED, run_id=run.run_id), world.services)


def behind_another(*, again: bool) -> Callable[[World], Handling]:
    """A run waits for its turn; where ``again``, it is asked for while it does."""

    def scenario(world: World) -> Handling:
        world.upload_version()
        waiting, _ = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
        request = replace(CLOSED, run_id=waiting.run_id)
        if again:
            handle_request(request, world.services)
        return lambda: handle_request(request, world.services)

    return scenario


def too_early(world: World) -> Handling:
    """An attempt that waits for room is asked for before its time."""
    world.jobs.refusal = NO_QUOTA
    waiting = world.train()
    return lambda: handle_request(replace(CLOSED, run_id=waiting.run_id), world.services)


def refused(world: World) -> Handling:
    """Azure ML takes no job."""
    world.jobs.refusal = "there is no such cluster"
    return closing(world)


def bad_script(world: World) -> Handling:
    """The pipeline's own script cannot even be read."""
    train = pipeline().train.model_copy(update={"script": "scripts/mine.py"})
    world.change_pipeline(train=train)
    world.services = replace(world.services, read_script=lambda _: b"def broken(:")
    return closing(world)


def planned_on_older_data(world: World) -> Handling:
    """A run is about to be submitted, and its data have changed."""
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    world.deliver(world.put(FIRST, shard_content(7, 7)))
    return lambda: handle_request(replace(CLOSED, run_id=run.run_id), world.services)


def planned_on_deleted_data(world: World) -> Handling:
    """A run is about to be submitted, and one of its shards has been deleted."""
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    world.remove(f"digits/v1/{FIRST}")
    return lambda: handle_request(replace(CLOSED, run_id=run.run_id), world.services)


def canceled_before_azure_ml_had_it(world: World) -> Handling:
    """A handler died over the submission, and a person has canceled since."""
    run = world.upload_version()
    world.ledger.run_rows[run.run_id] = replace(run, state=RunState.SUBMITTING, claimed_until=None)
    world.jobs.forget(run.run_id)
    cancel_run(run.run_id, canceled_by=PERSON, reason="enough", services=world.services)
    world.ledger.run_rows[run.run_id] = replace(world.stands(run), state=RunState.SUBMITTING, claimed_until=None)
    return lambda: handle_request(replace(CLOSED, run_id=run.run_id), world.services)


def run_event(status: str) -> Callable[[World], Handling]:
    """Azure ML tells of a run of ours."""

    def scenario(world: World) -> Handling:
        run = world.upload_version()
        world.end_job(run, status) if status == "Completed" else world.jobs.become(run.run_id, status)
        return lambda: handle_run_event(run.run_id, world.services)

    return scenario


def run_event_of(run_id: str) -> Callable[[World], Handling]:
    """Azure ML tells of a run that is not on record."""
    return lambda world: lambda: handle_run_event(run_id, world.services)


SCENARIOS: Mapping[str, Callable[[World], Handling]] = {
    "a good shard": upload(PATH),
    "a shard that is gone": upload(f"{VERSION}/{TRAIN_SHARDS[1]}"),
    "no shard": upload(f"{VERSION}/README.md"),
    "stated counts": upload(f"{VERSION}/dataset.json"),
    "marker": marker,
    "another container": upload(PATH, container="other"),
    "a dataset of no pipeline": upload(f"letters/v1/{FIRST}"),
    "a deletion": upload(PATH, event_type="Microsoft.Storage.BlobDeleted"),
    "an empty beginning": upload(PATH, api="CreateFile"),
    "an event twice": twice,
    "a shard of another set": of_another_set,
    "a long shard": long_shard,
    "deleted while read": deleted_while_read,
    "the last shard": last_shard,
    "a closing": closing,
    "a closing after many others": behind_many,
    "an older closing": older_closing,
    "a closing without a pipeline": without_pipeline,
    "a run whose pipeline is out of service": pipeline_out_of_service,
    "an upload for a pipeline out of service": upload_out_of_service,
    "a run submitted already": submitted_already,
    "a run that must wait": behind_another(again=False),
    "a run that waits already": behind_another(again=True),
    "an attempt before its time": too_early,
    "a refused job": refused,
    "a bad script": bad_script,
    "a run planned on older data": planned_on_older_data,
    "a run planned on deleted data": planned_on_deleted_data,
    "canceled before Azure ML had it": canceled_before_azure_ml_had_it,
    "a new state of a run": run_event("Completed"),
    "a known state of a run": run_event("NotStarted"),
    "an unknown run": run_event_of("landfall-unknown-a1"),
    "a run of another project": run_event_of("theirs"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_came_of_it_is_on_record(name: str) -> None:
    """Everything that is handled leaves at least one history line or one counted event."""
    world = World()
    handle = SCENARIOS[name](world)
    before = rows(world)
    handle()
    assert rows(world) > before


def test_the_scenarios_take_every_way_out() -> None:
    """A way out that no scenario takes may be a silent one."""
    taken: set[Way] = set()
    for scenario in SCENARIOS.values():
        handle = scenario(World())
        with watched() as ways:
            handle()
        taken |= ways
    assert set() == ways_out() - taken
