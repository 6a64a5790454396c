"""Webhooks: handshakes, retries, dead letters, filters and faults. The emulator's own receivers are the endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local_azure.ports import free_port
from local_azure.processes import wait_until
from tests.support.event_grid import EventGrid, custom_event, start_event_grid

RETRIES_S = [0, 0.05, 0.1]


def _config(port: int) -> dict[str, Any]:
    def to(receiver: str, **more: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{port}/webhooks/{receiver}"
        return {"name": receiver, "topic": "azureml", "webhook": url, "retry_schedule_s": RETRIES_S, **more}

    return {
        "topics": ["azureml"],
        "subscriptions": [
            to("all"),
            to(
                "filtered",
                included_event_types=["run.completed"],
                subject_begins_with="runs/",
                subject_ends_with="A1",
            ),
        ],
    }


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[EventGrid]:
    """An emulator that delivers to itself: its port must be known before it starts."""
    port = free_port()
    running = start_event_grid(tmp_path, _config(port), {}, port=port)
    running.wait_for("/subscriptions", lambda seen: all(one["ready"] for one in seen), "the handshakes")
    yield running
    running.process.stop()


def _notifications(grid: EventGrid, receiver: str = "all") -> list[dict[str, Any]]:
    received = grid.get(f"/webhooks/{receiver}/received")
    return [one for one in received if one["headers"]["aeg-event-type"] == "Notification"]


def _ids(grid: EventGrid, count: int, receiver: str = "all") -> list[str]:
    """The ids of the events that arrived, in order, once there are ``count``."""
    wait_until(lambda: len(_notifications(grid, receiver)) >= count, what=f"{count} deliveries to {receiver}")
    return [json.loads(one["body"])[0]["id"] for one in _notifications(grid, receiver)]


def _state(grid: EventGrid, name: str = "all") -> dict[str, Any]:
    state: dict[str, Any] = next(one for one in grid.get("/subscriptions") if one["name"] == name)
    return state


def _settled(grid: EventGrid) -> None:
    wait_until(lambda: _state(grid)["pending"] == 0, what="nothing to be pending")


def test_an_event_is_delivered_as_an_array_of_one(grid: EventGrid) -> None:
    """With Event Grid's headers, and completed with topic and metadata version."""
    grid.publish("azureml", custom_event("e1", n=1))
    _ids(grid, 1)

    (one,) = _notifications(grid)
    headers = {name.lower(): value for name, value in one["headers"].items()}
    assert ("Notification", "ALL", "0", "1") == (
        headers["aeg-event-type"],
        headers["aeg-subscription-name"],
        headers["aeg-delivery-count"],
        headers["aeg-data-version"],
    )
    (event,) = json.loads(one["body"])
    assert ({"n": 1}, "1") == (event["data"], event["metadataVersion"])
    assert event["topic"].endswith("/topics/azureml")


def test_filters_let_through_what_fulfils_all_of_them(grid: EventGrid) -> None:
    """Type, beginning and end of the subject, in any case."""
    grid.publish(
        "azureml",
        custom_event("type", "runs/x-a1", "Run.Started"),
        custom_event("begin", "models/x-a1", "Run.Completed"),
        custom_event("end", "runs/x-a2", "Run.Completed"),
        custom_event("fits", "Runs/x-a1", "Run.Completed"),
    )

    assert ["fits"] == _ids(grid, 1, "filtered")
    assert ["type", "begin", "end", "fits"] == _ids(grid, 4)


def test_a_failing_endpoint_is_tried_again(grid: EventGrid) -> None:
    """Two failures, then success: three attempts, counted in their header, and no dead letter."""
    grid.request("PUT", "/webhooks/all", json={"status": 500, "times": 2})
    grid.publish("azureml", custom_event("e1"))

    assert ["e1"] * 3 == _ids(grid, 3)
    assert ["0", "1", "2"] == [one["headers"]["aeg-delivery-count"] for one in _notifications(grid)]
    _settled(grid)
    assert (1, 2, 0) == tuple(_state(grid)[key] for key in ("delivered", "failed_attempts", "dead_letters"))


def test_an_event_is_given_up_after_the_schedule(grid: EventGrid) -> None:
    """The dead letter holds the event, the reason, the last error and the number of attempts."""
    grid.request("PUT", "/webhooks/all", json={"status": 503, "times": 99})
    grid.publish("azureml", custom_event("e1"))

    (letter,) = grid.wait_for("/subscriptions/all/dead-letters", bool, "a dead letter")
    assert ("MaxDeliveryAttemptsExceeded", 3, "e1", "answered 503: ") == (
        letter["event"]["deadLetterReason"],
        letter["event"]["deliveryAttempts"],
        letter["event"]["id"],
        letter["lastError"],
    )
    _settled(grid)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "BadRequest"), (401, "Unauthorized"), (403, "Forbidden"), (413, "PayloadTooLarge")],
)
def test_refusals_are_not_repeated(grid: EventGrid, status: int, outcome: str) -> None:
    """One attempt, then a dead letter."""
    grid.request("PUT", "/webhooks/all", json={"status": status, "times": 1})
    grid.publish("azureml", custom_event("e1"))

    (letter,) = grid.wait_for("/subscriptions/all/dead-letters", bool, "a dead letter")
    event = letter["event"]
    assert (f"UndeliverableDueToHttp{outcome}", outcome, 1) == (
        event["deadLetterReason"],
        event["lastDeliveryOutcome"],
        event["deliveryAttempts"],
    )
    assert ["e1"] == _ids(grid, 1)


def test_later_events_do_not_wait_for_a_retry(grid: EventGrid) -> None:
    """The second event overtakes the first, which failed once."""
    grid.request("PUT", "/webhooks/all", json={"status": 500, "times": 1})
    grid.publish("azureml", custom_event("e1"), custom_event("e2"))

    assert ["e1", "e2", "e1"] == _ids(grid, 3)


def test_events_can_be_lost(grid: EventGrid) -> None:
    """They are on the topic, and nobody gets them, until the faults are reset."""
    grid.request("PUT", "/faults", json={"topic": "azureml", "drop": True})
    grid.publish("azureml", custom_event("lost"))
    grid.request("DELETE", "/faults")
    grid.publish("azureml", custom_event("kept"))

    assert ["kept"] == _ids(grid, 1)
    assert ["lost", "kept"] == [entry["event"]["id"] for entry in grid.get("/topics/azureml/received")]
    assert 1 == grid.get("/faults")["azureml"]["dropped"]


def _survivors(grid: EventGrid, mark: str) -> list[str]:
    """Which of twenty events arrive when half are lost by the seed 7; ``mark`` is published last."""
    before = len(_notifications(grid))
    grid.request("PUT", "/faults", json={"topic": "azureml", "drop_fraction": 0.5, "seed": 7})
    grid.publish("azureml", *[custom_event(f"{index}") for index in range(20)])
    grid.request("DELETE", "/faults")
    grid.publish("azureml", custom_event(mark))
    wait_until(lambda: mark in _ids(grid, 1), what="the mark to arrive")
    return _ids(grid, 1)[before:-1]


def test_a_share_of_the_events_is_lost_by_a_seed(grid: EventGrid) -> None:
    """The same seed loses the same events, and not all of them."""
    first, second = _survivors(grid, "mark-1"), _survivors(grid, "mark-2")

    assert first == second
    assert 0 < len(first) < 20


def test_an_event_can_arrive_several_times(grid: EventGrid) -> None:
    """As many deliveries as asked for, with one id."""
    grid.request("PUT", "/faults", json={"topic": "azureml", "deliveries": 3})
    grid.publish("azureml", custom_event("e1"))

    assert ["e1"] * 3 == _ids(grid, 3)
    _settled(grid)


def test_held_events_are_let_go_together_in_reverse(grid: EventGrid) -> None:
    """Nothing arrives until the third event; then the newest comes first."""
    grid.request("PUT", "/faults", json={"topic": "azureml", "order": "reverse", "hold_until": 3})
    grid.publish("azureml", custom_event("e1"), custom_event("e2"))
    assert 2 == grid.get("/faults")["azureml"]["held"]
    assert [] == _notifications(grid)
    grid.publish("azureml", custom_event("e3"))

    assert ["e3", "e2", "e1"] == _ids(grid, 3)


def test_held_events_can_be_released(grid: EventGrid) -> None:
    """Without waiting for the number; the answer says how many there were."""
    grid.request("PUT", "/faults", json={"topic": "azureml", "hold_until": 100})
    grid.publish("azureml", custom_event("e1"), custom_event("e2"))

    assert {"released": {"azureml": 2}} == grid.request("POST", "/release").json()
    assert ["e1", "e2"] == _ids(grid, 2)


def test_deliveries_can_be_late(grid: EventGrid) -> None:
    """Between publishing and arrival at least the delay passes."""
    grid.request("PUT", "/faults", json={"topic": "azureml", "delay_s": 0.5})
    grid.publish("azureml", custom_event("e1"))
    _ids(grid, 1)

    (published,) = grid.get("/topics/azureml/received")
    (arrived,) = _notifications(grid)
    assert datetime.fromisoformat(arrived["time"]) - datetime.fromisoformat(published["time"]) >= timedelta(
        seconds=0.5
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "nowhere"}, "topic should be one of ['azureml'], is 'nowhere'"),
        ({"topic": "azureml", "dropp": True}, "not ['dropp']"),
        ({"topic": "azureml", "deliveries": 0}, "deliveries should be from 1 to 100, is 0"),
        ({"topic": "azureml", "order": "sideways"}, "order should be one of"),
        ({"topic": "azureml", "drop": 1}, "drop should be bool, is 1"),
    ],
)
def test_a_fault_that_is_not_known_is_refused(grid: EventGrid, given: dict[str, Any], said: str) -> None:
    """The message names the field."""
    answer = grid.request("PUT", "/faults", json=given)

    assert answer.status_code in (400, 404)
    assert said in answer.json()["error"]["message"]


def test_what_was_not_delivered_is_delivered_after_a_restart(tmp_path: Path) -> None:
    """An endpoint that was away while the emulator lived gets the event from the next one, and only once."""
    port, endpoint_port = free_port(), free_port()
    endpoint = start_event_grid(_made(tmp_path / "endpoint"), {"topics": []}, {}, port=endpoint_port)
    config = {
        "topics": ["azureml"],
        "subscriptions": [
            {
                "name": "other",
                "topic": "azureml",
                "webhook": f"http://127.0.0.1:{endpoint_port}/webhooks/other",
                "retry_schedule_s": [0, 600],
            }
        ],
    }
    first = start_event_grid(_made(tmp_path / "grid"), config, {}, port=port)
    first.wait_for("/subscriptions", lambda seen: bool(seen[0]["ready"]), "the handshake")
    first.publish("azureml", custom_event("delivered"))
    _ids(endpoint, 1, "other")
    endpoint.request("PUT", "/webhooks/other", json={"status": 500, "times": 1})
    first.publish("azureml", custom_event("failed"))
    _ids(endpoint, 2, "other")
    assert 0 == first.process.stop()

    second = start_event_grid(tmp_path / "grid", config, {}, port=port)

    assert ["delivered", "failed", "failed"] == _ids(endpoint, 3, "other")
    assert 0 == second.process.stop()
    endpoint.process.stop()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
