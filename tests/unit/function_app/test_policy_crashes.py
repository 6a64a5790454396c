"""Generations, attempts and cancellations under a process that dies between any two effects: each ends the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from function_app.domain.records import PERSON
from function_app.runs.cancellation import cancel_run
from function_app.runs.following import reconcile_run
from function_app.sweep.sweep import sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, World, shard_content
from tests.unit.function_app.test_crashes import delivered, lost, serve_requests, trapped_world

Deliver = Callable[[Callable[[], object]], None]
Story = Callable[[World, Deliver], None]


def land(world: World, deliver: Deliver, version: str = "v1") -> None:
    """Land a version, and serve the queue."""
    for name in ALL_SHARDS:
        path = world.put(name, version=version)
        deliver(lambda path=path: world.deliver(path))  # type: ignore[misc]
    serve_requests(world, deliver)


def change(world: World, deliver: Deliver, label: int) -> None:
    """Overwrite a shard, and serve the queue."""
    path = world.put(TRAIN_SHARDS[0], shard_content(label))
    deliver(lambda: world.deliver(path))
    serve_requests(world, deliver)


def end(world: World, deliver: Deliver, status: str, error: str | None = None) -> None:
    """Let whatever job is going end, and look at it."""
    for run in world.ledger.runs():
        job = world.jobs.statuses.get(run.run_id)
        if job is not None and job.status not in ("Completed", "Failed", "Canceled"):
            if status == "Completed":
                world.end_job(run)
            world.jobs.become(run.run_id, status, error=error)
            deliver(lambda run_id=run.run_id: reconcile_run(run_id, world.services))  # type: ignore[misc]


def look_after(world: World, deliver: Deliver, rounds: int = 5) -> None:
    """Let the timer come, jobs complete, and the queue be served."""
    for _ in range(rounds):
        world.clock.move(minutes=5)
        deliver(lambda: sweep(world.services))
        serve_requests(world, deliver)
        end(world, deliver, "Completed")


def preempted_once(world: World, deliver: Deliver) -> None:
    """A run is preempted and goes on."""
    land(world, deliver)
    if not world.jobs.submissions:
        world.clock.move(minutes=5)
        deliver(lambda: sweep(world.services))
        serve_requests(world, deliver)
        world.clock.move(minutes=5)
        deliver(lambda: sweep(world.services))
        serve_requests(world, deliver)
    end(world, deliver, "Failed", "The job was preempted")
    look_after(world, deliver)


def changed_twice(world: World, deliver: Deliver) -> None:
    """Two changes while the first run goes: the second one trains."""
    world.change_pipeline(on_change="train")
    land(world, delivered)
    change(world, deliver, 5)
    change(world, deliver, 6)
    look_after(world, deliver, 8)


def canceled_by_a_person(world: World, deliver: Deliver) -> None:
    """A person cancels, and repeats it until it is answered; what was armed does not start."""
    land(world, delivered)
    land(world, delivered, "v2")
    first = world.ledger.runs()[-1]
    delivered(lambda: cancel_run(first.run_id, canceled_by=PERSON, reason="enough", services=world.services))
    look_after(world, deliver)


def ends(world: World) -> dict[str, object]:
    """What must be the same: ends by attempt, words to people, models, places."""
    runs = world.ledger.runs()
    told = [n.key.partition("/")[2] for n in (*world.topic.received, *world.people.received)]
    return {
        "states": sorted((run.attempt, str(run.state)) for run in runs if run.state != "suppressed"),
        "told": sorted(set(told)),
        "keys": len({n.key for n in (*world.topic.received, *world.people.received)}),
        "models": len(world.models.registered),
        "board": world.ledger.board,
        "unfinished": [run.run_id for run in world.ledger.unfinished_runs()],
    }


@pytest.mark.parametrize("deliver", [delivered, lost])
@pytest.mark.parametrize("story", [preempted_once, changed_twice, canceled_by_a_person])
def test_each_story_ends_the_same_wherever_the_process_dies(story: Story, deliver: Deliver) -> None:
    """Redelivered, or left to the timer."""
    undisturbed, trap = trapped_world(0)
    story(undisturbed, delivered)
    expected = ends(undisturbed)
    assert ([], ()) == (expected["unfinished"], undisturbed.ledger.board.going)
    # Behind one call is before the next one: every second moment is all of them.
    for moment in range(1, trap.moments + 2, 2):
        world, sprung = trapped_world(moment)
        story(world, deliver)
        assert expected == ends(world), f"after a crash {sprung.last}, moment {moment} of {trap.moments}"
