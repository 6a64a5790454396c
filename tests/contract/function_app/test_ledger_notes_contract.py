"""Counters, marks, and stories of everything below a name: what both ledgers keep."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from function_app.ports import Ledger
from tests.support.ledger_records import NOON, history_entry
from tests.support.threads import at_once


def test_what_was_never_counted_has_no_counters(ledger: Ledger) -> None:
    """Asking is no error."""
    assert {} == dict(ledger.counts("strangers"))


def test_counters_are_kept_by_name_and_key(ledger: Ledger) -> None:
    """A name's counters are read together, another name's are not among them."""
    for name, key in (("events", "2026-11-20"), ("events", "2026-11-21"), ("events", "2026-11-20"), ("other", "x")):
        ledger.count(name, key)
    assert {"2026-11-20": 2, "2026-11-21": 1} == dict(ledger.counts("events"))


def test_twenty_who_count_at_once_are_all_counted(ledger: Ledger) -> None:
    """No one is lost between reading and writing."""
    at_once([partial(ledger.count, "events", "today")] * 20)
    assert {"today": 20} == dict(ledger.counts("events"))


def test_a_mark_is_what_was_written_last(ledger: Ledger) -> None:
    """None before, and names of any spelling."""
    before = ledger.mark("inventory/digits/v1 ✓")
    for text in ("first", "second"):
        ledger.set_mark("inventory/digits/v1 ✓", text)
    ledger.set_mark("inventory/digits/v2", "other")
    assert (None, "second") == (before, ledger.mark("inventory/digits/v1 ✓"))


def test_stories_below_a_name_are_told_together_in_order(ledger: Ledger) -> None:
    """All blobs of a version, and none of a version whose name begins alike."""
    told = [("digits/v1/b", 2), ("digits/v1/a", 1), ("digits/v1", 0), ("digits/v10/a", 3), ("digits/v1/a", 4)]
    for subject, seconds in told:
        ledger.add_history_entry(history_entry(subject=subject, at=NOON + timedelta(seconds=seconds)))
    found = [(line.subject, line.at.second) for line in ledger.history_below("digits/v1/", limit=100)]
    assert [("digits/v1/a", 1), ("digits/v1/b", 2), ("digits/v1/a", 4)] == found


def test_stories_below_a_name_are_bounded(ledger: Ledger) -> None:
    """A version has ten thousand shards; an answer has a limit."""
    for number in range(5):
        ledger.add_history_entry(history_entry(subject=f"digits/v1/{number}"))
    assert 3 == len(ledger.history_below("digits/v1/", limit=3))
