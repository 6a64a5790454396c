"""Scenarios of cancellations, queued runs, dead letters and long validations."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from function_app.domain.errors import InvalidEventError, NotFoundError, RunEndedError, ServiceUnavailableError
from function_app.domain.events import CREATED, SHARD_UPLOADED
from function_app.domain.jobs import JobSpec, JobStatus, ModelRegistration
from function_app.domain.records import PERSON
from function_app.ingest.messages import handle_message, handle_passed_on
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import asked_version, request_run
from function_app.services import Turns
from function_app.sweep.dead_letters import collect_dead_letters, record_failure, replay
from function_app.sweep.missed_uploads import BUDGET_S
from function_app.sweep.requested import handle_sweep_request, latest_sweep, request_sweep
from function_app.testing.azure_ml import MemoryJobs, MemoryModels
from tests.crash.process import Step
from tests.crash.scenario import (
    Scenario,
    Serve,
    ask,
    deliver_run_events,
    end_jobs,
    retrain,
    run_jobs,
    swept,
    trained,
    upload,
    uploads,
)
from tests.support.long_shards import SmallChunkStore, Stopwatch, long_world
from tests.support.synthetic import SYNTHETIC, add_synthetic_pipeline
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, shard_content

PAYLOAD = '{"no": "event"}'


class AwayJobs(MemoryJobs):
    """Refuses jobs until `away` is False."""

    away: bool = True

    def submit(self, spec: JobSpec) -> JobStatus:
        """See JobService."""
        if self.away:
            raise ServiceUnavailableError("Azure ML does not answer")
        return super().submit(spec)


class AwayModels(MemoryModels):
    """Refuses models until `away` is False."""

    away: bool = True

    def register(self, registration: ModelRegistration) -> None:
        """See ModelRegistry."""
        if self.away:
            raise ServiceUnavailableError("Azure ML does not answer")
        super().register(registration)


def away(world: World) -> None:
    """Have Azure ML accept neither jobs nor models."""
    world.jobs, world.models = AwayJobs(), AwayModels()
    world.services = replace(world.services, jobs=world.jobs, models=world.models)


def jobs_back(world: World) -> None:
    """Have Azure ML accept jobs again."""
    if isinstance(world.jobs, AwayJobs):
        world.jobs.away = False


def models_back(world: World) -> None:
    """Have Azure ML accept models again."""
    if isinstance(world.models, AwayModels):
        world.models.away = False


def failing(step: Step) -> Step:
    """Return the step with its error suppressed, after which the host would deliver again."""

    def tolerant(world: World) -> None:
        with suppress(ServiceUnavailableError):
            step(world)

    return tolerant


def cancel_all(world: World) -> None:
    """Cancel every run as a person does."""
    for run in world.services.ledger.runs():
        with suppress(RunEndedError, NotFoundError):
            cancel_run(run.run_id, canceled_by=PERSON, reason="not needed", services=world.services)


def running(serve: Serve) -> list[Step]:
    """A version is uploaded, and its job runs."""
    return [*uploads(*ALL_SHARDS), serve, run_jobs]


def canceled(_: Serve) -> list[Step]:
    """A person cancels an active run."""
    return [cancel_all, deliver_run_events]


def running_and_queued(serve: Serve) -> list[Step]:
    """A version's job runs, and another version is queued."""
    return [*running(serve), *uploads(*ALL_SHARDS, version="v2"), serve]


def changed_twice(serve: Serve) -> list[Step]:
    """The data change twice during a run: the next run trains on the second change."""
    return [step for label in (5, 6) for step in (*upload(TRAIN_SHARDS[0], shard_content(label)), serve)]


def canceled_early(serve: Serve) -> list[Step]:
    """A person cancels a run that Azure ML has not accepted."""
    return [*uploads(*ALL_SHARDS), failing(serve), cancel_all, jobs_back]


def waiting(serve: Serve) -> list[Step]:
    """Two more versions are queued behind the active run; with `latest`, one replaces the other."""
    more = [step for version in ("v2", "v3") for step in (*uploads(*ALL_SHARDS, version=version), serve)]
    return [*trained()(serve)[:-2], *more, *trained()(serve)[-2:], serve, serve]


def keep_latest(world: World) -> None:
    """Let only the newest version wait."""
    world.change_pipeline(when_busy="latest")


def superseded(serve: Serve) -> list[Step]:
    """A run is requested, and the data change before it is submitted."""
    changed = upload(TRAIN_SHARDS[0], shard_content(9, 9, 9))
    return [lambda world: ask(world, {"epochs": 5}), *changed, serve, serve]


def cancel_and_train(world: World) -> None:
    """Have changed versions trained on again, and active runs of the old data canceled."""
    world.change_pipeline(on_change="cancel_and_train")
    away(world)
    jobs_back(world)


def trained_but_for_model(serve: Serve) -> list[Step]:
    """A run has ended, but its model cannot be registered yet."""
    return [failing(step) for step in trained()(serve)]


def canceled_late(serve: Serve) -> list[Step]:
    """The data change after the job of their run has ended."""
    return [*upload(TRAIN_SHARDS[0], shard_content(9, 9, 9)), serve, models_back]


def replaced_while_running(serve: Serve) -> list[Step]:
    """The data change while their run is active."""
    return [*upload(TRAIN_SHARDS[0], shard_content(9, 9, 9)), serve, deliver_run_events]


def die(world: World) -> None:
    """The host gives up a message that no handler can read."""
    world.give_up(PAYLOAD)


def fail(world: World) -> None:
    """A handler records why it cannot read a message."""
    record_failure(SHARD_UPLOADED, PAYLOAD, InvalidEventError("there is no event in it"), world.services)


def replay_all(world: World) -> None:
    """A person replays every dead letter; its message is then removed from the queue."""
    for letter in world.services.ledger.dead_letters():
        replay(letter.dead_letter_id, world.services)
    world.clear_uploads()


def dead_letters(_: Serve) -> list[Step]:
    """A message is given up, replayed, and given up again."""
    collect: Step = lambda world: collect_dead_letters(world.services)  # noqa: E731 (used twice below)
    return [fail, die, collect, replay_all, die, collect]


def ignore(offset: int) -> None:
    """Do nothing while a shard is read."""
    del offset


def take_long(world: World) -> None:
    """Let the validation of every shard take several executions."""
    long, store = long_world()
    slow = SmallChunkStore(world.shards)
    slow.act = ignore
    world.services = replace(world.services, shards=slow, time_budget=long.services.time_budget)
    del store


def long(serve: Serve) -> list[Step]:
    """The validation of a shard takes several executions."""
    content = shard_content(*(number % 10 for number in range(60)))
    return [*upload(TRAIN_SHARDS[0], content), serve, *uploads(*ALL_SHARDS[1:]), serve]


def one_shard_a_turn(world: World) -> None:
    """Have all shards of a dataset except the first one passed on to the second queue."""
    world.services = replace(
        world.services, turns=Turns(max_shards=1, taken_for=timedelta(seconds=1), seconds=no_time)
    )


def one_shard_a_message(world: World) -> None:
    """Leave time for only one shard of a message."""
    world.services = replace(world.services, turns=Turns(together_s=0.0))


def together(serve: Serve) -> list[Step]:
    """The shards of one message take long: all except the first one become separate messages."""
    events = ",".join(event_of(f"{VERSION}/{name}") for name in ALL_SHARDS)
    message = f"[{events}]".encode()
    return [*(upload(name)[0] for name in ALL_SHARDS), lambda world: handle_passed_on(message, world.services), serve]


def one_shard_at_once(world: World) -> None:
    """Handle the shards of a message one after the other."""
    world.services = replace(world.services, turns=Turns(small_at_once=1))


def recorded_together(serve: Serve) -> list[Step]:
    """One message has all shards, which are small: the verdicts of each bucket are recorded in one transaction."""
    events = [json.loads(event_of(f"{VERSION}/{name}")) for name in ALL_SHARDS]
    message = json.dumps([event | {"data": {"api": "PutBlob", "contentLength": 1}} for event in events]).encode()
    return [*(upload(name)[0] for name in ALL_SHARDS), lambda world: handle_passed_on(message, world.services), serve]


def no_time() -> float:
    """Return the time of a clock that stands still."""
    return 0.0


def passed_on(serve: Serve) -> list[Step]:
    """Many shards are uploaded at once: most go through the second queue, followed by the events behind them."""
    put = [upload(name)[0] for name in ALL_SHARDS]
    waiting = [wait_in_queue(path) for path in (*(f"{VERSION}/{name}" for name in ALL_SHARDS[2:]), "others/v1/x")]
    return [*put, *waiting, message_of(ALL_SHARDS[0]), message_of(ALL_SHARDS[1]), serve]


def wait_in_queue(path: str) -> Step:
    """Return the step that puts a message into the queue of uploads."""
    return lambda world: world.leave_upload(event_of(path))


def message_of(name: str) -> Step:
    """Return the step that handles a message of the queue of uploads."""
    return lambda world: handle_message(event_of(f"{VERSION}/{name}").encode(), world.services)


def event_of(path: str) -> str:
    """Return the message of an upload."""
    subject = f"/blobServices/default/containers/datasets/blobs/{path}"
    return json.dumps({"id": path, "eventType": CREATED, "subject": subject, "data": {"api": "PutBlob"}})


def benchmarked(serve: Serve) -> list[Step]:
    """A run on synthetic data is requested and ends."""
    return [ask_benchmark, serve, run_jobs, lambda world: end_jobs(world, "Completed"), deliver_run_events]


def ask_benchmark(world: World) -> None:
    """Request the run as the HTTP API does."""
    version = asked_version(SYNTHETIC, None, world.services)
    request_run(version, {}, trigger="http", services=world.services)


def long_and_missed(serve: Serve) -> list[Step]:
    """The events of long shards are lost; the timer puts the shards into the queue of uploads."""
    content = shard_content(*(number % 10 for number in range(60)))
    put: list[Step] = [lambda world, name=name: world.put(name, content) for name in ALL_SHARDS]  # type: ignore[misc]
    return [*put, lambda world: world.clock.move(hours=1), swept, serve]


def take_all_time(world: World) -> None:
    """Let the look at one dataset take the time of a sweep, and have another dataset behind it."""
    world.add_pipelines("letters")
    budget = replace(world.services.time_budget, seconds=Stopwatch(step_s=0.6 * BUDGET_S))
    world.services = replace(world.services, time_budget=budget)


def missed(_: Serve) -> list[Step]:
    """The events of a version are lost, and the timer finds the shards."""
    put: list[Step] = [lambda world, name=name: world.put(name) for name in ALL_SHARDS]  # type: ignore[misc]
    return [*put, lambda world: world.clock.move(hours=1), swept]


def swept_on_request(_: Serve) -> list[Step]:
    """The events of a version are lost, and a person requests a sweep, which finds the shards."""
    put: list[Step] = [lambda world, name=name: world.put(name) for name in ALL_SHARDS]  # type: ignore[misc]
    asked: list[Step] = [lambda world: request_sweep(world.services), serve_sweep_request]
    return [*put, lambda world: world.clock.move(hours=1), *asked]


def serve_sweep_request(world: World) -> None:
    """Deliver the message of the requested sweep, perhaps repeatedly."""
    sweep = latest_sweep(world.services)
    if sweep is not None:
        handle_sweep_request(json.dumps({"sweep_id": sweep.sweep_id}).encode(), world.services, num_deliveries=2)


RARE = (
    Scenario(name="swept on request", steps=swept_on_request),
    Scenario(name="passed on", steps=passed_on, prepare=one_shard_a_turn),
    Scenario(name="passed on together", steps=together, prepare=one_shard_a_message),
    Scenario(name="recorded together", steps=recorded_together, prepare=one_shard_at_once),
    Scenario(name="canceled by a person", steps=canceled, prelude=running, survives_loss=False),
    Scenario(
        name="canceled while another is queued", steps=canceled, prelude=running_and_queued, survives_loss=False
    ),
    Scenario(
        name="canceled and left to the timer",
        steps=lambda _: [deliver_run_events],
        prelude=lambda serve: [*running_and_queued(serve), cancel_all],
    ),
    Scenario(name="changed twice", steps=changed_twice, prepare=retrain, prelude=running, survives_loss=False),
    Scenario(
        name="changed twice and left to the timer",
        steps=lambda _: [deliver_run_events],
        prepare=retrain,
        prelude=lambda serve: [*running(serve), deliver_run_events, *changed_twice(serve)],
    ),
    Scenario(name="canceled early", steps=canceled_early, prepare=away, survives_loss=False),
    Scenario(name="waiting", steps=waiting, survives_loss=False),  # an hour later, nothing is queued any more
    Scenario(name="waiting for the latest", steps=waiting, prepare=keep_latest, survives_loss=False),
    Scenario(name="superseded", steps=superseded, prelude=trained(), survives_loss=False),
    Scenario(
        name="canceled late",
        steps=canceled_late,
        prepare=cancel_and_train,
        prelude=trained_but_for_model,
        survives_loss=False,
    ),
    Scenario(
        name="replaced",
        steps=replaced_while_running,
        prepare=cancel_and_train,
        prelude=running,
        survives_loss=False,
    ),
    Scenario(name="dead letters", steps=dead_letters, survives_loss=False),
    Scenario(name="benchmarked", steps=benchmarked, prepare=add_synthetic_pipeline, survives_loss=False),
    Scenario(name="long", steps=long, prepare=take_long),
    Scenario(name="long and missed", steps=long_and_missed, prepare=take_long),
    Scenario(name="missed by a sweep out of time", steps=missed, prepare=take_all_time),
)
