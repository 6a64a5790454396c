"""Requested sweeps: one at a time, run by a message, and never without an end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from function_app.domain.errors import InvalidEventError, ServiceUnavailableError
from function_app.sweep.requested import (
    LONGEST,
    MARK,
    MAX_PROBLEM_CHARS,
    MAX_PROBLEMS,
    RequestedSweep,
    SweepState,
    handle_sweep_request,
    latest_sweep,
    request_sweep,
)
from function_app.sweep.sweep import run_sweep
from function_app.testing.stores import MemoryRequestQueue
from tests.support.world import ALL_SHARDS, World


def serve(world: World, *, num_deliveries: int = 1) -> None:
    """Deliver every message."""
    while world.sweep_requests.messages:
        message = world.sweep_requests.messages.pop(0)
        handle_sweep_request(message.encode(), world.services, num_deliveries=num_deliveries)


def state(world: World) -> SweepState:
    """The state of the last sweep."""
    sweep = latest_sweep(world.services)
    assert sweep is not None
    return sweep.state


def test_two_requests_at_once_are_one_sweep() -> None:
    """The second one gets the first one's; its message may be the only one that was sent, or does nothing."""
    world = World()
    for name in ALL_SHARDS:
        world.put(name)
    world.clock.move(hours=1)
    first, second = request_sweep(world.services), request_sweep(world.services)
    assert (first, 2) == (second, len(world.sweep_requests.messages))
    serve(world)
    assert (SweepState.DONE, 1) == (state(world), len(world.uploads.messages))


def test_of_two_callers_that_see_no_sweep_one_requests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the ledger before either wrote."""
    world = World()
    other: list[RequestedSweep] = []
    change = world.ledger.change_mark

    def overtaken(name: str, before: str | None, after: str) -> bool:
        monkeypatch.setattr(world.ledger, "change_mark", change)
        other.append(request_sweep(world.services))
        return change(name, before, after)

    monkeypatch.setattr(world.ledger, "change_mark", overtaken)
    assert [request_sweep(world.services)] == other


def test_a_sweep_that_runs_is_not_started_again() -> None:
    """Neither a request nor a second message starts it; a repeated message belongs to a handler that died."""
    world = World()
    asked = request_sweep(world.services)
    row = world.ledger.mark(MARK) or ""
    world.ledger.set_mark(MARK, row.replace('"queued"', '"running"'))
    again = request_sweep(world.services)
    assert (asked.sweep_id, SweepState.RUNNING, 1) == (
        again.sweep_id,
        again.state,
        len(world.sweep_requests.messages),
    )
    message = world.sweep_requests.messages[0].encode()
    handle_sweep_request(message, world.services)
    assert SweepState.RUNNING == state(world)
    handle_sweep_request(message, world.services, num_deliveries=2)
    assert SweepState.DONE == state(world)


def test_after_its_end_the_next_request_is_a_new_sweep() -> None:
    """A late message of the old one does nothing to it."""
    world = World()
    first = request_sweep(world.services)
    late = list(world.sweep_requests.messages)
    serve(world)
    second = request_sweep(world.services)
    handle_sweep_request(late[0].encode(), world.services)
    assert (True, SweepState.QUEUED) == (first.sweep_id != second.sweep_id, state(world))


def test_a_request_whose_message_could_not_be_sent_is_sent_by_the_next_caller() -> None:
    """The first caller reads that storage did not answer."""
    world = World()

    class AwayQueue(MemoryRequestQueue):
        def send_text(self, text: str) -> None:
            raise ServiceUnavailableError(f"storage did not take {text}")

    away = replace(world.services, queues={**world.services.queues, "sweep-requested": AwayQueue()})
    with pytest.raises(ServiceUnavailableError):
        request_sweep(away)
    request_sweep(world.services)
    serve(world)
    assert SweepState.DONE == state(world)


def test_parts_that_fail_are_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded in number and length, whatever their text is: a mark holds 32,000 characters."""
    world = World()
    report = replace(run_sweep(world.services), problems=("x\ud800\n" + "long " * 1000,) * 200)
    monkeypatch.setattr("function_app.sweep.requested.run_sweep", lambda _: report)
    request_sweep(world.services)
    serve(world)
    sweep = latest_sweep(world.services)
    assert sweep is not None
    assert sweep.report is not None
    *problems, last = sweep.report.problems
    assert (SweepState.FAILED, MAX_PROBLEMS, "and 180 more, which the log has") == (sweep.state, len(problems), last)
    assert {MAX_PROBLEM_CHARS} == {len(problem) for problem in problems}


def test_an_unexpected_error_ends_the_sweep_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller that waits reads the error, and does not wait for the tries of the queue."""
    world = World()
    monkeypatch.setattr("function_app.sweep.requested.run_sweep", lambda _: 1 // 0)
    request_sweep(world.services)
    serve(world)
    sweep = latest_sweep(world.services)
    assert sweep is not None
    assert (SweepState.FAILED, None) == (sweep.state, sweep.report)
    assert "ZeroDivisionError" in (sweep.error or "")


def test_a_sweep_whose_process_died_does_not_stand_in_the_way_forever() -> None:
    """Later than any execution may take it has failed, and the next request is a new one."""
    world = World()
    first = request_sweep(world.services)
    world.clock.now += LONGEST
    failed = latest_sweep(world.services)
    assert failed is not None
    assert (first.sweep_id, SweepState.FAILED) == (failed.sweep_id, failed.state)
    assert "did not end within 35 minutes" in (failed.error or "")
    assert first.sweep_id != request_sweep(world.services).sweep_id


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"sweep": 1}', b"\xff", b"[" * 10_000])
def test_a_message_of_another_sender_becomes_a_dead_letter(body: bytes) -> None:
    """It fails each time, as it should."""
    with pytest.raises(InvalidEventError, match="was not sent by Landfall"):
        handle_sweep_request(body, World().services)


def test_a_message_names_its_sweep_and_nothing_else() -> None:
    """What is swept is read from the ledger and from storage."""
    world = World()
    sweep = request_sweep(world.services)
    assert [{"sweep_id": sweep.sweep_id}] == [json.loads(one) for one in world.sweep_requests.messages]
