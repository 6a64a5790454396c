"""A storm over storage alone: real adapters and the SDKs' repetitions against 429, 503, 500 and lost answers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.chaos.storage_faults import some_faults
from bench.chaos.storage_proxy import StorageProxy, no_faults, storage_proxy, through
from local_azure.azurite import Azurite, random_account_key
from shared.errors import LandfallError
from tests.integration.crash.azurite_world import AzuriteWorld, serve_queues
from tests.integration.crash.azurite_world import opened as open_world
from tests.integration.crash.data_stories import DATA
from tests.integration.crash.rare_stories import RARE
from tests.integration.crash.stages import Step, outcome
from tests.integration.crash.stories import BASIC, Story
from tests.integration.crash.watched_stories import WATCHED
from tests.support.azurite import start_azurite
from tests.support.threads import at_once
from tests.support.world import World

pytestmark = [pytest.mark.azurite, pytest.mark.timeout(1200)]

STORIES = {story.name: story for story in (*BASIC, *RARE, *WATCHED, *DATA)}
TOLD = ("registered", "preempted", "repaired", "retrained", "canceled by a person", "quarantined")
SHARE, IN_A_ROW = 0.08, (1, 1, 3)
"""So many requests begin to fail, alone or in a row that is longer than what the SDK repeats."""
MAX_DELIVERIES = 40
CALM = 2
"""Of the timer's rounds at the end: whatever was lost, is found by then."""


@pytest.fixture
def azurite(tmp_path: Path) -> Iterator[Azurite]:
    """An Azurite with two accounts for each story."""
    keys = {f"{kind}{number}": random_account_key() for number in range(len(TOLD)) for kind in ("calm", "storm")}
    running = start_azurite(tmp_path, keys)
    yield running
    running.stop()


def delivered(step: Step, world: AzuriteWorld) -> None:
    """Repeat a step until it has gone well, as the host does with its message."""
    for _ in range(MAX_DELIVERIES):
        with contextlib.suppress(LandfallError):
            step(world)
            return
    raise AssertionError(f"a step should have gone well within {MAX_DELIVERIES} deliveries")


def told(story: Story, world: AzuriteWorld, proxy: StorageProxy) -> dict[str, object]:
    """Tell a story in a storm that ends before the last rounds of the timer; return what is left."""
    with contextlib.ExitStack() as open_worlds:

        def opened(closed: World) -> AzuriteWorld:
            return open_worlds.enter_context(contextlib.closing(open_world(closed)))

        world.create()
        story.begin(world, opened, serve_queues)
        inside = opened(world)
        steps = story.told(serve_queues)
        proxy.draw = some_faults(random.Random(story.name), SHARE, IN_A_ROW)  # noqa: S311 (a storm, not secrets)
        for number, step in enumerate(steps):
            if number == len(steps) - CALM:
                proxy.draw = no_faults
            delivered(step, inside)
        return outcome(inside, inside.services)


def told_twice(azurite: Azurite, number: int) -> tuple[dict[str, object], dict[str, object], int]:
    """Tell a story in calm and in a storm; return what is left of each, and how many requests went wrong."""
    story = STORIES[TOLD[number]]
    calm, stormy = (azurite.connection_string(f"{kind}{number}") for kind in ("calm", "storm"))
    with storage_proxy(azurite.ports) as (proxy, ports):
        expected = told(story, AzuriteWorld(connection=calm), proxy)
        seen = told(story, AzuriteWorld(connection=stormy, app_connection=through(stormy, ports)), proxy)
        return expected, seen, proxy.done.total()


def test_stories_told_in_a_storm_over_storage_end_the_same(azurite: Azurite) -> None:
    """Requests are refused, and lost before and after their effect; some until the SDK gives up."""
    results = at_once([partial(told_twice, azurite, number) for number in range(len(TOLD))])
    changed = [name for name, (expected, seen, _) in zip(TOLD, results, strict=True) if expected != seen]
    calm = [name for name, (_, _, went_wrong) in zip(TOLD, results, strict=True) if not went_wrong]
    assert ([], []) == (changed, calm)
