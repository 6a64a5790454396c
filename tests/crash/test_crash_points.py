"""A process that dies between any two effects of any scenario: the next one leads to the same result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.faulty_ports import ProcessDiedError
from tests.crash.port_calls import READS, WRITES, call_sites, methods_of_ports
from tests.crash.process import SENDING, KilledProcess, Process, State, deliveries, killed, outcome, serve_messages
from tests.crash.scenario import Scenario
from tests.crash.scenarios import SCENARIOS, SURVIVING_LOSS
from tests.support.world import World


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A scenario that ran undisturbed."""

    points: list[str]
    """The names of its effects, in order."""
    before: list[tuple[int, bytes]]
    """Before each step: the number of effects so far, and the state."""
    end: World


def recorded(scenario: Scenario) -> Recording:
    """Run a scenario undisturbed and record it."""
    state, process = State(world=scenario.begin(World())), Process()
    steps, before = scenario.all_steps(serve_messages), list[tuple[int, bytes]]()
    for number in range(len(steps)):
        before.append((len(process.points), state.pickled()))
        process.run(state, steps[: number + 1])
    return Recording(points=process.points, before=before, end=state.world)


def died(scenario: Scenario, recording: Recording, effects: int, *, repeated: bool) -> World:
    """Let a process die after some effects and another one continue; return the result."""
    done, content = next(one for one in reversed(recording.before) if one[0] < effects or effects == one[0] == 0)
    steps, state = scenario.all_steps(serve_messages), State.unpickled(content)
    with pytest.raises(ProcessDiedError):
        Process(dies_after=effects - done).run(state, steps)
    Process().run(state, steps, instead=None if repeated else scenario.timer(serve_messages))
    return state.world


def killed_at(scenario: Scenario, path: Path, effects: int, *, repeated: bool) -> World:
    """Do the same with a real process and SIGKILL."""
    State(world=scenario.begin(World())).save(path)
    steps = scenario.all_steps(serve_messages)
    if not killed(lambda: KilledProcess(path=path, dies_after=effects).go_on(steps)):
        raise RuntimeError(f"the process should have died after {effects} effects, and lived")
    KilledProcess(path=path).go_on(steps, instead=None if repeated else scenario.timer(serve_messages))
    return State.load(path).world


def same_end(expected: World, left: World) -> bool:
    """Return whether two worlds agree in everything that must not depend on the death."""
    return outcome(expected, expected.services) == outcome(left, left.services)


def same_deliveries(expected: World, left: World, point: str) -> bool:
    """Return whether nothing was sent twice, except by a process that died between sending and recording."""
    return deliveries(left) == deliveries(expected) or point.startswith(SENDING)


def test_every_method_of_every_port_is_classified_as_writing_or_reading() -> None:
    """The crash points depend on it: a method that is added to a port fails here until it is classified."""
    assert methods_of_ports() == {port: WRITES[port] | READS[port] for port in WRITES}
    assert not [port for port in WRITES if WRITES[port] & READS[port]]


def test_the_scenarios_pass_every_effect_of_the_source() -> None:
    """Each place in the source that changes something outside is a point at which some scenario is interrupted."""
    passed = {point for scenario in SCENARIOS for point in recorded(scenario).points}
    sites = call_sites()
    unreached = {f"{point} ({sites[point]})" for point in sites.keys() - passed}
    assert (set(), set()) == (unreached, passed - sites.keys())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_process_that_dies_at_any_effect_is_repeated_to_the_same_end(scenario: Scenario) -> None:
    """What was not acknowledged is delivered again; a notification is sent twice only if its sender died."""
    recording, wrong = recorded(scenario), []
    for effects, point in enumerate(["the start", *recording.points]):
        left = died(scenario, recording, effects, repeated=True)
        if not same_end(recording.end, left) or not same_deliveries(recording.end, left, point):
            wrong.append(f"after {point}, effect {effects}")
    assert [] == wrong


@pytest.mark.parametrize("scenario", SURVIVING_LOSS, ids=str)
def test_a_process_that_dies_at_any_effect_is_swept_to_the_same_end(scenario: Scenario) -> None:
    """The interrupted step is never delivered again: the timer alone finds what is left to do."""
    recording, wrong = recorded(scenario), []
    for effects, point in enumerate(["the start", *recording.points]):
        if not same_end(recording.end, died(scenario, recording, effects, repeated=False)):
            wrong.append(f"after {point}, effect {effects}")
    assert [] == wrong


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_process_killed_at_any_effect_is_repeated_to_the_same_end(scenario: Scenario, tmp_path: Path) -> None:
    """After SIGKILL nothing of the process survives, not even what a ``finally`` would do."""
    recording, wrong = recorded(scenario), []
    for effects, point in enumerate(["the start", *recording.points]):
        left = killed_at(scenario, tmp_path / "state", effects, repeated=True)
        if not same_end(recording.end, left) or not same_deliveries(recording.end, left, point):
            wrong.append(f"after {point}, effect {effects}")
    assert [] == wrong


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SURVIVING_LOSS, ids=str)
def test_a_process_killed_at_any_effect_is_swept_to_the_same_end(scenario: Scenario, tmp_path: Path) -> None:
    """After SIGKILL, the timer alone finds what is left to do."""
    recording, wrong = recorded(scenario), []
    for effects, point in enumerate(["the start", *recording.points]):
        if not same_end(recording.end, killed_at(scenario, tmp_path / "state", effects, repeated=False)):
            wrong.append(f"after {point}, effect {effects}")
    assert [] == wrong
