"""The topic's notifier, with the real publisher client, against the Event Grid emulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from function_app.adapters.notifiers import TopicNotifier
from function_app.adapters.probes import topic_probe
from function_app.domain.checks import AbsentHereError
from function_app.domain.errors import NotificationError
from function_app.domain.records import NotificationRecord
from local_azure.azurite import Azurite
from local_azure.processes import wait_until
from tests.support.event_grid import TOPIC_KEY, EventGrid, start_event_grid, storage_settings

pytestmark = pytest.mark.azurite
PAGE = Path(__file__).resolve().parents[3] / "docs" / "subscribe.md"

NOTIFICATION = NotificationRecord(
    key="landfall-digits-v1-a1/registered/topic",
    subject="landfall-digits-v1-a1",
    outcome="registered",
    recipient="topic",
    content={"text": "digits/v1: model digits-cnn is registered.", "metrics": {"val_accuracy": 0.97}},
    created_at=datetime(2026, 11, 20, tzinfo=UTC),
)


@dataclass(frozen=True, kw_only=True)
class Subscriber:
    """A program that subscribes to the topic."""

    url: str
    printed: list[tuple[str, ...]]


class _Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


@pytest.fixture(scope="module")
def subscriber() -> Iterator[Subscriber]:
    """The subscriber in docs/subscribe.md, on a free port."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for line in program.splitlines() if line]
    assert (10, 'server.make_server("127.0.0.1", 8080, app).serve_forever()') == (len(lines), lines[-1])
    printed: list[tuple[str, ...]] = []
    names: dict[str, Any] = {"__name__": "subscriber", "print": lambda *words, **_: printed.append(words)}
    exec("\n".join(lines[:-1]), names)  # noqa: S102 (a page of this repository)
    with make_server("127.0.0.1", 0, names["app"], handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Subscriber(url=f"http://127.0.0.1:{server.server_port}/", printed=printed)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def event_grid(
    azurite: Azurite, subscriber: Subscriber, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EventGrid]:
    """An emulator with our topic, and the page's subscriber to models."""
    mine = {"name": "mine", "topic": "landfall", "webhook": subscriber.url, "cloud_events": True}
    config = {
        "storage": {
            "access_log": str(azurite.access_log),
            "account": "landfalldata",
            "connection_env": "DataStorage",
        },
        "queue_connection_env": "AzureWebJobsStorage",
        "subscriptions": [{**mine, "included_event_types": ["landfall.registered"]}],
        "topics": ["storage", "azureml", "landfall"],
    }
    running = start_event_grid(tmp_path_factory.mktemp("event_grid"), config, storage_settings(azurite))
    yield running
    running.process.stop()


def test_a_notification_arrives_as_a_cloud_event_with_its_own_id(event_grid: EventGrid) -> None:
    """The id consists of the idempotency key, so that a subscriber can detect a repetition."""
    notifier = TopicNotifier(event_grid.topic_endpoint("landfall"), key=TOPIC_KEY, client_id=None)
    for _ in range(2):
        notifier.send(NOTIFICATION)
    first, second = event_grid.get("/topics/landfall/received")
    event = first.get("event", first)
    assert (
        "landfall.registered",
        "/landfall",
        NOTIFICATION.subject,
        "urn:landfall:event:registered:1",
        dict(NOTIFICATION.content),
    ) == (
        event["type"],
        event["source"],
        event["subject"],
        event["dataschema"],
        {name: event["data"][name] for name in NOTIFICATION.content},
    )
    assert event["id"] == second.get("event", second)["id"]


def test_the_subscriber_of_the_page_hears_of_a_model_once(event_grid: EventGrid, subscriber: Subscriber) -> None:
    """Event Grid's handshake and filter work, and the event is published twice."""
    notifier = TopicNotifier(event_grid.topic_endpoint("landfall"), key=TOPIC_KEY, client_id=None)
    for outcome in ("registered", "registered", "failed", "registered"):
        key = f"{NOTIFICATION.key}/{'last' if subscriber.printed else 'first'}"
        notifier.send(replace(NOTIFICATION, key=key, outcome=outcome))
        if outcome == "failed":
            wait_until(lambda: subscriber.printed, what="the subscriber heard of the model")
    wait_until(lambda: len(subscriber.printed) > 1, what="the subscriber heard of the last model")
    expected = ("landfall.registered", "digits/v1: model digits-cnn is registered.")
    assert expected == subscriber.printed[-1]
    assert {"landfall.registered"} == {kind for kind, _ in subscriber.printed}


def test_an_endpoint_without_a_listener_is_an_error() -> None:
    """The notification stays in the outbox."""
    notifier = TopicNotifier("http://127.0.0.1:9/topics/landfall/api/events", key="a2V5", client_id=None)
    with pytest.raises(NotificationError, match=r"the topic at 127\.0\.0\.1 refused"):
        notifier.send(NOTIFICATION)


def test_a_topic_that_refuses_is_an_error(event_grid: EventGrid) -> None:
    """The cause may be a wrong key."""
    notifier = TopicNotifier(event_grid.topic_endpoint("landfall"), key="d3Jvbmc=", client_id=None)
    with pytest.raises(NotificationError, match="refused"):
        notifier.send(NOTIFICATION)


def test_the_check_sends_an_event_that_subscribers_can_leave_out(event_grid: EventGrid) -> None:
    """Its type is no outcome, so a subscription by types never receives it."""
    seen = len(event_grid.get("/topics/landfall/received"))
    check = topic_probe(TopicNotifier(event_grid.topic_endpoint("landfall"), key=TOPIC_KEY, client_id=None))
    assert "it took an event of type landfall.doctor" == check.look()
    (sent,) = event_grid.get("/topics/landfall/received")[seen:]
    assert ("landfall.doctor", "/landfall", "doctor") == tuple(
        sent["event"][name] for name in ("type", "source", "subject")
    )


def test_a_topic_to_which_the_app_may_not_send_is_found(event_grid: EventGrid) -> None:
    """It is found before the first notification is lost."""
    wrong = topic_probe(TopicNotifier(event_grid.topic_endpoint("landfall"), key="d3Jvbmc=", client_id=None))
    with pytest.raises(NotificationError, match="refused"):
        wrong.look()
    with pytest.raises(AbsentHereError, match="LANDFALL_NOTIFICATION_TOPIC_ENDPOINT is not set"):
        topic_probe(None).look()
