"""Ids of traces: the same in every process, and read strictly where they come from outside."""

from __future__ import annotations

import pytest

from shared.traces import (
    Place,
    place_of_content,
    place_of_generation,
    place_of_run,
    place_of_version,
    read_traceparent,
)

VERSION = "digits/2026-11-20"


def test_a_version_its_closings_and_its_runs_are_places_of_one_trace() -> None:
    """Each place has an id of its own, and another version is another trace."""
    places = [
        place_of_version(VERSION),
        place_of_generation(VERSION, 1),
        place_of_generation(VERSION, 2),
        place_of_run(VERSION, "landfall-digits-a1"),
    ]
    assert (1, 4) == (len({place.trace_id for place in places}), len({place.span_id for place in places}))
    assert place_of_version(VERSION) != place_of_version("digits/2026-11-21")


def test_the_ids_are_those_of_every_release() -> None:
    """A late event of an earlier release's job lands in the trace that it began."""
    assert "00-0fa53d3fc7e2f532744299668c5b6405-ea40499284f6fcaa-01" == place_of_version(VERSION).traceparent


def test_a_notification_belongs_to_its_run_or_its_version() -> None:
    """What names neither has no place."""
    about = {"dataset": "digits", "version": "2026-11-20"}
    assert (place_of_version(VERSION), place_of_run(VERSION, "r"), None) == (
        place_of_content(about),
        place_of_content({**about, "run_id": "r"}),
        place_of_content({"text": "a dead letter"}),
    )


def test_a_traceparent_is_read_as_it_was_written() -> None:
    """The W3C's own example."""
    text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert Place(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331") == read_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "x" * 100_000,
    ],
)
def test_a_malformed_traceparent_is_none(text: object) -> None:
    """It comes from outside; nothing but a link depends on it."""
    assert read_traceparent(text) is None
