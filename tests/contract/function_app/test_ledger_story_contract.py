"""Decisions: what both ledgers keep."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from function_app.ports import Ledger
from tests.support.ledger_records import NOON, decision_record
from tests.support.threads import at_once


def test_an_unknown_subject_has_no_story(ledger: Ledger) -> None:
    """Asking for it is no error."""
    assert [] == ledger.decisions("digits/v1")


def test_a_decision_is_returned_as_it_was_recorded(ledger: Ledger) -> None:
    """Every member survives."""
    decision = decision_record(reason="größe ✓", details={"sequencer": "0" * 64, "etags": ["E1", "E2"], "n": 1})
    ledger.record_decision(decision)
    assert [decision] == ledger.decisions("digits/v1")


def test_a_story_is_told_in_order(ledger: Ledger) -> None:
    """By time, and of the same time in the order in which it was written."""
    told = [("third", 2), ("first", 0), ("second", 1), ("second, again", 1)]
    for action, seconds in told:
        ledger.record_decision(decision_record(action, at=NOON + timedelta(seconds=seconds)))
    expected = ["first", "second", "second, again", "third"]
    assert expected == [decision.action for decision in ledger.decisions("digits/v1")]


def test_the_same_decision_twice_is_two_lines(ledger: Ledger) -> None:
    """A story leaves nothing out."""
    for _ in range(2):
        ledger.record_decision(decision_record())
    assert [decision_record()] * 2 == ledger.decisions("digits/v1")


def test_subjects_have_their_own_stories(ledger: Ledger) -> None:
    """Versions, runs and blob paths of any length and spelling."""
    subjects = ["digits/v1", "digits/v1/train 1%.tfrecord", "landfall-digits-v1-0123456789ab-a1", "é" * 1024]
    for subject in subjects:
        ledger.record_decision(decision_record(subject=subject, reason=subject[:50]))
    assert [[s[:50]] for s in subjects] == [[d.reason for d in ledger.decisions(s)] for s in subjects]


def test_a_long_reason_keeps_its_beginning(ledger: Ledger) -> None:
    """And details that are too many are replaced by their names."""
    ledger.record_decision(decision_record(reason="r" * 20_000, details={"body": "x" * 70_000}))
    (decision,) = ledger.decisions("digits/v1")
    assert "r" * ((16 << 10) - 1) + "…" == decision.reason
    assert {"omitted": "more than 65536 characters of JSON: body"} == decision.details


def test_twenty_decisions_at_once_are_twenty_lines(ledger: Ledger) -> None:
    """Nobody's line is lost."""
    at_once([partial(ledger.record_decision, decision_record(f"action_{number}")) for number in range(20)])
    expected = {f"action_{number}" for number in range(20)}
    assert expected == {decision.action for decision in ledger.decisions("digits/v1")}
