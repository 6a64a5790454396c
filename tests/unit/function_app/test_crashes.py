"""A process that dies between any two effects: the story ends the same.

The points are not listed by hand. A trap counts every call of every port, before and after its effect, and the story
is told once for each of them, so a new effect is a new point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from function_app.domain.run_states import RunState
from function_app.runs.following import reconcile_run
from function_app.sweep.sweep import sweep
from shared.errors import LandfallError
from tests.support.world import ALL_SHARDS, WEBHOOK, World

PORTS = ("ledger", "shards", "quarantine", "documents", "run_outputs", "requests", "jobs", "models")


class Crash(Exception):
    """The process is gone; no step may hold it up."""


class Trap:
    """Lets the process die at one of the moments before and after a call."""

    def __init__(self, moment: int) -> None:
        self.moment = moment
        self.moments = 0
        self.last = ""

    def spring(self, name: str) -> None:
        """Count a moment, and die at the one."""
        self.moments += 1
        if self.moments == self.moment:
            self.last = name
            raise Crash(name)


class TrappedPort:
    """A port with a trap before and behind each call."""

    def __init__(self, port: Any, trap: Trap) -> None:
        self._port, self._trap = port, trap

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def trapped(*arguments: Any, **keywords: Any) -> Any:
            self._trap.spring(f"before {name}")
            answer = method(*arguments, **keywords)
            self._trap.spring(f"after {name}")
            return answer

        return trapped


def trapped_world(moment: int) -> tuple[World, Trap]:
    """A world whose process dies at one moment."""
    world, trap = World(), Trap(moment)
    ports = {name: TrappedPort(getattr(world, name), trap) for name in PORTS}
    notifiers = {"topic": TrappedPort(world.topic, trap), WEBHOOK: TrappedPort(world.people, trap)}
    world.services = replace(world.services, **ports, notifiers=notifiers)  # type: ignore[arg-type]
    return world, trap


def delivered(action: Callable[[], object]) -> None:
    """Deliver once; where the process dies, deliver again, as the queue does."""
    try:
        action()
    except Crash:
        action()


def lost(action: Callable[[], object]) -> None:
    """Deliver once; where the process dies, the delivery is gone with it."""
    try:
        action()
    except (Crash, LandfallError):
        return


def serve_requests(world: World, deliver: Callable[[Callable[[], object]], None]) -> None:
    """Handle the queue; a message is taken out once it is handled, or lost."""
    from function_app.domain.events import TrainingRequest
    from function_app.runs.submission import handle_request

    while world.requests.messages:
        request = TrainingRequest.from_json(world.requests.messages[0])
        deliver(lambda request=request: handle_request(request, world.services))  # type: ignore[misc]
        world.requests.messages.pop(0)


def tell_story(world: World, deliver: Callable[[Callable[[], object]], None]) -> None:
    """Land a version, train it, and let the timer look after what is left."""
    for name in ALL_SHARDS:
        path = world.put(name)
        deliver(lambda path=path: world.deliver(path))  # type: ignore[misc]
    serve_requests(world, deliver)
    for _ in range(4):
        for run in world.ledger.runs():
            if run.run_id in world.jobs.statuses:
                world.end_job(run)
            deliver(lambda run_id=run.run_id: reconcile_run(run_id, world.services))  # type: ignore[misc]
        world.clock.move(minutes=5)
        deliver(lambda: sweep(world.services))
        serve_requests(world, deliver)


NUM_MOMENTS = 0


def count_moments() -> int:
    """How many moments the undisturbed story has."""
    world, trap = trapped_world(0)
    tell_story(world, delivered)
    return trap.moments


@pytest.mark.parametrize("deliver", [delivered, lost])
def test_the_story_ends_the_same_wherever_the_process_dies(deliver: Callable[[Callable[[], object]], None]) -> None:
    """One job, one model, everybody told; redelivered or left to the timer."""
    num_moments = count_moments()
    assert num_moments > 100
    for moment in range(1, num_moments + 1):
        world, trap = trapped_world(moment)
        tell_story(world, deliver)
        run = world.only_run()
        ends = {
            "state": run.state,
            "told": run.notified_at is not None,
            "jobs": set(world.jobs.submissions),
            "models": len(world.models.registered),
            "keys": {n.key for n in (*world.topic.received, *world.people.received)},
            "generations": len(world.ledger.generation_rows),
        }
        expected = {
            "state": RunState.REGISTERED,
            "told": True,
            "jobs": {run.run_id},
            "models": 1,
            "keys": {f"{run.run_id}/registered/topic", f"{run.run_id}/registered/{WEBHOOK}"},
            "generations": 1,
        }
        assert expected == ends, f"after a crash {trap.last}, moment {moment} of {num_moments}"


def test_every_port_is_trapped() -> None:
    """A port that is added to the Services must be added here."""
    plain = {"pipelines", "workspace", "data_container", "clock", "validate", "sweep_grace", "notifiers"}
    plain |= {"max_concurrent_runs", "claim_lease", "validate_within", "slices", "read_script"}
    apart = {"dead_letter_sources", "queues"}  # nothing of this story dies for good
    assert {field.name for field in fields(World().services)} == plain | apart | set(PORTS)
