"""A scenario of the crash tests, and the steps that many scenarios share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from function_app.domain.records import RunRecord
from function_app.runs.following import handle_run_event
from function_app.runs.requests import request_run
from function_app.sweep.dead_letters import collect_dead_letters
from function_app.sweep.sweep import SweepError, sweep
from shared.errors import LandfallError
from tests.crash.process import Open, Step, in_memory, serve_messages
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, shard_content

Serve = Callable[[World], None]
ENDED = ("Completed", "Failed", "Canceled")
PREEMPTED, BAD_DATA = "The job was preempted", "exited with status code 10."
"""Errors with which a first attempt fails."""
ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What happens outside and what is delivered, until nothing is left to do."""

    name: str
    steps: Callable[[Serve], list[Step]]
    job_end: str = "Completed"
    """How every job ends: a status, ``forgotten`` for lost, or an error with which only the first attempt fails."""
    prepare: Step = lambda _: None
    prelude: Callable[[Serve], list[Step]] = lambda _: []
    """The steps before, which run undisturbed; another scenario interrupts them."""
    survives_loss: bool = True
    """Whether the result is the same if the interrupted step is never repeated, and only the timer follows."""

    def __str__(self) -> str:
        """Return the name, which is the id of its tests."""
        return self.name

    def begin(self, world: World, opened: Open = in_memory, serve: Serve = serve_messages) -> World:
        """Bring a new world to the first step that may be interrupted, and return it."""
        self.prepare(world)
        inside = opened(world)
        for step in self.prelude(serve):
            step(inside)
        return world

    def all_steps(self, serve: Serve) -> list[Step]:
        """Return the steps, each of which may be repeated; the last ones are the timer's."""
        return [*self.steps(serve), *[self.timer(serve)] * ROUNDS]

    def timer(self, serve: Serve) -> Step:
        """Return the step that lets an hour pass and fires the timer."""
        return lambda world: settle(world, self.job_end, serve)


def settle(world: World, job_end: str, serve: Serve) -> None:
    """Let an hour pass: the queue is served, jobs end, the timer fires, and what it sent is handled."""
    world.clock.move(hours=1)
    serve(world)
    end_jobs(world, job_end)
    collect_dead_letters(world.services)
    swept(world)
    serve(world)


def swept(world: World) -> None:
    """Fire the timer; errors are left to the next time."""
    try:
        sweep(world.services)
    except SweepError:
        return


def end_jobs(world: World, job_end: str) -> None:
    """End every active job."""
    for run in world.ledger.runs() or world.services.ledger.runs():
        status = world.jobs.statuses.get(run.run_id)
        if status is not None and status.status not in ENDED:
            _end_job(world, run, job_end)


def _end_job(world: World, run: RunRecord, job_end: str) -> None:
    world.jobs.logs[run.run_id] = "a log"
    if job_end == "forgotten":
        world.jobs.forget(run.run_id)
    elif job_end in ENDED:
        world.end_job(run, job_end)
    elif run.attempt == 1:
        world.jobs.become(run.run_id, "Failed", error=job_end)
    else:
        world.end_job(run, "Completed")


def uploads(*names: str, version: str = "v1") -> list[Step]:
    """Upload shards and deliver their events."""
    return [step for name in names for step in upload(name, version=version)]


def upload(name: str, content: bytes | None = None, version: str = "v1") -> list[Step]:
    """Upload a shard and deliver its event."""
    path = f"{VERSION.dataset}/{version}/{name}"
    return [lambda world: world.put(name, content, version), lambda world: world.deliver(path)]


def deliver_run_events(world: World) -> None:
    """Deliver an Azure ML event for every run."""
    for run in world.services.ledger.runs():
        handle_run_event(run.run_id, world.services)


def trained(job_end: str = "Completed") -> Callable[[Serve], list[Step]]:
    """A version is uploaded and trained on; events report the start and the end of the job."""

    def steps(serve: Serve) -> list[Step]:
        return [
            *uploads(*ALL_SHARDS),
            serve,
            run_jobs,
            deliver_run_events,
            lambda w: end_jobs(w, job_end),
            deliver_run_events,
        ]

    return steps


def run_jobs(world: World) -> None:
    """Start every submitted job."""
    for name in world.jobs.statuses:
        world.jobs.become(name, "Running")


def changed(serve: Serve) -> list[Step]:
    """A shard changes after its version was trained on."""
    again = upload(TRAIN_SHARDS[0], shard_content(9, 9, 9))
    return [*again, serve]


def asked(serve: Serve) -> list[Step]:
    """A person requests another run of a version that was trained on."""
    return _asked_by(lambda w: ask(w, {"epochs": 5}), serve)


def keyed(serve: Serve) -> list[Step]:
    """A person requests another run with an Idempotency-Key."""
    return _asked_by(lambda w: ask(w, {"epochs": 5}, key="key-2"), serve)


def _asked_by(request: Step, serve: Serve) -> list[Step]:
    return [
        request,
        serve,
        run_jobs,
        lambda w: end_jobs(w, "Completed"),
        deliver_run_events,
    ]


def ask(world: World, overrides: dict[str, Any], key: str | None = None) -> None:
    """Request a run as the HTTP API does; the request for an incomplete version is refused."""
    try:
        request_run(VERSION, overrides, trigger="http", services=world.services, key=key)
    except LandfallError:
        return


def retrain(world: World) -> None:
    """Have changed versions trained on again."""
    world.change_pipeline(on_change="train")
