"""SIGKILL between any two effects of any story: told on by the next process, it ends the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.data_stories import DATA
from tests.crash.rare_stories import RARE
from tests.crash.script_stories import SCRIPTS
from tests.crash.stages import Stage, State, deliveries, killed, outcome, serve_messages
from tests.crash.stories import BASIC, Story
from tests.crash.watched_stories import WATCHED
from tests.support.port_calls import READS, WRITES, call_sites, methods_of_ports
from tests.support.world import World

STORIES = (*BASIC, *RARE, *WATCHED, *DATA, *SCRIPTS)
NAMES = [story.name for story in STORIES]


def recorded(story: Story, path: Path) -> tuple[list[str], State]:
    """Tell a story undisturbed; return its effects in order, and what is left."""
    State(world=story.begin(World())).save(path)
    stage = Stage(path=path)
    stage.tell(story.told(serve_messages))
    return stage.points, State.load(path)


def test_every_method_of_every_port_is_known_to_write_or_to_read() -> None:
    """A method that is added to a port is classified, or this fails: crash points hang on it."""
    assert methods_of_ports() == {port: WRITES[port] | READS[port] for port in WRITES}
    assert not [port for port in WRITES if WRITES[port] & READS[port]]


def test_the_stories_pass_every_effect_of_the_steps(tmp_path: Path) -> None:
    """Each place of the steps' source that changes the world is a point at which some story is interrupted."""
    passed = {point for story in STORIES for point in recorded(story, tmp_path / "state")[0]}
    sites = call_sites()
    unreached = {f"{point} ({sites[point]})" for point in sites.keys() - passed}
    assert (set(), set()) == (unreached, passed - sites.keys())


def told_on(story: Story, path: Path, dies_after: int, *, repeated: bool) -> State:
    """Kill the process at an effect, and let the next one tell the story to its end."""
    State(world=story.begin(World())).save(path)
    told = story.told(serve_messages)
    if not killed(lambda: Stage(path=path, dies_after=dies_after).tell(told)):
        raise RuntimeError(f"the process should have died after {dies_after} effects, and lived")
    Stage(path=path).tell(told, instead=None if repeated else story.timer(serve_messages))
    return State.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_a_process_killed_at_any_effect_is_repeated_to_the_same_end(story: Story, tmp_path: Path) -> None:
    """What was not acknowledged is delivered again; a notification is doubled only where its sender died sending."""
    path = tmp_path / "state"
    points, expected = recorded(story, path)
    wrong, once = [], deliveries(expected.world)
    for number, point in enumerate(["the start", *points]):
        left = told_on(story, path, number, repeated=True).world
        same = outcome(expected.world, expected.world.services) == outcome(left, left.services)
        if not same or (deliveries(left) != once and not point.startswith("send@notification.")):
            wrong.append(f"after {point}, effect {number}")
    assert [] == wrong


@pytest.mark.slow
@pytest.mark.parametrize("story", [s for s in STORIES if s.survives_loss], ids=lambda story: story.name)
def test_a_process_killed_at_any_effect_is_swept_to_the_same_end(story: Story, tmp_path: Path) -> None:
    """What it was at is never delivered again: the timer alone finds what is left to do."""
    path = tmp_path / "state"
    points, expected = recorded(story, path)
    wrong = []
    for number, point in enumerate(["the start", *points]):
        left = told_on(story, path, number, repeated=False).world
        if outcome(expected.world, expected.world.services) != outcome(left, left.services):
            wrong.append(f"after {point}, effect {number}")
    assert [] == wrong
