"""Follow a demo: by the HTTP API and the records of the twin, with patience that ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cli.demo.following import SILENCE_S, WITHIN_S, DemoError, Follower, Stopwatch, awaited_by, phase_of
from cli.demo.narration import Observation, RunView
from tests.unit.cli.fake_function_app import FunctionApp

RUN = RunView(run_id="r", state="running")


class Script:
    """Plays observations one after the other, and stays with the last."""

    def __init__(self, *observations: Observation, notified: bool = True) -> None:
        self._observations: Iterator[Observation] = iter(observations)
        self._last = Observation()
        self.run: Mapping[str, Any] = {"notified_at": "now" if notified else None}

    def look(self) -> Observation:
        """Return the next observation."""
        self._last = next(self._observations, self._last)
        return self._last


class Clock:
    """Moves when the follower sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


def follow(script: Script) -> tuple[list[str], list[str], Clock]:
    """Follow a script; return what was narrated, the phases in order, and the clock."""
    said, phases, clock = list[str](), list[str](), Clock()
    Follower(observer=script, say=said.append, enter_phase=phases.append, clock=clock, sleep=clock.sleep).follow()
    return said, phases, clock


def test_a_run_is_followed_to_its_registration() -> None:
    """Changes are narrated, and the phases are entered in order."""
    said, phases, _ = follow(
        Script(
            Observation(accepted=1, expected=1),
            Observation(accepted=1, expected=1, fingerprint="f" * 64, num_records=5),
            Observation(accepted=1, expected=1, fingerprint="f" * 64, num_records=5, run=RUN),
            Observation(
                accepted=1, expected=1, fingerprint="f" * 64, num_records=5, run=replace(RUN, state="registered")
            ),
        )
    )
    assert (5, "the gate holds", ["validation", "submission", "training", "registration"]) == (
        len(said),
        said[-1],
        phases,
    )


@pytest.mark.parametrize("state", ["not_registered", "failed", "canceled", "lost"])
def test_a_bad_end_is_an_error_with_its_reason(state: str) -> None:
    """The run, how it ended, and why."""
    ended = replace(RUN, state=state, reason="because")
    with pytest.raises(DemoError, match=f"Run r ended as {state}: because."):
        follow(Script(Observation(run=ended)))


def test_a_rejected_shard_ends_the_demo() -> None:
    """The version cannot become complete without the shard."""
    with pytest.raises(DemoError, match="1 shard was rejected"):
        follow(Script(Observation(rejected={"train-0": "crc"})))


def test_silence_is_not_waited_for_for_ever() -> None:
    """The error says what was seen last."""
    with pytest.raises(DemoError, match=rf"Nothing has changed for {SILENCE_S:.0f} s\. .*: waiting for nodes"):
        follow(Script(Observation(run=replace(RUN, state="queued"))))


def test_a_demo_that_never_ends_is_ended() -> None:
    """Changes alone do not keep it going for ever."""
    endless = [Observation(accepted=i, expected=0) for i in range(1, int(WITHIN_S) * 3)]
    with pytest.raises(DemoError, match=f"has not ended within {WITHIN_S:.0f} s"):
        follow(Script(*endless))


def test_the_end_is_when_the_recipients_were_notified() -> None:
    """A registered run whose notifications are on their way is not over."""
    with pytest.raises(DemoError, match="Nothing has changed"):
        follow(Script(Observation(run=replace(RUN, state="registered")), notified=False))


def test_phases_follow_the_runs_state() -> None:
    """The version decides until there is a run."""
    observations = [Observation(), Observation(fingerprint="f"), *(Observation(run=replace(RUN, state=s)) for s in
                    ("planned", "submitted", "queued", "running", "completed"))]  # fmt: skip
    expected = ["validation", "submission", "submission", "waiting_for_nodes", "waiting_for_nodes", "training"]
    assert [*expected, "registration"] == [phase_of(observation) for observation in observations]


def test_each_phase_has_the_time_until_the_next_one() -> None:
    """Entering the same phase again does not end it; the total covers all."""
    moments = iter([100.0, 101.0, 103.5, 110.0, 110.0])
    watch = Stopwatch(lambda: next(moments))
    watch.begin("upload")
    watch.begin("upload")
    watch.begin("training")
    assert {"upload": 2.5, "training": 6.5, "total": 10.0} == watch.finish()


PLANNED, SUBMITTED = {"run_id": "r", "state": "planned"}, {"run_id": "r", "state": "submitted"}


def test_a_run_that_stays_planned_waits_for_something() -> None:
    """Its history says for what."""
    app = FunctionApp(body={"awaited": ["its turn, behind run x"]})
    with app.client() as client:
        awaited = awaited_by(client, PLANNED, PLANNED)
    asked = [request.url.path for request in app.requests]
    assert (("its turn, behind run x",), ["/api/why/r"]) == (awaited, asked)


def test_a_run_on_its_way_is_not_asked_about() -> None:
    """Before there is one, at the first look, and once it goes."""
    app = FunctionApp(body={"awaited": ["its submission"]})
    with app.client() as client:
        awaited = [awaited_by(client, *looks) for looks in (({}, {}), ({}, PLANNED), (PLANNED, SUBMITTED))]
    assert ([(), (), ()], []) == (awaited, app.requests)
