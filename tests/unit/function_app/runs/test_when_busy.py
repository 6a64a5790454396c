"""Several versions of one pipeline close at once: each is trained in its turn, or only the newest one."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from function_app.domain.errors import LedgerConflictError
from function_app.domain.events import TrainingRequest
from function_app.domain.outcomes import NO_LINKS, explained
from function_app.domain.records import PERSON, Generation, RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.runs import submission
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import sweep
from function_app.testing.ledger import MemoryLedger
from tests.support.threads import at_once
from tests.support.world import ALL_SHARDS, World, pipeline

TEN = [f"v{number}" for number in range(10)]


def busy_world(when_busy: str = "queue", on_change: str = "notify") -> World:
    """A world whose pipeline says what becomes of versions that close while another one is trained."""
    world = World()
    world.change_pipeline(when_busy=when_busy, on_change=on_change)
    return world


def close(world: World, *versions: str) -> list[TrainingRequest]:
    """Close versions, the first one first; return their requests, which no handler has got yet."""
    for version in versions:
        world.upload_shards(*ALL_SHARDS, version=version)
    requests = [TrainingRequest.from_json(message) for message in world.requests.messages]
    world.requests.messages.clear()
    return requests


def train_all(world: World) -> list[str]:
    """End every job as it comes; return the versions in the order of their submission."""
    while going := [run for run in world.ledger.runs() if run.state is RunState.SUBMITTED]:
        assert 1 == len(going)
        world.finish(going[0])
    return [world.ledger.run_rows[name].dataset_version.version for name in world.jobs.submissions]


def messages(world: World, outcome: str) -> list[tuple[str, str]]:
    """Return which versions people got such a message of, with its text."""
    return [(n.subject, str(n.content["text"])) for n in world.topic.received if n.outcome == outcome]


def run_of(world: World, version: str) -> RunRecord:
    """Return the newest run of a version."""
    return next(run for run in world.ledger.runs() if run.dataset_version.version == version)


@pytest.mark.parametrize("seed", range(5))
def test_ten_versions_at_once_are_all_trained_in_the_order_of_closing(seed: int) -> None:
    """Requests may arrive in any order and twice; never do two versions train at a time."""
    world = busy_world()
    requests = close(world, *TEN) * 2
    random.Random(seed).shuffle(requests)  # noqa: S311 (an order, not a secret)
    for request in requests:
        handle_request(request, world.services)
    assert TEN == train_all(world)
    assert [("registered", 10)] == [
        (str(state), sum(run.state is state for run in world.ledger.runs())) for state in {RunState.REGISTERED}
    ]


def test_handlers_at_the_same_time_keep_the_order() -> None:
    """Ten threads, one line."""
    world = busy_world()
    at_once([partial(handle_request, request, world.services) for request in close(world, *TEN)])
    world.serve_requests()
    assert TEN == train_all(world)


def test_a_version_whose_request_is_late_or_lost_keeps_its_turn() -> None:
    """The next closing puts it in line first, also where the handler died after its claim or after its row."""
    for died_after in ("nothing", "claim", "row"):
        world = busy_world()
        first, _ = close(world, "v0", "v1")
        planned = planned_of(world, first)
        if died_after != "nothing":
            world.ledger.claim_auto_run(world.ledger.generations(first.dataset_version)[0], planned.run_id)
        if died_after == "row":
            world.ledger.add_run(planned)
        (request,) = close(world, "v2")
        handle_request(request, world.services)
        assert ["v0", "v1", "v2"] == train_all(world)


def planned_of(world: World, request: TrainingRequest) -> RunRecord:
    """Return the row that a request leads to."""
    other = busy_world()
    other.ledger.generation_rows = dict(world.ledger.generation_rows)
    other.shards = world.shards
    other.services = replace(other.services, shards=world.shards, documents=world.documents)
    other.ledger.shard_rows = dict(world.ledger.shard_rows)
    handle_request(request, other.services)
    return replace(other.only_run(), state=RunState.PLANNED, submitted_at=None, data_etags=None, claimed_until=None)


def test_a_version_that_cannot_be_put_in_line_holds_up_no_other() -> None:
    """Its claim fails; what closed after it is trained."""
    world = busy_world()
    world.ledger = OneCannotBeClaimed()
    world.services = replace(world.services, ledger=world.ledger)
    _, request = close(world, "v0", "v1")
    handle_request(request, world.services)
    assert ["v1"] == train_all(world)


class OneCannotBeClaimed(MemoryLedger):
    """Fails for one version."""

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """See Ledger."""
        if generation.dataset_version.version == "v0":
            raise LedgerConflictError("v0 cannot be claimed")
        return super().claim_auto_run(generation, run_id)


def test_a_handler_puts_a_limited_number_of_versions_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a version that comes after more of them is left to the sweep, so that the order is kept."""
    monkeypatch.setattr(submission, "MAX_EARLIER", 2)
    world = busy_world()
    *_, last = close(world, *TEN)
    handle_request(last, world.services)
    assert (2, ["request_suppressed"]) == (len(world.ledger.run_rows), world.actions(last.dataset_version)[-1:])
    for _ in range(6):
        world.clock.move(minutes=5)
        sweep(world.services)
        world.requests.messages.reverse()
        world.serve_requests()
    assert TEN == train_all(world)


def test_a_further_attempt_goes_before_the_versions_that_wait() -> None:
    """A run keeps its place during all its attempts, also while it waits for nodes."""
    world = busy_world()
    for request in close(world, "v0", "v1"):
        handle_request(request, world.services)
    first = run_of(world, "v0")
    world.jobs.become(first.run_id, "Failed", error="quota exceeded: not enough cores")
    world.follow(first)
    world.serve_requests()
    assert [first.run_id] == world.jobs.submissions
    world.clock.move(hours=1)
    sweep(world.services)
    assert [first.run_id, f"{first.logical_run}-a2"] == world.jobs.submissions
    assert ["v0", "v0", "v1"] == train_all(world)


def test_a_failed_run_gives_its_place_to_the_next_version_at_once() -> None:
    """The end of the run does this, without a sweep."""
    world = busy_world()
    for request in close(world, "v0", "v1", "v2"):
        handle_request(request, world.services)
    world.finish(run_of(world, "v0"), "Failed")
    assert RunState.SUBMITTED == run_of(world, "v1").state


def test_a_version_that_waits_says_for_what_and_is_notified_once() -> None:
    """Status, why and the message name the run and the number of versions before it; no sweep repeats it."""
    world = busy_world()
    for request in close(world, "v0", "v1", "v2", "v3"):
        handle_request(request, world.services)
    active, last = run_of(world, "v0"), run_of(world, "v3")
    for _ in range(3):
        world.clock.move(minutes=5)
        sweep(world.services)
        world.serve_requests()
    expected = f"waits for run {active.run_id}; 2 versions before it"
    described = describe_version(last.dataset_version, world.services)
    assert (f"run {last.run_id}: its turn: it {expected}",) == why("digits/v3", world.services).awaited
    assert ["digits/v1", "digits/v2", "digits/v3"] == [subject for subject, _ in messages(world, "version_waiting")]
    assert f"digits/v3 {expected}. Run {last.run_id} starts by itself." == messages(world, "version_waiting")[-1][1]
    assert described.queue.is_queued(last.logical_run)


def test_a_version_whose_shards_change_while_it_waits_is_notified_once() -> None:
    """It keeps its place, and its newer generation is trained."""
    world = busy_world(on_change="train")
    for request in close(world, "v0", "v1", "v2"):
        handle_request(request, world.services)
    for label in (5, 6):
        changed = world.change_shard(label, version="v1")
    assert ["v0", "v1", "v2"] == train_all(world)
    assert (3, RunState.REGISTERED) == (changed.generation, world.stands(changed).state)
    assert (2, []) == (len(messages(world, "version_waiting")), messages(world, "version_dropped"))


@pytest.mark.parametrize("seed", range(3))
def test_with_latest_the_newest_of_ten_versions_is_trained_and_the_others_are_notified(seed: int) -> None:
    """The one that is running goes on; each of the others gets one message with the reason and the way out."""
    world = busy_world("latest")
    requests = close(world, *TEN) * 2
    random.Random(seed).shuffle(requests)  # noqa: S311 (an order, not a secret)
    for request in requests:
        handle_request(request, world.services)
    assert ["v0", "v9"] == train_all(world)
    dropped = messages(world, "version_dropped")
    assert {f"digits/{version}" for version in TEN[1:-1]} == {subject for subject, _ in dropped}
    assert 8 == len(dropped)
    for subject, text in dropped:
        run = run_of(world, subject.partition("/")[2])
        assert (RunState.SUPPRESSED, True) == (
            run.state,
            "took its place in line (when_busy: latest)" in str(run.reason),
        )
        action = explained("version_dropped", subject, {}, NO_LINKS)["action"]
        assert f"{subject} is not trained on: {run.reason}. {action}." == text
        assert f"To train on it: landfall submit {subject}" == action
        assert "version_dropped" in world.actions(subject)


def test_a_dropped_version_can_be_asked_for_again() -> None:
    """Its message says so."""
    world = busy_world("latest")
    for request in close(world, "v0", "v1", "v2"):
        handle_request(request, world.services)
    train_all(world)
    again, is_new = request_run(run_of(world, "v1").dataset_version, {}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.SUBMITTED) == (is_new, world.stands(again).state)


def test_versions_that_wait_are_dropped_by_the_sweep_after_a_change_to_latest() -> None:
    """The pipeline's file decides, not what it was when they closed."""
    world = busy_world()
    for request in close(world, "v0", "v1", "v2", "v3"):
        handle_request(request, world.services)
    world.change_pipeline(when_busy="latest")
    world.clock.move(minutes=5)
    sweep(world.services)
    assert ["digits/v1", "digits/v2"] == [subject for subject, _ in messages(world, "version_dropped")]
    assert ["v0", "v3"] == train_all(world)


def test_a_person_who_cancels_a_run_stops_it_and_no_other_version() -> None:
    """The next one in line is trained; with latest nothing follows, and its people learn that."""
    for when_busy, states in (
        ("queue", [RunState.CANCELED, RunState.SUBMITTED]),
        ("latest", [RunState.CANCELED, RunState.SUPPRESSED]),
    ):
        world = busy_world(when_busy)
        for request in close(world, "v0", "v1"):
            handle_request(request, world.services)
        first = run_of(world, "v0")
        cancel_run(first.run_id, canceled_by=PERSON, reason="enough", services=world.services)
        world.serve_requests()
        assert states == [run_of(world, version).state for version in ("v0", "v1")]
        dropped = [subject for subject, _ in messages(world, "version_dropped")]
        assert ([] if when_busy == "queue" else ["digits/v1"]) == dropped


def test_two_requests_for_one_version_have_one_place() -> None:
    """A version waits once, however often it is requested: the last request counts, and no version is given up."""
    world = busy_world()
    for request in close(world, "v0", "v1"):
        handle_request(request, world.services)
    version = run_of(world, "v1").dataset_version
    for key in range(20):
        request_run(version, {}, trigger="http", services=world.services, forced_by=f"k{key}")
    world.serve_requests()
    assert (1, []) == (len(world.ledger.queue.queued), messages(world, "version_dropped"))
    assert ["v0", "v1"] == train_all(world)


def test_runs_of_other_pipelines_hold_up_a_version_only_at_the_limit() -> None:
    """It says so; the limit is kept while versions of two pipelines wait."""
    world = busy_world()
    world.add_pipelines("other")
    world.services = replace(world.services, max_concurrent_runs=1)
    world.train(dataset="other")
    for request in close(world, "v0", "v1"):
        handle_request(request, world.services)
    assert ["digits/v0 waits for runs of other pipelines: active runs are limited to 1; it is next"] == [
        text.partition(". Run ")[0] for subject, text in messages(world, "version_waiting") if subject == "digits/v0"
    ]
    assert ["v1", "v0", "v1"] == train_all(world)


def test_a_message_that_was_not_written_is_made_up_for() -> None:
    """The handler died between the queue and the outbox: the sweep writes it, once."""
    world = busy_world()
    for request in close(world, "v0", "v1"):
        handle_request(request, world.services)
    world.ledger.notification_rows.clear()
    world.ledger.history_rows["digits/v1"].clear()
    world.topic.received.clear()
    for _ in range(2):
        world.clock.move(minutes=5)
        sweep(world.services)
    assert ["digits/v1"] == [subject for subject, _ in messages(world, "version_waiting")]


def test_the_first_version_that_was_closed_is_first_for_a_pipeline_that_was_out_of_service() -> None:
    """Versions that closed before the file broke are in line in their order when it is corrected."""
    world = busy_world()
    requests = close(world, "v0", "v1", "v2")
    known = world.services.pipelines
    world.break_pipeline()
    for request in requests:
        handle_request(request, world.services)
    world.services = replace(world.services, pipelines=known, out_of_service={})
    world.clock.move(minutes=5)
    sweep(world.services)
    world.requests.messages.reverse()
    world.serve_requests()
    assert ["v0", "v1", "v2"] == train_all(world)


def test_requests_for_closings_that_start_no_run_stay_out_of_line() -> None:
    """Drift keeps a version back, and a changed one is notified: what closes later does not train them."""
    world = busy_world()
    first = world.train(version="v0")
    world.finish(first)
    world.change_shard(5, version="v0")
    (request,) = close(world, "v1")
    handle_request(request, world.services)
    assert ["v0", "v1"] == train_all(world)


def test_a_pipeline_that_does_not_say_trains_every_version() -> None:
    """The default loses none."""
    assert "queue" == pipeline().when_busy
