"""Errors of handlers: they reach the host, and the record."""

from __future__ import annotations

import pytest

from function_app.domain.errors import NotFoundError, ServiceUnavailableError
from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import HistoryEntry
from function_app.sweep.dead_letters import failures_of, failures_on_record
from function_app.testing.ledger import MemoryLedger
from tests.support.world import World


def test_a_handler_that_succeeds_leaves_no_line() -> None:
    """There is one line for each failure and none for anything else."""
    world = World()
    with failures_on_record(SHARD_UPLOADED, b"body", world.services):
        pass
    assert [] == failures_of(SHARD_UPLOADED, "body", world.services)


def test_an_error_is_recorded_and_goes_on() -> None:
    """The host must see it, or it would take the message for handled."""
    world = World()
    with pytest.raises(NotFoundError), failures_on_record(SHARD_UPLOADED, b"body", world.services):
        raise NotFoundError("the run is\nnot on record")
    assert ["the run is not on record"] == [
        line.reason for line in failures_of(SHARD_UPLOADED, "body", world.services)
    ]


def test_an_unforeseen_error_is_recorded_with_its_kind() -> None:
    """A bare message of a KeyError says nothing."""
    world = World()
    with pytest.raises(KeyError), failures_on_record(SHARD_UPLOADED, "body", world.services):
        raise KeyError("subject")
    assert ["KeyError: 'subject'"] == [line.reason for line in failures_of(SHARD_UPLOADED, "body", world.services)]


def test_messages_are_distinguished_by_source_and_body() -> None:
    """A failure of one is no failure of another."""
    world = World()
    with pytest.raises(NotFoundError), failures_on_record(SHARD_UPLOADED, "body", world.services):
        raise NotFoundError("gone")
    found = [failures_of(source, body, world.services) for source, body in ((SHARD_UPLOADED, "x"), ("other", "body"))]
    assert [[], []] == found


class SilentLedger(MemoryLedger):
    """A ledger that cannot be written to."""

    def add_history_entry(self, entry: HistoryEntry) -> None:
        raise ServiceUnavailableError(f"{entry.subject}: storage did not answer")


def test_where_the_ledger_fails_too_the_first_error_goes_on() -> None:
    """What brought the handler down is what the host should log."""
    world = World(ledger=SilentLedger())
    with pytest.raises(NotFoundError), failures_on_record(SHARD_UPLOADED, "body", world.services):
        raise NotFoundError("gone")
