from __future__ import annotations

import json
from typing import Any

import pytest

from local_azure.event_grid.config import AdvancedFilter, SubscriptionConfig
from local_azure.event_grid.events import Event, InvalidEventError, matches, parse_events
from tests.support.event_grid import custom_event

CLOUD = {"specversion": "1.0", "id": "c1", "source": "/s", "type": "T"}


def test_the_topic_is_filled_in_where_it_is_open() -> None:
    """A publisher that stands in for a service names its own."""
    body = json.dumps([custom_event("1"), custom_event("2") | {"topic": "/mine"}]).encode()

    events = parse_events("application/json", body, "/theirs")

    assert ["/theirs", "/mine"] == [event.body["topic"] for event in events]


def test_a_single_event_is_as_good_as_an_array() -> None:
    """This holds for both schemas."""
    single = parse_events("application/cloudevents+json", json.dumps(CLOUD).encode(), "/t")
    batch = parse_events("application/cloudevents-batch+json", json.dumps([CLOUD]).encode(), "/t")

    assert [Event(schema="cloud_events", body=CLOUD)] == single == batch


@pytest.mark.parametrize(
    ("content_type", "content", "said"),
    [
        ("application/json", "{", "the body must be JSON"),
        ("application/json", "[1]", "event 0 must be an object, not int"),
        (
            "application/json",
            json.dumps([custom_event("1"), {}]),
            "event 1 must have the texts id, subject, eventType",
        ),
        (
            "application/cloudevents+json",
            json.dumps(CLOUD | {"id": 1}),
            "event 0 must have the texts id in the schema",
        ),
    ],
)
def test_what_is_no_event_is_refused(content_type: str, content: str, said: str) -> None:
    """The error has the place in the array and what is missing."""
    with pytest.raises(InvalidEventError) as raised:
        parse_events(content_type, content.encode(), "/t")

    assert said in str(raised.value)


def one(operator: str, key: str, *values: str) -> AdvancedFilter:
    """An advanced filter."""
    return AdvancedFilter(operator=operator, key=key, values=values)


@pytest.mark.parametrize(
    ("filters", "through"),
    [
        ({}, True),
        ({"included_event_types": frozenset({"test.HAPPENED"})}, True),
        ({"included_event_types": frozenset({"Test.Other"})}, False),
        ({"subject_begins_with": "RUNS/"}, True),
        ({"subject_begins_with": "models/"}, False),
        ({"subject_ends_with": "-A1"}, True),
        ({"subject_ends_with": "-a2"}, False),
        ({"advanced_filters": (one("StringContains", "subject", "x", "NS/X-"),)}, True),
        ({"advanced_filters": (one("StringContains", "subject", "y"),)}, False),
        ({"advanced_filters": (one("StringIn", "data.api", "putblob", "CopyBlob"),)}, True),
        ({"advanced_filters": (one("StringIn", "data.api", "Put"),)}, False),
        ({"advanced_filters": (one("StringIn", "data.absent", "x"),)}, False),
        ({"advanced_filters": (one("StringIn", "data.n", "1"),)}, False),
        ({"advanced_filters": (one("StringIn", "data.api", "PutBlob"), one("StringIn", "subject", "y"))}, False),
    ],
)
def test_filters_ignore_case(filters: dict[str, Any], *, through: bool) -> None:
    """Each filter alone; of several advanced ones all must accept the event."""
    event = Event(schema="event_grid", body=custom_event("1", "runs/x-a1", api="PutBlob", n=1))

    assert through == matches(event, SubscriptionConfig(name="s", topic="t", **filters))
