from __future__ import annotations

from pathlib import Path

from local_azure.event_grid.journal import Cursor


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
    """Else events published while the emulator is away would be before its time."""
    Cursor(tmp_path / "c.json", newest=3).save()

    assert 3 == Cursor(tmp_path / "c.json", newest=99).seen
