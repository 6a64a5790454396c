"""The states of runs, their moves, and the events about them that reach a topic, also one that starts later."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from local_azure.azure_ml.runs import (
    TERMINAL,
    EventPublisher,
    IllegalTransitionError,
    Run,
    RunBook,
    RunState,
    may_follow,
)
from local_azure.azure_ml.service import iso, utcnow
from local_azure.azure_ml.workspace import Store
from local_azure.processes import wait_until

WALK = [
    RunState.NOT_STARTED,
    RunState.STARTING,
    RunState.PREPARING,
    RunState.QUEUED,
    RunState.RUNNING,
    RunState.FINALIZING,
    RunState.COMPLETED,
]


def test_the_walk_is_forward_one_step_at_a_time() -> None:
    """Among the states of a good run only neighbours follow each other."""
    allowed = [(one, other) for one, other in itertools.product(WALK, WALK) if may_follow(one, other)]
    assert list(itertools.pairwise(WALK)) == allowed


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_nothing_follows_an_end(ended: RunState) -> None:
    """Completed, Failed and Canceled are final."""
    assert [] == [state for state in RunState if may_follow(ended, state)]


def test_a_cancel_request_ends_canceled_or_failed() -> None:
    """There is no other end."""
    followers = {state for state in RunState if may_follow(RunState.CANCEL_REQUESTED, state)}
    assert {RunState.CANCELED, RunState.FAILED} == followers


def test_a_run_may_be_canceled_until_it_finalizes() -> None:
    """Afterwards its work is done."""
    cancelable = [state for state in WALK if may_follow(state, RunState.CANCEL_REQUESTED)]
    assert WALK[:5] == cancelable


def a_run(name: str = "r1") -> Run:
    """A new run."""
    return Run(
        name=name,
        workspace_id="/subscriptions/S/workspaces/W",
        properties={"experimentName": "digits"},
        status=RunState.NOT_STARTED,
        created_at="2026-11-20T00:00:00Z",
    )


def test_a_silent_run_reports_everything_but_that_it_has_failed_or_was_canceled(tmp_path: Path) -> None:
    """The documentation does not promise such events; a completed run is always reported."""
    seen = []
    for end in (RunState.FAILED, RunState.CANCELED):
        reported: list[RunState] = []
        book = RunBook(Store(tmp_path / end), lambda run, into=reported: into.append(run.status))  # type: ignore[misc]
        book.add(a_run())
        book.update(a_run().job_id, silent=True)
        book.move(a_run().job_id, RunState.STARTING)
        if end is RunState.CANCELED:
            book.move(a_run().job_id, RunState.CANCEL_REQUESTED)
        book.move(a_run().job_id, end)
        seen.append(reported[-1])
    assert [RunState.STARTING, RunState.CANCEL_REQUESTED] == seen


def test_moves_are_recorded_and_reported_and_survive(tmp_path: Path) -> None:
    """Every move is reported in order, and a new book over the same file knows the last one."""
    reported: list[RunState] = []
    book = RunBook(Store(tmp_path / "state"), lambda run: reported.append(run.status))
    book.add(a_run())
    for state in WALK[1:]:
        book.move(a_run().job_id, state)
    kept = RunBook(Store(tmp_path / "state"), lambda _run: None).current(a_run().job_id.upper())
    assert (WALK, RunState.COMPLETED, True) == (reported, kept.status, kept.ended)
    assert None not in {kept.started_at, kept.ended_at}


def test_an_illegal_move_names_both_states(tmp_path: Path) -> None:
    """Nothing changes."""
    book = RunBook(Store(tmp_path / "state"), lambda _run: None)
    book.add(a_run())
    with pytest.raises(IllegalTransitionError, match="run r1 is NotStarted and cannot become Completed"):
        book.move(a_run().job_id, RunState.COMPLETED)
    assert RunState.NOT_STARTED == book.current(a_run().job_id).status


def test_runs_of_another_workspace_stay_apart(tmp_path: Path) -> None:
    """A prefix of a workspace's name is not that workspace."""
    book = RunBook(Store(tmp_path / "state"), lambda _run: None)
    book.add(a_run())
    found = [
        [run.name for run in book.below(prefix)]
        for prefix in ("/subscriptions/s/workspaces/w", "/subscriptions/s/workspaces/")
    ]
    assert [["r1"], ["r1"]] == found
    assert [] == book.below("/subscriptions/S/workspaces/W/jobs/r")


def test_the_experiment_of_a_run_is_stable() -> None:
    """Its id depends on workspace and name alone, and there is a default."""
    nameless = Run(**{**vars(a_run()), "properties": {}})
    assert (a_run("r1").experiment_id, "Default") == (a_run("r2").experiment_id, nameless.experiment_name)


HANG_UPS = 6
"""More than an event is tried at a topic that answers."""


class LateTopic(HTTPServer):
    """Closes the first connections, like a port without a server; then takes every event."""

    def __init__(self) -> None:
        self.callers = 0
        self.taken: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether to listen to this caller."""
        del request, client_address
        self.callers += 1
        return self.callers > HANG_UPS


class Handler(BaseHTTPRequestHandler):
    """Takes events; anything but a POST is refused, as by a topic."""

    server: LateTopic

    def do_POST(self) -> None:
        """Keep the events."""
        self.server.taken += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Stay silent."""


def failed_run() -> Run:
    """A run that ended with a former life of the emulator."""
    return Run(name="r", workspace_id="/w", properties={}, status=RunState.FAILED, created_at=iso(utcnow()))


def test_a_topic_that_starts_late_hears_of_everything() -> None:
    """What became of interrupted runs is said at the start, before anybody listens; it is kept until then."""
    with LateTopic() as topic:
        threading.Thread(target=topic.serve_forever, daemon=True).start()
        publisher = EventPublisher(f"http://127.0.0.1:{topic.server_address[1]}/topics/azureml/api/events", None)
        publisher.start()
        publisher.run_changed(failed_run())
        wait_until(lambda: topic.taken, what="the event to arrive")
        publisher.stop()
        topic.shutdown()
    assert ["Failed"] == [event["data"]["runStatus"] for event in topic.taken]


def test_an_emulator_can_stop_while_its_topic_is_not_there() -> None:
    """The wait for a topic ends with the emulator."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen: connections are refused
        publisher = EventPublisher(f"http://127.0.0.1:{unused.getsockname()[1]}/", None)
        publisher.start()
        publisher.run_changed(failed_run())
        publisher.stop()
    assert [] == [thread.name for thread in threading.enumerate() if thread.name == "events"]
