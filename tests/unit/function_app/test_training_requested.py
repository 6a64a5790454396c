"""Messages of the queue of training requests, and texts that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from function_app.domain.errors import InvalidEventError
from function_app.domain.events import MAX_REQUEST_BYTES, TrainingRequest
from tests.support.world import VERSION

REQUEST = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed")


def message(**changes: Any) -> str:
    """A message with members exchanged."""
    return json.dumps(json.loads(REQUEST.to_json()) | changes)


def test_a_request_reads_back_as_it_was_sent() -> None:
    """With and without a run."""
    named = TrainingRequest(dataset_version=VERSION, generation=2, trigger="http", run_id="landfall-x-a1")
    assert [REQUEST, named] == [TrainingRequest.from_json(one.to_json()) for one in (REQUEST, named)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        message(generation="1"),
        message(generation=True),
        message(trigger=""),
        message(trigger=None),
        message(run_id=5),
        message(dataset_version={"dataset": "digits"}),
        message(dataset_version={"dataset": "digits", "version": 1}),
        message(unknown=1),
        "x" * (MAX_REQUEST_BYTES + 1),
    ],
)
def test_what_is_no_request_raises_and_ends_as_poison(text: str) -> None:
    """Only Landfall writes into this queue; anything else is somebody's mistake."""
    with pytest.raises(InvalidEventError, match="training request"):
        TrainingRequest.from_json(text)
