"""One shard's way, from its event to the PUT of its job: traced, counted, and compared with docs/architecture.md."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from function_app import functions
from function_app.functions import shard_uploaded
from function_app.runs.submission import handle_request
from tests.architecture.trees import ROOT
from tests.support.world import ALL_SHARDS, World

MAX_FILES_OF_THE_SUBMITTER = 30
"""Files of function_app and shared that a newcomer would read; three need not be opened: two for traces, one for
predictions."""
MAX_FILES_OF_THE_VALIDATOR = 8
"""The validator is a package by itself; it need not be opened to follow the way."""
PACKAGES = ("function_app/", "shared/", "shard_validation/")
DOUBLES = ("function_app/testing/", "function_app/adapters/")
"""The in-memory doubles, and the bounds of rows that they share with the tables."""
STEP = re.compile(r"^\d+\. `(?P<path>[\w/]+\.py)`: `(?P<function>[\w.]+)` — .+", re.MULTILINE)

Place = tuple[str, str]
"""A file of the repository and the qualified name of a function in it."""


class Message:
    """A queue message, as the host hands it over."""

    dequeue_count = 1
    insertion_time = None

    def __init__(self, text: str) -> None:
        self._text = text

    def get_body(self) -> bytes:
        """Return the message's body."""
        return self._text.encode()


@pytest.fixture(name="way", scope="module")
def traced_way() -> list[Place]:
    """The functions that the last shard of a version passes, in the order of their first calls."""
    World().upload_version()  # what is imported at first use runs code of its own
    world = World()
    world.services = replace(world.services, start=handle_request)
    world.upload_shards(*ALL_SHARDS[:-1])
    path = world.put(ALL_SHARDS[-1])
    event = {
        "id": "1",
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": f"/blobServices/default/containers/datasets/blobs/{path}",
        "data": {"api": "PutBlob"},
    }
    with pytest.MonkeyPatch.context() as patch, traced() as places:
        patch.setattr(functions, "services", lambda: world.services)
        handler(shard_uploaded)(Message(json.dumps(event)))
    assert [world.only_run().run_id] == world.jobs.submissions
    return places


def handler(trigger: Any) -> Callable[[Message], None]:
    """The function that the host calls for a trigger."""
    found: Callable[[Message], None] = trigger._function.get_user_function()
    return found


@contextmanager
def traced() -> Iterator[list[Place]]:
    """Note each function of ours that is called, once."""
    places: dict[Place, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event == "call" and path.startswith(f"{ROOT}/") and not name.startswith("<module>"):
            places.setdefault((path.removeprefix(f"{ROOT}/"), name))

    found: list[Place] = []
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
    found += [place for place in places if place[0].startswith(PACKAGES) and not place[0].startswith(DOUBLES)]


def files_of(way: list[Place], *packages: str) -> list[str]:
    """The files of some packages on the way."""
    return sorted({path for path, _ in way if path.partition("/")[0] in packages})


def test_a_shards_way_passes_few_files(way: list[Place]) -> None:
    """A reader can follow it in one sitting."""
    submitter, validator = files_of(way, "function_app", "shared"), files_of(way, "shard_validation")
    assert len(submitter) <= MAX_FILES_OF_THE_SUBMITTER, submitter
    assert len(validator) <= MAX_FILES_OF_THE_VALIDATOR, validator


def test_the_page_lists_functions_of_the_way_in_their_order(way: list[Place]) -> None:
    """Each function that docs/architecture.md names exists, is called, and not before the one above it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = [(step["path"], step["function"]) for step in STEP.finditer(page)]
    assert len(listed) >= 10, "docs/architecture.md has no numbered list of `file`: `function` — what it does"
    assert listed == sorted(listed, key=way.index)
