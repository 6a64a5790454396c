"""Runs that take longer than they should."""

from __future__ import annotations

from dataclasses import replace

from function_app.config.pipelines import Attempts, Watch
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.sweep.sweep import run_sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World


def started(status: str) -> tuple[World, RunRecord]:
    """A world with a submitted run whose job has a status."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, status)
    return world, run


def notified_after(world: World, outcome: str, **duration: float) -> list[str]:
    """Let time pass and sweep; return what the people received about it in all."""
    world.clock.move(**duration)
    assert () == run_sweep(world.services).problems
    return [n.content["text"] for n in world.people.received if n.outcome == outcome]


def test_a_run_that_waits_too_long_is_notified_with_what_to_ask_for() -> None:
    """The nodes, their size, the vCPUs that the quota is counted in, and that the size is retired."""
    world, run = started("Queued")
    assert [] == notified_after(world, "run_waiting", minutes=110)
    (text,) = notified_after(world, "run_waiting", minutes=20)
    assert f"Run {run.run_id} of digits/v1 has waited 2 h 10 min for 2 nodes of Standard_NC6s_v3" in text
    assert "2 nodes, 12 vCPUs in all" in text
    assert "its successor is Standard_NC40ads_H100_v5" in text


def test_a_warning_names_the_size_of_the_attempt_that_it_is_about() -> None:
    """A later attempt may train on another size; its quota is what people have to ask for."""
    world, run = started("Queued")
    world.change_pipeline(attempts=Attempts(other_clusters=("landfall-a100",)))
    world.ledger.run_rows[run.run_id] = replace(run, spec={**run.spec, "compute": "landfall-a100"})
    (text,) = notified_after(world, "run_waiting", minutes=130)
    assert ("2 nodes of Standard_ND96asr_v4 on cluster landfall-a100" in text, "NC6s" in text) == (True, False)
    assert "2 nodes, 192 vCPUs in all" in text


def test_a_waiting_run_is_notified_once() -> None:
    """It continues to wait: the notification stops nothing."""
    world, run = started("Queued")
    counts = [len(notified_after(world, "run_waiting", hours=3)) for _ in range(3)]
    assert ([1, 1, 1], RunState.QUEUED) == (counts, world.ledger.run_rows[run.run_id].state)


def test_a_running_run_waits_for_nothing() -> None:
    """Its own time limit is Azure ML's to keep."""
    world, _ = started("Running")
    assert [] == notified_after(world, "run_waiting", hours=30)


def test_the_pipeline_says_how_long_a_run_may_wait() -> None:
    """The unit is seconds."""
    world, _ = started("Queued")
    world.change_pipeline(watch=Watch(queued_after_s=60))
    assert 1 == len(notified_after(world, "run_waiting", minutes=2))


def test_a_run_that_does_not_respond_is_notified_after_a_while() -> None:
    """It may come back; until then the clock runs from the first sight of it."""
    world, run = started("Running")
    notified_after(world, "run_silent", minutes=5)
    world.jobs.become(run.run_id, "NotResponding")
    counts = [len(notified_after(world, "run_silent", minutes=minutes)) for minutes in (5, 25, 10, 60)]
    assert [0, 0, 1, 1] == counts


def test_an_unknown_state_is_notified_by_its_name() -> None:
    """The run is not followed meanwhile; control characters do not reach a terminal."""
    world, run = started("Running")
    notified_after(world, "run_silent", minutes=5)
    world.jobs.become(run.run_id, "Hiber\nnating" + "x" * 200)
    for minutes in (5, 35):
        texts = notified_after(world, "run_silent", minutes=minutes)
    (text,) = texts
    assert (True, RunState.RUNNING) == ("has been Hiber" in text, world.stands(run).state)
    assert "a state that Landfall does not know, for 35 min: its nodes may be gone" in text
    assert (True, True) == ("\n" not in text, len(text) < 500)


def test_a_run_that_is_prepared_for_too_long_is_notified_about_its_image() -> None:
    """It waits for no nodes, so its quota does not matter; when it is queued, the usual warning follows."""
    world, run = started("Preparing")
    assert [] == notified_after(world, "run_waiting", minutes=25)
    (text,) = notified_after(world, "run_waiting", minutes=10)
    assert ("builds or pulls the image" in text, "quota" in text) == (True, False)
    world.jobs.become(run.run_id, "Queued")
    texts = notified_after(world, "run_waiting", minutes=100)
    assert ([True, False], 2) == (["image" in each for each in texts], len(texts))


def test_a_run_that_responds_again_restarts_the_clock() -> None:
    """Two silences of twenty minutes are none of thirty."""
    world, run = started("Running")
    notified_after(world, "run_silent", minutes=5)
    for status in ("NotResponding", "Running", "NotResponding"):
        world.jobs.become(run.run_id, status)
        found = [notified_after(world, "run_silent", minutes=minutes) for minutes in (5, 15)]
    assert [[], []] == found
    assert ["run_not_responding", "run_not_responding_over", "run_not_responding"] == [
        action for action in world.actions(run.run_id) if "not_responding" in action
    ]


def test_a_run_whose_cluster_is_gone_is_lost_with_the_reason() -> None:
    """Its job is canceled, so that a new cluster of the same name does not start it."""
    world, run = started("Queued")
    world.jobs.deleted_computes.add("landfall-gpu")
    notified_after(world, "lost", minutes=5)
    before = world.only_run().state
    (text,) = notified_after(world, "lost", minutes=11)
    assert (RunState.QUEUED, RunState.LOST) == (before, world.only_run().state)
    assert "cluster landfall-gpu has been missing from the workspace since 2026-11-20T12:05:00" in text
    assert "Canceled" == world.jobs.statuses[run.run_id].status


def test_a_cluster_that_is_back_in_time_loses_nothing() -> None:
    """It was only created again."""
    world, run = started("Queued")
    for gone in (True, False, True):
        world.jobs.deleted_computes = {"landfall-gpu"} if gone else set()
        notified_after(world, "lost", minutes=9)
    assert RunState.QUEUED == world.ledger.run_rows[run.run_id].state


def test_a_silent_run_without_its_cluster_is_lost_too() -> None:
    """Running is what Azure ML said before."""
    world, run = started("Running")
    notified_after(world, "lost", minutes=5)
    world.jobs.become(run.run_id, "NotResponding")
    world.jobs.deleted_computes.add("landfall-gpu")
    counts = [len(notified_after(world, "lost", minutes=minutes)) for minutes in (5, 11)]
    assert [0, 1] == counts


def stalled(world: World, hours: float) -> list[str]:
    """Let time pass and sweep; return what the people received about it in all."""
    world.clock.move(hours=hours)
    run_sweep(world.services)
    return [n.content["text"] for n in world.people.received if n.outcome == "version_stalled"]


def test_a_version_that_waits_too_long_is_notified_with_its_missing_shards() -> None:
    """A day, unless the pipeline says otherwise."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    assert [] == stalled(world, 23)
    (text,) = stalled(world, 2)
    expected = (
        "digits/v1 is incomplete, and no shard has arrived for 1 d 1 h. Missing: train-00001-of-00002, validation-*"
    )
    assert expected == text[: len(expected)]


def test_a_stalled_version_is_notified_once() -> None:
    """The number of sweeps does not matter; if another shard arrives and then nothing more, there is another one."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    counts = [len(stalled(world, 25)) for _ in range(3)]
    world.upload_shards(TRAIN_SHARDS[1])
    counts += [len(stalled(world, 25)) for _ in range(2)]
    assert [1, 1, 1, 2, 2] == counts


def test_a_rejected_shard_is_missing_too() -> None:
    """No one has to look for the difference in a night."""
    world = World()
    world.upload_shards(*ALL_SHARDS[1:])
    world.deliver(world.put(TRAIN_SHARDS[0], b"<html>"))
    (text,) = stalled(world, 25)
    assert "Missing: train-00000-of-00002." in text


def test_the_pipeline_says_how_long() -> None:
    """The unit is seconds."""
    world = World()
    world.change_pipeline(watch=Watch(stalled_after_s=3600))
    world.upload_shards(TRAIN_SHARDS[0])
    assert (0, 1) == (len(stalled(world, 0.9)), len(stalled(world, 0.2)))


def test_a_whole_version_is_not_stalled() -> None:
    """It has closed, and whatever comes next is the run's."""
    world = World()
    world.upload_version()
    assert ([], []) == (stalled(world, 1), [line for line in world.actions(VERSION) if line == "version_stalled"])


def test_a_closed_version_whose_new_shard_was_rejected_is_notified() -> None:
    """Its data as it is now cannot be trained on."""
    world = World()
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], b"<html>"))
    assert 1 == len(stalled(world, 25))
