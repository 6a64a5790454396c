"""Webhooks: handshakes, retries, dead letters, filters and faults. The emulator's own webhooks are the endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local_azure.processes import wait_until
from tests.support.event_grid import EventGrid, custom_event, start_event_grid
from tests.support.processes import free_port

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("event_grid")]

RETRIES_S = [0, 0.05, 0.1]
TOPICS = [f"topic-{number:02d}" for number in range(40)]
"""Topics with one subscription for all events and one with filters. Every test takes the next topic."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic of one test, and the two webhooks that receive its events."""

    grid: EventGrid
    name: str

    def publish(self, *events: dict[str, Any]) -> None:
        """Publish events."""
        self.grid.publish(self.name, *events).raise_for_status()

    def set_faults(self, **plan: Any) -> None:
        """Apply a plan of faults from the next event on."""
        self.grid.request("PUT", "/faults", json={"topic": self.name, **plan}).raise_for_status()

    def faults(self) -> dict[str, Any]:
        """Return the plan, and what it did."""
        faults: dict[str, Any] = self.grid.get("/faults")[self.name]
        return faults

    def answer(self, status: int, times: int) -> None:
        """Let the webhook for all events return errors."""
        answer = {"status": status, "times": times}
        self.grid.request("PUT", f"/webhooks/all-{self.name}", json=answer).raise_for_status()

    def notifications(self, webhook: str = "all") -> list[dict[str, Any]]:
        """Return the deliveries to a webhook, in order."""
        received = self.grid.get(f"/webhooks/{webhook}-{self.name}/received")
        return [one for one in received if one["headers"]["aeg-event-type"] == "Notification"]

    def ids(self, count: int, webhook: str = "all") -> list[str]:
        """Return the ids of the events that arrived, in order, once there are `count`."""
        wait_until(lambda: len(self.notifications(webhook)) >= count, what=f"{count} deliveries to {webhook}")
        return [json.loads(one["body"])[0]["id"] for one in self.notifications(webhook)]

    def state(self) -> dict[str, Any]:
        """Return the state of the subscription for all events."""
        state: dict[str, Any] = next(s for s in self.grid.get("/subscriptions") if s["name"] == f"all-{self.name}")
        return state

    def await_nothing_pending(self) -> None:
        """Wait until every event is delivered or dead-lettered."""
        wait_until(lambda: self.state()["pending"] == 0, what="nothing to be pending")

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters, once there are any."""
        return self.grid.wait_for(f"/subscriptions/all-{self.name}/dead-letters", bool, "a dead letter")


def subscriptions(topic: str, port: int) -> list[dict[str, Any]]:
    """Return the subscriptions of a topic to the emulator's own webhooks."""

    def to(webhook: str, **filters: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{port}/webhooks/{webhook}-{topic}"
        return {
            "name": f"{webhook}-{topic}",
            "topic": topic,
            "webhook": url,
            "retry_schedule_s": RETRIES_S,
            **filters,
        }

    filters = {
        "included_event_types": ["run.completed"],
        "subject_begins_with": "runs/",
        "subject_ends_with": "A1",
    }
    return [to("all"), to("filtered", **filters)]


@pytest.fixture(scope="module")
def delivering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EventGrid, Iterator[str]]]:
    """An emulator that delivers to itself (so its port is chosen before it starts), and its unused topics."""
    port = free_port()
    config = {"topics": TOPICS, "subscriptions": [one for topic in TOPICS for one in subscriptions(topic, port)]}
    running = start_event_grid(tmp_path_factory.mktemp("delivering"), config, {}, port=port)
    running.wait_for("/subscriptions", lambda seen: all(one["ready"] for one in seen), "the handshakes")
    yield running, iter(TOPICS)
    running.process.stop()


@pytest.fixture
def topic(delivering: tuple[EventGrid, Iterator[str]]) -> Iterator[Topic]:
    """A topic for this test."""
    grid, unused = delivering
    yield Topic(grid=grid, name=next(unused))
    grid.request("DELETE", "/faults")


def test_an_event_is_delivered_as_an_array_of_one(topic: Topic) -> None:
    """The delivery has Event Grid's headers; topic and metadata version are filled in."""
    topic.publish(custom_event("e1", n=1))
    topic.ids(1)

    (one,) = topic.notifications()
    headers = {name.lower(): value for name, value in one["headers"].items()}
    assert ("Notification", f"all-{topic.name}".upper(), "0", "1") == (
        headers["aeg-event-type"],
        headers["aeg-subscription-name"],
        headers["aeg-delivery-count"],
        headers["aeg-data-version"],
    )
    (event,) = json.loads(one["body"])
    assert ({"n": 1}, "1") == (event["data"], event["metadataVersion"])
    assert event["topic"].endswith(f"/topics/{topic.name}")


def test_filters_let_through_what_fulfils_all_of_them(topic: Topic) -> None:
    """The filters are type, prefix and suffix of the subject, in any case."""
    topic.publish(
        custom_event("type", "runs/x-a1", "Run.Started"),
        custom_event("begin", "models/x-a1", "Run.Completed"),
        custom_event("end", "runs/x-a2", "Run.Completed"),
        custom_event("fits", "Runs/x-a1", "Run.Completed"),
    )

    assert ["fits"] == topic.ids(1, "filtered")
    assert ["type", "begin", "end", "fits"] == topic.ids(4)


def test_a_failing_endpoint_is_tried_again(topic: Topic) -> None:
    """Two failures, then success: three attempts, counted in their header, and no dead letter."""
    topic.answer(500, times=2)
    topic.publish(custom_event("e1"))

    assert ["e1"] * 3 == topic.ids(3)
    assert ["0", "1", "2"] == [one["headers"]["aeg-delivery-count"] for one in topic.notifications()]
    topic.await_nothing_pending()
    assert (1, 2, 0) == tuple(topic.state()[key] for key in ("delivered", "failed_attempts", "dead_letters"))


def test_an_event_is_given_up_after_the_schedule(topic: Topic) -> None:
    """The dead letter has the event, the reason, the last error and the number of attempts."""
    topic.answer(503, times=99)
    topic.publish(custom_event("e1"))

    (letter,) = topic.dead_letters()
    assert ("MaxDeliveryAttemptsExceeded", 3, "e1", "answered 503: ") == (
        letter["event"]["deadLetterReason"],
        letter["event"]["deliveryAttempts"],
        letter["event"]["id"],
        letter["lastError"],
    )
    topic.await_nothing_pending()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "BadRequest"), (401, "Unauthorized"), (403, "Forbidden"), (413, "PayloadTooLarge")],
)
def test_refusals_are_not_repeated(topic: Topic, status: int, outcome: str) -> None:
    """One attempt, then a dead letter."""
    topic.answer(status, times=1)
    topic.publish(custom_event("e1"))

    (letter,) = topic.dead_letters()
    event = letter["event"]
    assert (f"UndeliverableDueToHttp{outcome}", outcome, 1) == (
        event["deadLetterReason"],
        event["lastDeliveryOutcome"],
        event["deliveryAttempts"],
    )
    assert ["e1"] == topic.ids(1)


def test_later_events_do_not_wait_for_a_retry(topic: Topic) -> None:
    """The second event overtakes the first, which failed once."""
    topic.answer(500, times=1)
    topic.publish(custom_event("e1"), custom_event("e2"))

    assert ["e1", "e2", "e1"] == topic.ids(3)


def test_events_can_be_lost(topic: Topic) -> None:
    """They are on the topic and are not delivered until the faults are reset."""
    topic.set_faults(drop=True)
    topic.publish(custom_event("lost"))
    topic.grid.request("DELETE", "/faults")
    topic.publish(custom_event("kept"))

    assert ["kept"] == topic.ids(1)
    assert ["lost", "kept"] == [entry["event"]["id"] for entry in topic.grid.get(f"/topics/{topic.name}/received")]
    assert 1 == topic.faults()["dropped"]


def _survivors(topic: Topic, mark: str) -> list[str]:
    """Return which of twenty events arrive if half are lost by seed 7; ``mark`` is published last."""
    before = len(topic.notifications())
    topic.set_faults(drop_fraction=0.5, seed=7)
    topic.publish(*[custom_event(f"{index}") for index in range(20)])
    topic.grid.request("DELETE", "/faults")
    topic.publish(custom_event(mark))
    wait_until(lambda: mark in topic.ids(1), what="the mark to arrive")
    return topic.ids(1)[before:-1]


def test_a_share_of_the_events_is_lost_by_a_seed(topic: Topic) -> None:
    """The same seed loses the same events, and not all of them."""
    first, second = _survivors(topic, "mark-1"), _survivors(topic, "mark-2")

    assert first == second
    assert 0 < len(first) < 20


def test_an_event_can_arrive_several_times(topic: Topic) -> None:
    """The number of deliveries is the requested one, all with the same id."""
    topic.set_faults(deliveries=3)
    topic.publish(custom_event("e1"))

    assert ["e1"] * 3 == topic.ids(3)
    topic.await_nothing_pending()


def test_held_events_are_let_go_together_in_reverse(topic: Topic) -> None:
    """Nothing arrives before the third event; then the newest comes first."""
    topic.set_faults(order="reverse", hold_until=3)
    topic.publish(custom_event("e1"), custom_event("e2"))
    assert 2 == topic.faults()["held"]
    assert [] == topic.notifications()
    topic.publish(custom_event("e3"))

    assert ["e3", "e2", "e1"] == topic.ids(3)


def test_held_events_can_be_released(topic: Topic) -> None:
    """The release does not wait for the number; the response says how many there were."""
    topic.set_faults(hold_until=100)
    topic.publish(custom_event("e1"), custom_event("e2"))

    assert 2 == topic.grid.request("POST", "/release").json()["released"][topic.name]
    assert ["e1", "e2"] == topic.ids(2)


def test_deliveries_can_be_late(topic: Topic) -> None:
    """The delay passes at least between publishing and arrival."""
    topic.set_faults(delay_s=0.5)
    topic.publish(custom_event("e1"))
    topic.ids(1)

    (published,) = topic.grid.get(f"/topics/{topic.name}/received")
    (arrived,) = topic.notifications()
    assert datetime.fromisoformat(arrived["time"]) - datetime.fromisoformat(published["time"]) >= timedelta(
        seconds=0.5
    )


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"topic": "nowhere"}, "there is no topic called 'nowhere'"),
        ({"dropp": True}, "not ['dropp']"),
        ({"deliveries": 0}, "deliveries must be from 1 to 100, not 0"),
        ({"order": "sideways"}, "order must be one of"),
        ({"drop": 1}, "drop must be bool, not 1"),
    ],
)
def test_a_fault_that_is_not_known_is_refused(topic: Topic, plan: dict[str, Any], said: str) -> None:
    """The message names the field."""
    answer = topic.grid.request("PUT", "/faults", json={"topic": topic.name, **plan})

    assert answer.status_code in (400, 404)
    assert said in answer.json()["error"]["message"]


def test_what_was_not_delivered_is_delivered_after_a_restart(tmp_path: Path) -> None:
    """The next emulator delivers the event, exactly once, to an endpoint that was unreachable before."""
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
    _delivered_ids(endpoint, 1)
    endpoint.request("PUT", "/webhooks/other", json={"status": 500, "times": 1})
    first.publish("azureml", custom_event("failed"))
    _delivered_ids(endpoint, 2)
    assert 0 == first.process.stop()

    second = start_event_grid(tmp_path / "grid", config, {}, port=port)

    assert ["delivered", "failed", "failed"] == _delivered_ids(endpoint, 3)
    assert 0 == second.process.stop()
    endpoint.process.stop()


def _delivered_ids(endpoint: EventGrid, count: int) -> list[str]:
    """Return the ids of the deliveries to the webhook `other`, once there are `count`."""

    def arrived() -> list[str] | None:
        received = endpoint.get("/webhooks/other/received")
        events = [one for one in received if one["headers"]["aeg-event-type"] == "Notification"]
        return [json.loads(one["body"])[0]["id"] for one in events] if len(events) >= count else None

    return wait_until(arrived, what=f"{count} deliveries")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
