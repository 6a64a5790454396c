"""Shards that are deleted or replaced at any call of a run, while its process dies or continues.

In the scenarios of the crash points, data change between two steps. Here they change within each step: between a
comparison with storage and what follows from it, at the submission, at the job's start and before the registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from function_app.domain.failures import FailureClass
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.ingest.stored_shards import StoredShards
from function_app.runs import following, submission
from function_app.runs.following import handle_run_event
from function_app.runs.requests import request_run
from tests.crash.chain_promises import ENDED, Promises
from tests.crash.faulty_ports import ProcessDiedError
from tests.crash.port_calls import PortCall, watched
from tests.crash.process import Step, serve_messages
from tests.crash.scenario import swept
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, shard_content

SHARD = TRAIN_SHARDS[0]
PATH = f"{VERSION}/{SHARD}"
CONTENT, OTHER = shard_content(1, 2), shard_content(3, 4)
ROUNDS = 4


@dataclass(kw_only=True)
class Play:
    """A version that is uploaded, trained on and registered, with one change of its data."""

    change: Change
    at: int
    """Number of the call after which the data change."""
    dies: bool
    """Whether the process dies then."""
    world: World = field(default_factory=World)
    promises: Promises = field(init=False)
    calls: int = 0
    points: list[str] = field(default_factory=list)
    """The places of the calls."""
    kept: Any = None
    """The deleted shard."""

    def __post_init__(self) -> None:
        self.world.change_pipeline(on_change="train")
        self.promises = Promises(self.world, {})
        self.services = self.world.services

    def run(self) -> Play:
        """Run all steps, repeat the interrupted one, and let the timer find what is left."""
        for step in (*self.uploads(), serve_messages, self.start_jobs, deliver, self.end_jobs, deliver):
            self.step(step)
            self.change.afterwards(self)
        self.settle()
        if SHARD not in self.promises.in_storage(VERSION):
            self.world.put(SHARD, CONTENT)
            self.settle()
        if self.ended_by_changed_data():
            request_run(VERSION, {}, trigger="http", services=self.world.services)
            self.settle()
        return self

    def uploads(self) -> list[Step]:
        """Upload each shard and deliver its event."""
        contents = {name: CONTENT if name == SHARD else None for name in ALL_SHARDS}
        uploads = [lambda w, n=name, c=content: w.put(n, c) for name, content in contents.items()]
        events = [lambda w, n=name: w.deliver(f"{VERSION}/{n}") for name in ALL_SHARDS]
        return [step for pair in zip(uploads, events, strict=True) for step in pair]

    def step(self, step: Step) -> None:
        """Run a step; if its process dies, another one repeats it."""
        self.world.services = watched(self.services, self.around)
        try:
            step(self.world)
        except ProcessDiedError:
            self.world.services = self.services
            self.world.clock.move(hours=1)  # the claims of the dead process expire
            step(self.world)
        self.world.services = self.services

    def around(self, call: PortCall, make: Callable[[], Any]) -> Any:
        """See port_calls.Around."""
        answer = make()
        self.calls += 1
        self.points.append(call.point)
        if self.calls == self.at:
            self.change.make(self)
            self.promises.jobs_read()
            if self.dies:
                raise ProcessDiedError(call.point)
        return answer

    def start_jobs(self, world: World) -> None:
        """Start every submitted job."""
        for name, status in world.jobs.statuses.items():
            if status.status not in ENDED:
                world.jobs.become(name, "Running")
        self.promises.jobs_read()

    def end_jobs(self, world: World) -> None:
        """Complete every job that has not been canceled."""
        for run in world.ledger.runs():
            status = world.jobs.statuses.get(run.run_id)
            if status is not None and status.status not in ENDED:
                self.promises.jobs_read(run.run_id)
                world.end_job(run)

    def settle(self) -> None:
        """Let hours pass, in which all events are lost."""
        for _ in range(ROUNDS):
            self.world.clock.move(hours=1)
            swept(self.world)
            serve_messages(self.world)
            self.start_jobs(self.world)
            swept(self.world)
            self.end_jobs(self.world)
            swept(self.world)

    def ended_by_changed_data(self) -> bool:
        """Whether the notification of the newest run says that the same version may be requested again."""
        newest = self.world.ledger.runs()[0]
        return newest.failure_class == FailureClass.DATA_CHANGED and self.registered() == []

    def registered(self) -> list[RunRecord]:
        """Return the runs whose model was trained on the shards that are finally in storage."""
        runs = [self.world.stands(run) for run in self.world.ledger.runs() if run.state is RunState.REGISTERED]
        last = self.promises.in_storage(VERSION)
        return [run for run in runs if self.promises.accepted_for(run) == last]


def deliver(world: World) -> None:
    """Deliver an Azure ML event for every run."""
    for run in world.services.ledger.runs():
        handle_run_event(run.run_id, world.services)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change by the data owner, of which no event is delivered."""

    make: Callable[[Play], object]
    afterwards: Callable[[Play], object] = lambda _: None
    """Called after each step."""


def delete(play: Play) -> None:
    """Delete the shard, if it exists."""
    play.kept = play.world.shards.blobs.pop(PATH, None)


def undelete(play: Play) -> None:
    """Undelete the shard: content and ETag are the same."""
    if play.kept is not None and PATH not in play.world.shards.blobs:
        play.world.shards.blobs[PATH] = play.kept
        play.promises.shard_is_back(VERSION, SHARD)


def put_back(play: Play) -> None:
    """Replace the shard, let jobs read it, and restore its first content."""
    play.world.put(SHARD, OTHER)
    play.promises.jobs_read()
    play.world.put(SHARD, CONTENT)


CHANGES = {
    "deleted": Change(make=delete),
    "deleted and undeleted": Change(make=delete, afterwards=undelete),
    "replaced": Change(make=lambda play: play.world.put(SHARD, OTHER)),
    "replaced and put back": Change(make=put_back),
}


def undisturbed() -> list[str]:
    """Return the places of all calls that lead to a model."""
    return Play(change=CHANGES["replaced"], at=0, dies=False).run().points


def broken_at(change: Change, *, dies: bool) -> Iterator[str]:
    """Yield the calls at which the change leads to a model of other data, or to none of the final data."""
    for number, point in enumerate(undisturbed(), start=1):
        play = Play(change=change, at=number, dies=dies).run()
        try:
            play.promises.check()
            play.promises.nothing_is_left_to_do()
            assert 1 == len(play.registered())
        except AssertionError as error:
            yield f"{point}, call {number}: {error}"


CASES = [(what, dies) for what in CHANGES for dies in (False, True)]
OF_THE_GATE = (("replaced", False), ("replaced", True), ("deleted", True))


@pytest.mark.parametrize(
    ("what", "dies"), [case if case in OF_THE_GATE else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_data_that_change_at_any_call_lead_to_one_model_of_the_last_content(what: str, dies: bool) -> None:  # noqa: FBT001
    """No model of other bytes is registered; following the notification is enough to get a correct one."""
    assert [] == list(broken_at(CHANGES[what], dies=dies))


def test_the_calls_include_each_comparison_and_what_follows_from_it() -> None:
    """The data change between them: before a closing, a submission, a start and a registration."""
    effects = ("list@stored_shards._stored", "submit@submission.submit_run", "register@registration._register")
    points = undisturbed()
    assert (4, 1, 1) == tuple(points.count(point) for point in effects)
    order = [effects.index(point) for point in points if point in effects]
    assert [0, 0, 1, 0, 0, 2] == order


@pytest.mark.parametrize("missing", ["submission", "end"])
def test_a_missing_comparison_is_noticed(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the change goes wrong at some call."""
    if missing == "submission":
        monkeypatch.setattr(submission, "data_in_storage", lambda *_: StoredShards())
    else:
        monkeypatch.setattr(following, "_changed_data", lambda *_: {})
    assert next(broken_at(CHANGES["replaced"], dies=False), None) is not None
