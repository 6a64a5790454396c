"""History, counters and marks: behaviour that both ledgers share."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from function_app.ports import Ledger
from tests.support.ledger_records import NOON, history_entry
from tests.support.threads import at_once


def test_an_unknown_subject_has_no_history(ledger: Ledger) -> None:
    """It is an empty list, not an error."""
    assert [] == ledger.history("digits/v1")


def test_a_decision_is_returned_as_it_was_recorded(ledger: Ledger) -> None:
    """Every member is kept."""
    entry = history_entry(reason="größe ✓", details={"sequencer": "0" * 64, "etags": ["E1", "E2"], "n": 1})
    ledger.add_history_entry(entry)
    assert [entry] == ledger.history("digits/v1")


def test_a_history_is_listed_in_order(ledger: Ledger) -> None:
    """Entries are sorted by time, and those of the same time by the order of writing."""
    recorded = [("third", 2), ("first", 0), ("second", 1), ("second, again", 1)]
    for action, seconds in recorded:
        ledger.add_history_entry(history_entry(action, at=NOON + timedelta(seconds=seconds)))
    expected = ["first", "second", "second, again", "third"]
    assert expected == [entry.action for entry in ledger.history("digits/v1")]


def test_the_same_decision_twice_is_two_lines(ledger: Ledger) -> None:
    """The history omits nothing."""
    for _ in range(2):
        ledger.add_history_entry(history_entry())
    assert [history_entry()] * 2 == ledger.history("digits/v1")


def test_each_subject_has_its_own_history(ledger: Ledger) -> None:
    """Subjects are versions, runs and blob paths of any length and spelling."""
    subjects = ["digits/v1", "digits/v1/train 1%.tfrecord", "landfall-digits-v1-0123456789ab-a1", "é" * 1024]
    for subject in subjects:
        ledger.add_history_entry(history_entry(subject=subject, reason=subject[:50]))
    assert [[s[:50]] for s in subjects] == [[d.reason for d in ledger.history(s)] for s in subjects]


def test_a_long_reason_keeps_its_beginning(ledger: Ledger) -> None:
    """Details that are too large are replaced by their names."""
    ledger.add_history_entry(history_entry(reason="r" * 20_000, details={"body": "x" * 70_000}))
    (entry,) = ledger.history("digits/v1")
    assert "r" * ((16 << 10) - 1) + "…" == entry.reason
    assert {"omitted": "more than 65536 characters of JSON: body"} == entry.details


def test_twenty_decisions_at_once_are_twenty_lines(ledger: Ledger) -> None:
    """No entry is lost."""
    at_once([partial(ledger.add_history_entry, history_entry(f"action_{number}")) for number in range(20)])
    expected = {f"action_{number}" for number in range(20)}
    assert expected == {entry.action for entry in ledger.history("digits/v1")}


def test_a_mark_is_what_was_written_last(ledger: Ledger) -> None:
    """There is none at first; names may have any spelling."""
    before = ledger.mark("inventory/digits/v1 ✓")
    for text in ("first", "second"):
        ledger.set_mark("inventory/digits/v1 ✓", text)
    ledger.set_mark("inventory/digits/v2", "other")
    assert (None, "second") == (before, ledger.mark("inventory/digits/v1 ✓"))


def test_a_mark_is_changed_only_from_what_the_caller_has_read(ledger: Ledger) -> None:
    """None stands for no mark; a slower caller changes nothing."""
    seen = [
        ledger.change_mark("sweep", "wrong", "0"),
        ledger.change_mark("sweep", None, "1"),
        ledger.change_mark("sweep", None, "2"),
        ledger.change_mark("sweep", "1", "3"),
        ledger.change_mark("sweep", "1", "4"),
    ]
    assert ([False, True, False, True, False], "3") == (seen, ledger.mark("sweep"))


def test_of_twenty_who_change_a_mark_at_once_one_does(ledger: Ledger) -> None:
    """This holds whether or not the mark existed before."""
    for before in (None, "first"):
        won = at_once([partial(ledger.change_mark, "sweep", before, "first" if before is None else "second")] * 20)
        assert 1 == sum(won)


def test_histories_below_a_name_are_listed_together_in_order(ledger: Ledger) -> None:
    """All blobs of a version are included, but none of a version with the same prefix."""
    recorded = [("digits/v1/b", 2), ("digits/v1/a", 1), ("digits/v1", 0), ("digits/v10/a", 3), ("digits/v1/a", 4)]
    for subject, seconds in recorded:
        ledger.add_history_entry(history_entry(subject=subject, at=NOON + timedelta(seconds=seconds)))
    found = [(line.subject, line.at.second) for line in ledger.history_below("digits/v1/", limit=100)]
    assert [("digits/v1/a", 1), ("digits/v1/b", 2), ("digits/v1/a", 4)] == found


def test_histories_below_a_name_are_bounded(ledger: Ledger) -> None:
    """A version has ten thousand shards, but an answer has a limit."""
    for number in range(5):
        ledger.add_history_entry(history_entry(subject=f"digits/v1/{number}"))
    assert 3 == len(ledger.history_below("digits/v1/", limit=3))
