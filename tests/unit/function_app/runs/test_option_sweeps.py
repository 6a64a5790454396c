"""Option sweeps: their runs follow one another, the best one is registered, and one notification is sent."""

from __future__ import annotations

import math
from typing import Any

import pytest

from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import parse_clusters
from function_app.config.pipelines import Attempts
from function_app.domain.errors import NotFoundError, OptionSweepError, OverrideError, RunEndedError
from function_app.domain.option_sweeps import OptionSweep, option_sets
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.history import why
from function_app.runs.cancellation import cancel_run, cancel_sweep
from function_app.runs.option_sweeps import read_sweep, runs_of, verdict_of
from function_app.runs.requests import request_run
from function_app.runs.sweep_requests import SweepRequest, request_sweep, with_arguments
from function_app.sweep.sweep import run_sweep
from tests.support.world import ALL_SHARDS, PIPELINE, VERSION, World, own_script, read_pipeline
from tests.unit.function_app.web.client import call, look

RATES = {"learning_rate": [0.1, 0.03, 0.01]}
DONE, WORSE, BEST = RunState.NOT_REGISTERED, 0.96, 0.99


def swept_world(rates: dict[str, list[Any]] = RATES, **asked: Any) -> tuple[World, OptionSweep]:
    """Return a world with a whole version that is not trained on, on which a sweep was requested."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.requests.messages.clear()
    return world, ask(world, rates, **asked)


def ask(world: World, rates: dict[str, list[Any]] = RATES, **asked: Any) -> OptionSweep:
    """Request a sweep and serve the queue."""
    asked = {"max_node_hours": 3, "trigger": "http", **asked}
    request = SweepRequest(version=VERSION, option_sets=option_sets(rates, []), **asked)
    sweep, _ = request_sweep(request, world.services)
    world.serve_requests()
    return sweep


def finish(world: World, sweep: OptionSweep, *accuracies: float | str) -> list[RunRecord]:
    """End the sweep's runs, one after the other, with an accuracy or a status."""
    for accuracy in accuracies:
        run = runs_of(sweep, world.ledger)[-1]
        if isinstance(accuracy, str):
            world.end_job(run, accuracy)
        else:
            world.end_job(run, val_accuracy=accuracy)
        world.follow(run)
        world.serve_requests()
    return runs_of(sweep, world.ledger)


def registered(world: World) -> list[str]:
    """Return the runs whose models are registered."""
    return [run.run_id for run in world.ledger.run_rows.values() if run.state is RunState.REGISTERED]


def test_the_best_run_is_registered_and_the_others_are_not() -> None:
    """One model, one notification, and reasons that name the best run."""
    world, sweep = swept_world()
    runs = finish(world, sweep, WORSE, BEST, 0.5)
    assert [DONE, RunState.REGISTERED, DONE] == [run.state for run in runs]
    assert [runs[1].run_id] == registered(world)
    assert 1 == len(world.models.registered)
    assert f"run {runs[1].run_id} is better" in str(runs[0].reason)
    assert "val_accuracy: expected at least 0.95, got 0.5" in str(runs[2].reason)
    (sent,) = world.people.received
    assert "sweep_ended" == sent.outcome
    assert "learning_rate 0.03: val_accuracy 0.99, registered" in sent.content["text"]


def test_runs_follow_one_another_on_one_node_each() -> None:
    """A sweep has one active run, and its jobs differ in the option."""
    world, sweep = swept_world()
    assert 1 == len(world.jobs.submissions)
    finish(world, sweep, WORSE, WORSE)
    jobs = [world.jobs.submitted[run_id] for run_id in world.jobs.submissions]
    assert [1, 1, 1] == [job.num_nodes for job in jobs]
    assert ["0.1", "0.03", "0.01"] == [job.command.partition("--learning-rate ")[2].split()[0] for job in jobs]


def test_a_completed_run_says_that_it_waits_for_the_others() -> None:
    """Its page and `why` say so, and name the sweep."""
    world, sweep = swept_world()
    first = finish(world, sweep, BEST)[0]
    explained = why(first.run_id, world.services)
    assert (f"the other runs of option sweep {sweep.sweep_id}: once all have ended, the best one is registered",) == (
        explained.awaited
    )
    assert (
        f'run 1 of <a href="/compare?sweep={sweep.sweep_id}">{sweep.sweep_id}</a>'
        in look(world, f"/runs/{first.run_id}").text
    )


def test_no_run_is_registered_before_the_last_has_ended() -> None:
    """A completed run waits for the comparison, and keeps no other from its turn."""
    world, sweep = swept_world()
    first, second = finish(world, sweep, BEST)
    assert (RunState.COMPLETED, RunState.SUBMITTED, []) == (first.state, second.state, registered(world))
    run_sweep(world.services)
    assert [] == registered(world)


@pytest.mark.parametrize("ends", [("Failed", BEST, "Canceled"), (BEST, "Failed", "Failed")])
def test_runs_that_fail_leave_the_others_to_be_compared(ends: tuple[float | str, ...]) -> None:
    """The best of what is left is registered, and no notification is sent of each failure."""
    world, sweep = swept_world()
    finish(world, sweep, *ends)
    assert (1, 1) == (len(registered(world)), len(world.people.received))


def test_a_sweep_whose_runs_all_fail_says_so_once() -> None:
    """No model."""
    world, sweep = swept_world()
    finish(world, sweep, "Failed", "Failed", "Failed")
    (sent,) = world.people.received
    assert "no model is registered" in sent.content["text"]
    for _ in range(2):
        run_sweep(world.services)
    assert ([], 1) == (list(world.ledger.unfinished_runs()), len(world.people.received))


def test_a_sweep_whose_best_run_is_refused_says_why() -> None:
    """Azure ML refuses its model: message, API and `landfall compare` do not call it registered."""
    world, sweep = swept_world()
    world.models.refusal = "the workspace is read-only"
    runs = finish(world, sweep, WORSE, BEST, WORSE)
    (sent,) = world.people.received
    refused = f"val_accuracy 0.99; run {runs[1].run_id} is not registered: {runs[1].reason}"
    assert "the workspace is read-only" in str(runs[1].reason)
    assert f"no model is registered: the best of 3 runs that may be registered: {refused}." in sent.content["text"]
    found = call(world, "GET", f"/api/sweeps/{sweep.sweep_id}").json()
    assert (None, f"the best of 3 runs that may be registered: {refused}") == (found["best"], found["reason"])


def test_a_notification_of_runs_that_report_very_much_is_bounded() -> None:
    """Otherwise the outbox would refuse it, again and again."""
    world, sweep = swept_world({"learning_rate": [0.1, 0.05, 0.03, 0.01]}, max_node_hours=4)
    metrics = {f"{'metric' * 10}_{number}": 0.5 for number in range(180)}
    for _ in sweep.runs:
        run = runs_of(sweep, world.ledger)[-1]
        world.end_job(run, "Completed", val_accuracy=BEST, **metrics)
        world.follow(run)
        world.serve_requests()
    (sent,) = world.people.received
    assert ["registered", *["not_registered"] * 3] == [run["outcome"] for run in sent.content["runs"]]
    assert "metrics" not in sent.content["runs"][0]


def test_of_equal_runs_the_first_is_registered() -> None:
    """The decision therefore does not depend on the caller."""
    world, sweep = swept_world()
    runs = finish(world, sweep, BEST, BEST, WORSE)
    assert [runs[0].run_id] == registered(world)


def test_the_same_request_meets_its_sweep() -> None:
    """While it trains, and after its end."""
    world, sweep = swept_world()
    assert sweep == ask(world)
    finish(world, sweep, WORSE, BEST, WORSE)
    assert (sweep, 3) == (ask(world), len(world.jobs.submissions))


def test_a_forced_request_is_another_sweep() -> None:
    """Its runs have names of their own."""
    world, sweep = swept_world()
    finish(world, sweep, WORSE, BEST, WORSE)
    again = ask(world, forced_by="key-1")
    assert again.sweep_id != sweep.sweep_id
    assert not {run.run_id for run in again.runs} & {run.run_id for run in sweep.runs}


def test_a_key_leads_to_its_sweep_after_a_deployment() -> None:
    """It does not matter what the request would lead to by now."""
    world, sweep = swept_world(key="key-1")
    world.change_pipeline(train=world.services.pipelines["digits"].train.model_copy(update={"shm_size": "1g"}))
    assert sweep == ask(world, key="key-1")


def test_a_plain_request_is_not_answered_with_a_run_of_a_sweep() -> None:
    """That run may stay unregistered although it passes the gate."""
    world, sweep = swept_world()
    finish(world, sweep, WORSE, BEST, WORSE)
    _, is_new = request_run(VERSION, {"learning_rate": 0.03}, trigger="http", services=world.services)
    assert is_new


@pytest.mark.parametrize(
    ("rates", "asked", "message"),
    [
        (RATES, {"max_node_hours": 2.5}, "3 runs of 1 node with a time limit of 1 h may take 3 node-hours, but 2.5"),
        (RATES, {"num_nodes": 2}, "3 runs of 2 nodes .* may take 6 node-hours, but 3 are allowed"),
        (RATES, {"num_nodes": 1000, "max_node_hours": 1e4}, "num_nodes: expected 1 to"),
        ({"learning_rate": [0.1]}, {}, "a sweep has 2 to 32 runs; this one has 1"),
        ({"epochs": list(range(1, 40))}, {}, "a sweep has 2 to 32 runs; this one has 39"),
        ({"epochs": [2, 3, 2]}, {}, "runs 1 and 3 have the same options"),
        (
            RATES,
            {"overrides": {"learning_rate": 0.2}},
            "learning_rate is set for all runs and also differs among them",
        ),
    ],
)
def test_a_sweep_that_is_not_allowed_queues_nothing(
    rates: dict[str, list[Any]], asked: dict[str, Any], message: str
) -> None:
    """It is refused before anything is written."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.requests.messages.clear()
    with pytest.raises(OptionSweepError, match=message):
        ask(world, rates, **asked)
    assert ([], []) == (world.ledger.runs(), world.requests.messages)


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        ({"max_node_hours": 2}, "num_nodes 4: attempts.max_node_hours must be at least 4: num_nodes times timeout_s"),
        ({"max_cost": 12}, "num_nodes 4: attempts.max_cost must be at least 16, which one attempt may cost on"),
        ({"other_clusters": ("landfall-a100",)}, "train.num_nodes is 4, cluster landfall-a100 has at most 2 nodes"),
    ],
)
def test_more_nodes_than_the_pipeline_allows_for_an_attempt_are_refused(
    attempts: dict[str, Any], message: str
) -> None:
    """The pipeline's limits hold for the nodes of the sweep, on each cluster that an attempt may run on."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    priced = parse_clusters(
        b"landfall-gpu: {sizes: [{vm_size: Standard_NC24ads_A100_v4, price_per_node_hour: 4}]}\n"
        b"landfall-a100: {max_nodes: 2, sizes: [{vm_size: Standard_ND96asr_v4, price_per_node_hour: 27}]}\n",
        "clusters.yaml",
    )
    world.change_pipeline(Clusters(clusters=priced), attempts=Attempts(**attempts))
    with pytest.raises(OptionSweepError, match=message):
        ask(world, num_nodes=4, max_node_hours=80)
    assert [] == world.ledger.runs()


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"learning_rat": [0.1, 0.2]}, "learning_rat cannot be overridden; .* did you mean learning_rate?"),
        ({"learning_rate": [0.01, 5.0]}, "learning_rate: expected at most 0.1, got 5.0"),
        ({"learning_rate": [0.01, "fast"]}, "learning_rate: expected float, got 'fast'"),
    ],
)
def test_every_value_is_checked_before_anything_is_queued(rates: dict[str, list[Any]], message: str) -> None:
    """The rules are those of a single run."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    with pytest.raises(OverrideError, match=message):
        ask(world, rates)
    assert [] == world.ledger.runs()


def test_a_canceled_sweep_ends_with_its_runs_and_registers_nothing() -> None:
    """This includes the run that had completed; a repeated cancellation changes nothing."""
    world, sweep = swept_world()
    _, second = finish(world, sweep, BEST)
    for _ in range(2):
        cancel_sweep(sweep.sweep_id, reason="canceled by a person", services=world.services)
    world.finish(second, "Canceled")
    runs = runs_of(sweep, world.ledger)
    assert [DONE, RunState.CANCELED] == [run.state for run in runs]
    assert ["sweep_canceled"] == [sent.outcome for sent in world.people.received]
    assert ([], 2) == (registered(world), len(world.jobs.submissions))


def test_a_run_that_was_added_behind_a_cancellation_is_canceled() -> None:
    """The handler that added it had looked before."""
    world, sweep = swept_world()
    finish(world, sweep, BEST)
    second = runs_of(sweep, world.ledger)[1]
    world.ledger.run_rows.pop(second.run_id)
    cancel_sweep(sweep.sweep_id, reason="canceled by a person", services=world.services)
    world.ledger.run_rows[second.run_id] = sweep.row(2, world.clock())
    world.clock.move(hours=1)
    run_sweep(world.services)
    assert RunState.CANCELED is world.stands(second).state


def test_a_sweep_that_has_ended_cannot_be_canceled() -> None:
    """A sweep that does not exist is not found."""
    world, sweep = swept_world()
    finish(world, sweep, WORSE, BEST, WORSE)
    with pytest.raises(RunEndedError, match="it has ended: the best of 3 runs"):
        cancel_sweep(sweep.sweep_id, reason="canceled by a person", services=world.services)
    with pytest.raises(NotFoundError, match="option sweep sweep-x does not exist"):
        cancel_sweep("sweep-x", reason="canceled by a person", services=world.services)


def test_a_canceled_run_is_left_out_of_the_comparison() -> None:
    """The sweep goes on with the next one."""
    world, sweep = swept_world()
    first = runs_of(sweep, world.ledger)[0]
    cancel_run(first.run_id, canceled_by="person", reason="a person", services=world.services)
    world.finish(first, "Canceled")
    runs = finish(world, sweep, WORSE, BEST)
    assert [runs[2].run_id] == registered(world)


def test_changed_data_stop_a_sweep_at_what_was_trained() -> None:
    """No further run starts, and the model says that its data are superseded."""
    world, sweep = swept_world()
    first = runs_of(sweep, world.ledger)[0]
    world.end_job(first, val_accuracy=BEST)
    world.follow(first)
    world.change_shard(7)
    world.serve_requests()
    run_sweep(world.services)
    verdict = verdict_of(sweep.sweep_id, world.ledger)
    assert (first.run_id, 1) == (verdict and verdict.best, len(world.jobs.submissions))


def test_a_further_attempt_takes_what_is_left_of_its_run() -> None:
    """All runs and attempts together therefore stay within the limit."""
    world, sweep = swept_world()
    first = runs_of(sweep, world.ledger)[0]
    world.jobs.become(first.run_id, "Running")
    world.follow(first)
    world.clock.move(minutes=40)
    world.jobs.become(first.run_id, "Failed", error="The job was preempted")
    world.follow(first)
    attempt = runs_of(sweep, world.ledger)[0]
    assert (2, sweep.sweep_id, 1) == (attempt.attempt, attempt.sweep_id, attempt.sweep_number)
    assert 1199 <= attempt.spec["timeout_s"] <= 1200


def test_a_sweep_is_read_as_it_was_written() -> None:
    """It is stored in a document."""
    world, sweep = swept_world()
    assert sweep == read_sweep(sweep.sweep_id, world.documents)


def test_other_versions_are_not_kept_waiting_by_a_completed_run() -> None:
    """What waits may train between two runs of a sweep."""
    world = World()
    first = world.upload_version()
    world.finish(first, "Failed")
    sweep = ask(world)
    other = world.train(version="v2")
    assert RunState.PLANNED is other.state
    finish(world, sweep, BEST)
    assert RunState.SUBMITTED is world.stands(other).state
    world.finish(other)
    runs = finish(world, sweep, WORSE, WORSE)
    assert {other.run_id, runs[0].run_id} == set(registered(world))


ARGUMENTS = "arguments: [--lr, '0.1', --batch=16, --name, x, --fast]"
SCRIPT = own_script(PIPELINE).replace("train:\n", f"train:\n  {ARGUMENTS}\n")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": 0.03}, ("--lr", "0.03", "--batch=16", "--name", "x", "--fast")),
        ({"batch": 32}, ("--lr", "0.1", "--batch=32", "--name", "x", "--fast")),
    ],
)
def test_a_script_of_ones_own_gets_other_numbers(values: dict[str, Any], words: tuple[str, ...]) -> None:
    """They replace those in train.arguments."""
    assert words == with_arguments(read_pipeline(SCRIPT), values).train.arguments


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lrr": 0.03}, "lrr is not in train.arguments .* which has batch, fast, lr, name; did you mean lr?"),
        ({"lr": "$(rm -rf /)"}, "lr: expected a number in place of '0.1'"),
        ({"lr": True}, "lr: expected a number"),
        ({"lr": math.inf}, "lr: expected a number"),
        ({"name": 3}, "name: expected a number in place of 'x', got '3'"),
        ({"fast": 3}, "fast: expected a number in place of ''"),
    ],
)
def test_a_script_gets_nothing_but_numbers(values: dict[str, Any], message: str) -> None:
    """A text of a caller would become part of a command line."""
    with pytest.raises(OverrideError, match=message):
        with_arguments(read_pipeline(SCRIPT), values)


def test_a_negative_number_is_no_flag() -> None:
    """It is what a flag has, and may be replaced by another number."""
    script = read_pipeline(SCRIPT.replace("'0.1'", "'-0.1'"))
    assert ("--lr", "-0.2") == with_arguments(script, {"lr": -0.2}).train.arguments[:2]
    with pytest.raises(OverrideError, match="which has batch, fast, lr, name"):
        with_arguments(script, {"0.1": 3})
