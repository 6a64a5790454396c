"""Dead letters: what both ledgers keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DeadLetter, DeadLetterState
from function_app.ports import Ledger
from tests.support.ledger_records import NOON, dead_letter_record
from tests.support.threads import at_once


def stored(ledger: Ledger, letter: DeadLetter) -> DeadLetter:
    """Add a letter and return it as the ledger has it, with its revision."""
    assert ledger.add_dead_letter(letter)
    found = ledger.dead_letter(letter.dead_letter_id)
    assert found is not None
    return found


def test_an_unknown_letter_is_none(ledger: Ledger) -> None:
    """Asking for it is no error."""
    assert (None, []) == (ledger.dead_letter("nobody"), ledger.dead_letters())


def test_a_letter_is_returned_as_it_was_added(ledger: Ledger) -> None:
    """Every member survives, a payload of several columns too."""
    letter = dead_letter_record(
        "ß✓" * 20_000,
        is_whole=False,
        death="0x8DE2",
        num_deaths=3,
        state=DeadLetterState.REPLAYED,
        num_replays=2,
        replayed_at=NOON + timedelta(hours=1),
    )
    assert letter == replace(stored(ledger, letter), revision="")


def test_a_letter_is_added_once(ledger: Ledger) -> None:
    """Of twenty who find the same remains, one writes."""
    won = at_once([partial(ledger.add_dead_letter, dead_letter_record())] * 20)
    assert (1, 1) == (won.count(True), len(ledger.dead_letters()))


def test_a_changed_letter_is_saved_under_its_revision(ledger: Ledger) -> None:
    """Of two who replay it at once, one learns that it was the second."""
    letter = stored(ledger, dead_letter_record())
    saved = ledger.save_dead_letter(replace(letter, num_replays=1))
    with pytest.raises(LedgerConflictError, match="read it again"):
        ledger.save_dead_letter(replace(letter, num_replays=7))
    assert saved == ledger.dead_letter(letter.dead_letter_id)


def test_a_letter_that_was_never_added_cannot_be_saved(ledger: Ledger) -> None:
    """Saving is no way around the insert."""
    with pytest.raises(LedgerConflictError, match="is not there"):
        ledger.save_dead_letter(dead_letter_record())


def test_waiting_letters_come_first_then_the_last_to_die(ledger: Ledger) -> None:
    """What needs somebody is on top, and a limit cuts off what needs nobody."""
    for payload, minutes, state in (
        ("a", 1, "waiting"),
        ("b", 9, "replayed"),
        ("c", 3, "waiting"),
        ("d", 2, "waiting"),
    ):
        died_at = NOON + timedelta(minutes=minutes)
        ledger.add_dead_letter(dead_letter_record(payload, died_at=died_at, state=DeadLetterState(state)))
    assert ["c", "d", "a", "b"] == [letter.payload for letter in ledger.dead_letters()]
    assert ["c", "d"] == [letter.payload for letter in ledger.dead_letters(limit=2)]


def test_a_payload_that_is_too_long_keeps_its_beginning_and_says_so(ledger: Ledger) -> None:
    """A row of a table has an end; nobody should replay half a message."""
    letter = stored(ledger, dead_letter_record("x" * 300_000))
    assert (200 << 10, False) == (len(letter.payload), letter.is_whole)
