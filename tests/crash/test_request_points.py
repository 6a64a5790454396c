"""SIGKILL after each request with which an adapter changes storage, on the real Azurite: the stories end the same."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.azurite_world import AzuriteWorld, opened, serve_queues
from tests.crash.data_stories import DATA
from tests.crash.rare_stories import RARE
from tests.crash.stages import Stage, State, Step, deliveries, killed, outcome
from tests.crash.stories import BASIC
from tests.crash.watched_stories import WATCHED
from tests.support.adapter_calls import request_sites, requests_seen, site_of_name
from tests.support.azurite import random_account_key, start_azurite
from tests.support.port_calls import PortCall

pytestmark = [pytest.mark.slow, pytest.mark.azurite, pytest.mark.timeout(1800)]

STORIES = {story.name: story for story in (*BASIC, *RARE, *WATCHED, *DATA)}
MAX_WORLDS = 600
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Telling:
    """A story to tell in a world of its own, and where its process is to die."""

    story: str
    connection: str
    path: Path
    dies_at: str = ""
    """The effect after which it dies when it comes first; none lets it live.

    By its name: how manieth it is depends on how fast things go (a message hidden for too short is taken twice).
    """
    repeated: bool = True
    """Whether the step that was interrupted comes again, or the timer instead."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is left of a telling."""

    points: list[str]
    outcome: dict[str, object]
    deliveries: list[str]


@dataclass(kw_only=True)
class RequestStage(Stage):
    """A process that may die after any request to storage; what stays a double counts as everywhere."""

    dies_at: str = ""
    """See Telling."""

    def passed(self, point: str) -> None:
        """See Stage."""
        super().passed(point)
        if point == self.dies_at:
            self._die()

    def _made(self, call: PortCall, make: Callable[[], Any]) -> Any:
        return super()._made(call, make) if call.port in ("JobService", "ModelRegistry", "Notifier") else make()


def tell(telling: Telling) -> Told:
    """Tell a story, and on to its end where its process was killed."""
    story, path = STORIES[telling.story], telling.path
    new = AzuriteWorld(connection=telling.connection)
    new.create()
    State(world=story.begin(new, opened, serve_queues)).save(path)
    steps, timer = story.told(serve_queues), story.timer(serve_queues)
    if not telling.dies_at:
        points = watched_telling(RequestStage(path=path, open=opened), steps)
    else:
        dying = RequestStage(path=path, open=opened, dies_at=telling.dies_at)
        if not killed(lambda: watched_telling(dying, steps)):
            raise RuntimeError(f"{telling.story} should have died after {telling.dies_at}, and lived")
        RequestStage(path=path, open=opened).tell(steps, instead=None if telling.repeated else timer)
        points = []
    left = opened(State.load(path).world)
    with contextlib.closing(left):
        return Told(points=points, outcome=outcome(left, left.services), deliveries=deliveries(left))


def watched_telling(stage: Stage, steps: Sequence[Step]) -> list[str]:
    """Tell a story while its requests count; return the names of its effects in order."""
    with requests_seen(stage.passed):
        stage.tell(steps)
    return stage.points


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[str]]:
    """Connection strings of accounts that nobody has used."""
    keys = {f"world{number:04d}": random_account_key() for number in range(MAX_WORLDS)}
    azurite = start_azurite(tmp_path_factory.mktemp("azurite"), keys)
    yield iter([azurite.connection_string(name) for name in keys])
    azurite.stop()


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes that tell stories: forked, as those are that die."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("fork")) as workers:
        yield workers


@pytest.fixture(scope="module")
def undisturbed(
    accounts: Iterator[str], pool: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    """Every story with its requests in order, and what is left of it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    tellings = [
        Telling(story=name, connection=next(accounts), path=folder / str(number))
        for number, name in enumerate(STORIES)
    ]
    return dict(zip(STORIES, pool.map(tell, tellings), strict=True))


def test_the_stories_pass_every_request_of_the_adapters(undisturbed: dict[str, Told]) -> None:
    """Each place of the adapters' source that has storage change something is one after which a process dies."""
    passed = {site_of_name(point) for told in undisturbed.values() for point in told.points if ": " in point}
    sites = request_sites()
    unreached = {f"{site} ({sites[site]})" for site in sites.keys() - passed}
    assert (set(), set()) == (unreached, passed - sites.keys())


def first_stories(undisturbed: dict[str, Told]) -> dict[str, str]:
    """Return the first story in which each effect is passed."""
    stories: dict[str, str] = {}
    for story, told in undisturbed.items():
        for point in told.points:
            stories.setdefault(point, story)
    return stories


def test_a_process_killed_after_any_request_is_told_on_to_the_same_end(
    undisturbed: dict[str, Told], accounts: Iterator[str], pool: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """One death for each name of an effect: the step comes again, or is lost and swept, in turn."""
    tellings = [
        Telling(
            story=story,
            connection=next(accounts),
            path=tmp_path / str(number),
            dies_at=point,
            repeated=number % 2 == 0 or not STORIES[story].survives_loss,
        )
        for number, (point, story) in enumerate(first_stories(undisturbed).items())
    ]
    wrong = []
    for telling, told in zip(tellings, pool.map(tell, tellings), strict=True):
        expected = undisturbed[telling.story]
        twice = told.deliveries != expected.deliveries and not telling.dies_at.startswith("send@notification.")
        if told.outcome != expected.outcome or (telling.repeated and twice):
            wrong.append(f"{telling.story}: after {telling.dies_at}")
    assert [] == wrong
