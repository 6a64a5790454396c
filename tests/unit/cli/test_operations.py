"""The operator's commands: what they ask for, and what they print."""

from __future__ import annotations

from typing import Any

from cli.dead_letters import describe as describe_letter
from cli.reconcile import describe as describe_sweep
from tests.unit.cli.test_api_client import FunctionApp

LETTER: dict[str, Any] = {
    "dead_letter_id": "0123456789abcdef",
    "source": "shard-uploaded",
    "subject": "digits/v1/train-00000-of-00002.tfrecord",
    "error": "storage did not answer",
    "tries": 5,
    "died_at": "2026-11-20T12:00:00Z",
    "num_deaths": 2,
    "state": "waiting",
    "num_replays": 1,
    "replayed_at": "2026-11-20T11:00:00Z",
    "payload": '{"id": "e1"}',
    "is_whole": True,
}


def test_a_letter_is_shown_with_its_error_and_payload() -> None:
    """Everything that somebody needs who decides about a replay."""
    text = "\n".join(describe_letter(LETTER))
    wanted = [
        "waiting",
        "about digits/v1/train",
        "after 5 tries, 2 times",
        "replayed 1 times",
        "did not answer",
        '"id"',
    ]
    assert [] == [words for words in wanted if words not in text]


def test_a_letter_that_was_cut_says_so() -> None:
    """Its payload may be no JSON then."""
    text = "\n".join(describe_letter(LETTER | {"is_whole": False, "payload": "{half"}))
    assert "its beginning; it cannot be replayed):\n    {half" in text


def test_a_sweep_is_described_with_its_problems() -> None:
    """What failed is told line by line."""
    names = [
        "versions",
        "versions_unchanged",
        "shards_judged",
        "runs",
        "unknown_jobs",
        "notifications",
        "dead_letters",
    ]
    lines = list(describe_sweep({**dict.fromkeys(names, 3), "problems": ["look at job X: no answer"]}))
    assert ("3 dataset versions, 3 of them unchanged", "failed: look at job X: no answer") == (lines[0], lines[-1])


def test_paths_are_asked_for_as_given() -> None:
    """With parameters, and the key in its header."""
    app = FunctionApp(body={"dead_letters": []})
    with app.client() as client:
        client.get("/api/dead-letters", limit=5)
        client.post("/api/reconcile")
    assert [("GET", "/api/dead-letters?limit=5"), ("POST", "/api/reconcile")] == [
        (request.method, request.url.raw_path.decode()) for request in app.requests
    ]
