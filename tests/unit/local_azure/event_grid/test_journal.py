from __future__ import annotations

from pathlib import Path

from local_azure.event_grid.journal import Cursor, Journal


def test_numbers_rise_over_a_restart(tmp_path: Path) -> None:
    """What was kept is there again, and what is added goes on from it."""
    first = Journal(tmp_path / "j.jsonl")
    first.append({"a": 1})
    first.append({"a": 2})
    first.close()
    second = Journal(tmp_path / "j.jsonl")
    second.append({"a": 3})
    second.close()

    assert [{"seq": 2, "a": 2}, {"seq": 3, "a": 3}] == second.since(1)
    assert 3 == second.last_seq


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """In memory this happens at once, in the file at the next start."""
    first = Journal(tmp_path / "j.jsonl", limit=2)
    for number in range(5):
        first.append({"n": number})
    first.close()
    assert [3, 4] == [entry["n"] for entry in first.since(0)]
    Journal(tmp_path / "j.jsonl", limit=2).close()

    assert 2 == len((tmp_path / "j.jsonl").read_text(encoding="utf-8").splitlines())


def test_a_last_line_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    """Its number is used again, as it was never returned."""
    path = tmp_path / "j.jsonl"
    path.write_text('{"seq": 1, "a": 1}\n{"seq": 2, "a"', encoding="utf-8")
    journal = Journal(path)

    assert 2 == journal.append({"a": "new"})
    journal.close()
    assert [{"seq": 1, "a": 1}, {"seq": 2, "a": "new"}] == journal.since(0)


def test_a_new_cursor_starts_after_the_newest_event(tmp_path: Path) -> None:
    """A subscription gets no events from before its time."""
    cursor = Cursor(tmp_path / "c.json", newest=7)

    assert (7, set()) == (cursor.seen, cursor.unfinished)


def test_what_is_unfinished_survives_a_restart(tmp_path: Path) -> None:
    """What is finished or skipped does not."""
    first = Cursor(tmp_path / "c.json", newest=0)
    for seq in (1, 2, 4):
        first.begin(seq)
    first.skip(5)
    first.finish(2)
    first.save()
    second = Cursor(tmp_path / "c.json", newest=99)

    assert (5, {1, 4}) == (second.seen, second.unfinished)


def test_a_new_cursor_is_saved_even_when_nothing_happens(tmp_path: Path) -> None:
    """Otherwise events published while the emulator is away would be before its time."""
    Cursor(tmp_path / "c.json", newest=3).save()

    assert 3 == Cursor(tmp_path / "c.json", newest=99).seen
