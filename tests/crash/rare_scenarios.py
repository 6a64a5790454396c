"""Stories of people who interfere, runs that wait for each other, messages that die, and shards that take long."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from function_app.domain.errors import InvalidEventError, NotFoundError, RunEndedError, ServiceUnavailableError
from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.jobs import JobSpec, JobStatus, ModelRegistration
from function_app.domain.records import PERSON
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import asked_version, request_run
from function_app.sweep.dead_letters import collect_dead_letters, failures_on_record, replay
from function_app.testing.azure_ml import MemoryJobs, MemoryModels
from tests.crash.process import Step
from tests.crash.scenario import (
    Scenario,
    Serve,
    ask,
    end_jobs,
    retrain,
    run_jobs,
    swept,
    tell_of_runs,
    trained,
    upload,
    uploads,
)
from tests.support.long_shards import SmallChunkStore, long_world
from tests.support.synthetic import SYNTHETIC, add_synthetic_pipeline
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, World, shard_content

PAYLOAD = '{"no": "event"}'


class AwayJobs(MemoryJobs):
    """Takes no job until it is back."""

    away: bool = True

    def submit(self, spec: JobSpec) -> JobStatus:
        """See JobService."""
        if self.away:
            raise ServiceUnavailableError("Azure ML does not answer")
        return super().submit(spec)


class AwayModels(MemoryModels):
    """Takes no model until it is back."""

    away: bool = True

    def register(self, registration: ModelRegistration) -> None:
        """See ModelRegistry."""
        if self.away:
            raise ServiceUnavailableError("Azure ML does not answer")
        super().register(registration)


def away(world: World) -> None:
    """Azure ML takes neither jobs nor models."""
    world.jobs, world.models = AwayJobs(), AwayModels()
    world.services = replace(world.services, jobs=world.jobs, models=world.models)


def jobs_back(world: World) -> None:
    """Azure ML takes jobs again."""
    if isinstance(world.jobs, AwayJobs):
        world.jobs.away = False


def models_back(world: World) -> None:
    """Azure ML takes models again."""
    if isinstance(world.models, AwayModels):
        world.models.away = False


def failing(step: Step) -> Step:
    """Make a step of which the host would be told that it failed, and that it would repeat in the end."""

    def told(world: World) -> None:
        with suppress(ServiceUnavailableError):
            step(world)

    return told


def cancel_all(world: World) -> None:
    """A person cancels every run, as often as it takes."""
    for run in world.services.ledger.runs():
        with suppress(RunEndedError, NotFoundError):
            cancel_run(run.run_id, canceled_by=PERSON, reason="not needed", services=world.services)


def going(serve: Serve) -> list[Step]:
    """A version lands, and its job runs."""
    return [*uploads(*ALL_SHARDS), serve, run_jobs]


def canceled(_: Serve) -> list[Step]:
    """A person cancels a run that goes."""
    return [cancel_all, tell_of_runs]


def going_and_waiting(serve: Serve) -> list[Step]:
    """A version's job runs, and another version waits for its end."""
    return [*going(serve), *uploads(*ALL_SHARDS, version="v2"), serve]


def changed_twice(serve: Serve) -> list[Step]:
    """The data change twice while a run goes: what trains next is the second change."""
    return [step for label in (5, 6) for step in (*upload(TRAIN_SHARDS[0], shard_content(label)), serve)]


def canceled_early(serve: Serve) -> list[Step]:
    """A person cancels a run that Azure ML did not take."""
    return [*uploads(*ALL_SHARDS), failing(serve), cancel_all, jobs_back]


def waiting(serve: Serve) -> list[Step]:
    """A pipeline has at most one active run: the next version's waits, and is replaced by one that is newer."""
    more = [step for version in ("v2", "v3") for step in (*uploads(*ALL_SHARDS, version=version), serve)]
    return [*trained()(serve)[:-2], *more, *trained()(serve)[-2:], serve, serve]


def superseded(serve: Serve) -> list[Step]:
    """A run is asked for, and the data change before it is submitted."""
    changed = upload(TRAIN_SHARDS[0], shard_content(9, 9, 9))
    return [lambda world: ask(world, {"epochs": 5}), *changed, serve, serve]


def cancel_and_train(world: World) -> None:
    """A changed version is trained on again, whatever goes on the old one."""
    world.change_pipeline(on_change="cancel_and_train")
    away(world)
    jobs_back(world)


def trained_but_for_model(serve: Serve) -> list[Step]:
    """A run has ended, and its model cannot be registered yet."""
    return [failing(step) for step in trained()(serve)]


def canceled_late(serve: Serve) -> list[Step]:
    """The data change when their run has ended."""
    return [*upload(TRAIN_SHARDS[0], shard_content(9, 9, 9)), serve, models_back]


def replaced_while_going(serve: Serve) -> list[Step]:
    """The data change while their run goes."""
    return [*upload(TRAIN_SHARDS[0], shard_content(9, 9, 9)), serve, tell_of_runs]


def die(world: World) -> None:
    """The host gives up a message of which nobody can make anything."""
    world.give_up(PAYLOAD)


def fail(world: World) -> None:
    """A handler says why it cannot make anything of a message."""
    with suppress(InvalidEventError), failures_on_record(SHARD_UPLOADED, PAYLOAD, world.services):
        raise InvalidEventError("there is no event in it")


def replay_all(world: World) -> None:
    """A person sends every letter again; nobody is there to take them."""
    for letter in world.services.ledger.dead_letters():
        replay(letter.dead_letter_id, world.services)
    world.clear_uploads()


def buried(_: Serve) -> list[Step]:
    """A message dies, is replayed, and dies again."""
    collect: Step = lambda world: collect_dead_letters(world.services)  # noqa: E731 (one word for two places)
    return [fail, die, collect, replay_all, die, collect]


def ignore(offset: int) -> None:
    """Nobody acts while a shard is read."""
    del offset


def take_long(world: World) -> None:
    """Every shard takes several executions."""
    long, store = long_world()
    slow = SmallChunkStore(world.shards)
    slow.act = ignore
    world.services = replace(world.services, shards=slow, slices=long.services.slices)
    del store


def long(serve: Serve) -> list[Step]:
    """A shard takes several executions."""
    content = shard_content(*(number % 10 for number in range(60)))
    return [*upload(TRAIN_SHARDS[0], content), serve, *uploads(*ALL_SHARDS[1:]), serve]


def benchmarked(serve: Serve) -> list[Step]:
    """Somebody asks for a run on synthetic data, and it ends."""
    return [ask_benchmark, serve, run_jobs, lambda world: end_jobs(world, "Completed"), tell_of_runs]


def ask_benchmark(world: World) -> None:
    """Ask as the HTTP API does."""
    version = asked_version(SYNTHETIC, None, world.services)
    request_run(version, {}, trigger="http", services=world.services)


def long_and_missed(serve: Serve) -> list[Step]:
    """Nobody is told of shards that take several executions; the timer leaves them to the queue."""
    content = shard_content(*(number % 10 for number in range(60)))
    landed: list[Step] = [lambda world, name=name: world.put(name, content) for name in ALL_SHARDS]  # type: ignore[misc]
    return [*landed, lambda world: world.clock.move(hours=1), swept, serve]


RARE = (
    Scenario(name="canceled by a person", steps=canceled, prelude=going, survives_loss=False),
    Scenario(name="canceled while another waits", steps=canceled, prelude=going_and_waiting, survives_loss=False),
    Scenario(
        name="canceled and left to the timer",
        steps=lambda _: [tell_of_runs],
        prelude=lambda serve: [*going_and_waiting(serve), cancel_all],
    ),
    Scenario(name="changed twice", steps=changed_twice, prepare=retrain, prelude=going, survives_loss=False),
    Scenario(
        name="changed twice and left to the timer",
        steps=lambda _: [tell_of_runs],
        prepare=retrain,
        prelude=lambda serve: [*going(serve), *changed_twice(serve)],
    ),
    Scenario(name="canceled early", steps=canceled_early, prepare=away, survives_loss=False),
    Scenario(name="waiting", steps=waiting, survives_loss=False),  # an hour later, nothing waits any more
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
        steps=replaced_while_going,
        prepare=cancel_and_train,
        prelude=going,
        survives_loss=False,
    ),
    Scenario(name="buried", steps=buried, survives_loss=False),
    Scenario(name="benchmarked", steps=benchmarked, prepare=add_synthetic_pipeline, survives_loss=False),
    Scenario(name="long", steps=long, prepare=take_long),
    Scenario(name="long and missed", steps=long_and_missed, prepare=take_long),
)
