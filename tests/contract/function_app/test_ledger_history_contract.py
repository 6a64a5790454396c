"""Decisions: what both ledgers keep."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from function_app.ports import Ledger
from tests.support.ledger_records import NOON, history_entry
from tests.support.threads import at_once


def test_an_unknown_subject_has_no_story(ledger: Ledger) -> None:
    """Asking for it is no error."""
    assert [] == ledger.history("digits/v1")


def test_a_decision_is_returned_as_it_was_recorded(ledger: Ledger) -> None:
    """Every member survives."""
    entry = history_entry(reason="größe ✓", details={"sequencer": "0" * 64, "etags": ["E1", "E2"], "n": 1})
    ledger.add_history_entry(entry)
    assert [entry] == ledger.history("digits/v1")


def test_a_story_is_told_in_order(ledger: Ledger) -> None:
    """By time, and of the same time in the order in which it was written."""
    told = [("third", 2), ("first", 0), ("second", 1), ("second, again", 1)]
    for action, seconds in told:
        ledger.add_history_entry(history_entry(action, at=NOON + timedelta(seconds=seconds)))
    expected = ["first", "second", "second, again", "third"]
    assert expected == [entry.action for entry in ledger.history("digits/v1")]


def test_the_same_decision_twice_is_two_lines(ledger: Ledger) -> None:
    """A story leaves nothing out."""
    for _ in range(2):
        ledger.add_history_entry(history_entry())
    assert [history_entry()] * 2 == ledger.history("digits/v1")


def test_subjects_have_their_own_stories(ledger: Ledger) -> None:
    """Versions, runs and blob paths of any length and spelling."""
    subjects = ["digits/v1", "digits/v1/train 1%.tfrecord", "landfall-digits-v1-0123456789ab-a1", "é" * 1024]
    for subject in subjects:
        ledger.add_history_entry(history_entry(subject=subject, reason=subject[:50]))
    assert [[s[:50]] for s in subjects] == [[d.reason for d in ledger.history(s)] for s in subjects]


def test_a_long_reason_keeps_its_beginning(ledger: Ledger) -> None:
    """And details that are too many are replaced by their names."""
    ledger.add_history_entry(history_entry(reason="r" * 20_000, details={"body": "x" * 70_000}))
    (entry,) = ledger.history("digits/v1")
    assert "r" * ((16 << 10) - 1) + "…" == entry.reason
    assert {"omitted": "more than 65536 characters of JSON: body"} == entry.details


def test_twenty_decisions_at_once_are_twenty_lines(ledger: Ledger) -> None:
    """Nobody's line is lost."""
    at_once([partial(ledger.add_history_entry, history_entry(f"action_{number}")) for number in range(20)])
    expected = {f"action_{number}" for number in range(20)}
    assert expected == {entry.action for entry in ledger.history("digits/v1")}
