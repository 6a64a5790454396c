"""The real publisher client publishes to the emulator's topics in both schemas."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridEvent, EventGridPublisherClient, generate_sas

from tests.support.event_grid import TOPIC_KEY, EventGrid

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("event_grid")]


@pytest.fixture
def client(custom_topics: EventGrid) -> Iterator[EventGridPublisherClient]:
    with EventGridPublisherClient(custom_topics.topic_endpoint("landfall"), AzureKeyCredential(TOPIC_KEY)) as opened:
        yield opened


def _received_after(custom_topics: EventGrid, seq: int) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = custom_topics.get(f"/topics/landfall/received?since={seq}")
    return entries


def _last(custom_topics: EventGrid) -> int:
    return max((entry["seq"] for entry in custom_topics.get("/topics/landfall/received")), default=0)


def _event(**data: Any) -> EventGridEvent:
    return EventGridEvent(subject="runs/r1", event_type="Landfall.Test", data=data, data_version="1.0")


def test_events_are_kept_in_the_order_of_publishing(
    custom_topics: EventGrid, client: EventGridPublisherClient
) -> None:
    """A batch and a later event are kept in order, with the topic filled in."""
    before = _last(custom_topics)
    client.send([_event(n=1), _event(n=2)])
    client.send(_event(n=3))

    entries = _received_after(custom_topics, before)
    assert [{"n": 1}, {"n": 2}, {"n": 3}] == [entry["event"]["data"] for entry in entries]
    assert {"event_grid"} == {entry["schema"] for entry in entries}
    assert entries[0]["event"]["topic"].endswith("/providers/Microsoft.EventGrid/topics/landfall")
    assert "1" == entries[0]["event"]["metadataVersion"]


def test_cloud_events_are_kept_as_they_are(custom_topics: EventGrid, client: EventGridPublisherClient) -> None:
    """The batch has the other schema, with an extension attribute."""
    before = _last(custom_topics)
    sent = CloudEvent(source="/landfall", type="Landfall.Test", data={"n": 1}, extensions={"traceparent": "00"})
    client.send([sent])

    (entry,) = _received_after(custom_topics, before)
    assert ("cloud_events", sent.id) == (entry["schema"], entry["event"]["id"])
    assert {"n": 1} == entry["event"]["data"]
    assert "00" == entry["event"]["traceparent"]


def test_a_wrong_key_is_refused(custom_topics: EventGrid) -> None:
    """The client raises its authentication error, and nothing is stored."""
    before = _last(custom_topics)
    endpoint = custom_topics.topic_endpoint("landfall")
    with (
        EventGridPublisherClient(endpoint, AzureKeyCredential("wrong")) as wrong,
        pytest.raises(ClientAuthenticationError, match="the header aeg-sas-key does not hold the topic's key"),
    ):
        wrong.send(_event())

    assert [] == _received_after(custom_topics, before)


@pytest.mark.parametrize(("hours", "accepted"), [(1, True), (-1, False)])
def test_a_signature_counts_until_it_expires(custom_topics: EventGrid, hours: int, *, accepted: bool) -> None:
    """The SDK creates a shared access signature with the topic's key."""
    endpoint = custom_topics.topic_endpoint("landfall")
    token = generate_sas(endpoint, TOPIC_KEY, datetime.now(UTC) + timedelta(hours=hours))
    before = _last(custom_topics)
    with EventGridPublisherClient(endpoint, AzureSasCredential(token)) as signed:
        if accepted:
            signed.send(_event())
        else:
            with pytest.raises(ClientAuthenticationError):
                signed.send(_event())

    assert accepted == bool(_received_after(custom_topics, before))


def test_a_body_of_more_than_a_megabyte_is_refused(client: EventGridPublisherClient) -> None:
    """The status is 413, as from the service."""
    with pytest.raises(HttpResponseError) as raised:
        client.send(_event(text="x" * (1 << 20)))

    assert 413 == raised.value.status_code


def test_an_unknown_topic_is_not_found(custom_topics: EventGrid) -> None:
    """The status is 404, which the client raises as its own error."""
    endpoint = custom_topics.topic_endpoint("nowhere")
    with (
        EventGridPublisherClient(endpoint, AzureKeyCredential(TOPIC_KEY)) as lost,
        pytest.raises(ResourceNotFoundError),
    ):
        lost.send(_event())


def test_an_incomplete_event_is_refused_with_its_place(custom_topics: EventGrid) -> None:
    """The client would never send it; status 400 names the event and the fields."""
    answer = custom_topics.publish("landfall", {"id": "1", "subject": "s", "eventType": "t", "eventTime": "now"})

    assert 400 == answer.status_code
    assert "event 0 must have the texts dataVersion in the schema event_grid" == answer.json()["error"]["message"]
