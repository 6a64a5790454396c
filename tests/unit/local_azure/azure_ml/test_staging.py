"""The directory of a run, and what is left of it when the emulator was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.azure_ml.staging import RunDirectory


def test_only_the_logs_of_a_run_are_kept(tmp_path: Path) -> None:
    """The next start of a killed emulator finds the alias too, by the note in the directory."""
    made = RunDirectory.create(tmp_path / "run")
    made.launcher_log.write_text("log")
    reopened = RunDirectory.reopen(tmp_path / "run")
    assert made == reopened
    made.remove_data()
    assert (False, False) == (made.alias.parent.exists(), (tmp_path / "run" / "wd").exists())
    assert "log" == made.launcher_log.read_text()
    assert RunDirectory.reopen(tmp_path / "run") is None


@pytest.mark.parametrize("note", ["", "\0\0\0", "r"])
def test_an_incomplete_note_removes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str) -> None:
    """A power failure may leave an empty file, whose alias would be in the working directory: the clone."""
    alias = RunDirectory.create(tmp_path / "run").alias
    (tmp_path / "run" / "alias").write_text(note)
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "work").touch()
    monkeypatch.chdir(tmp_path / "clone")
    reopened = RunDirectory.reopen(tmp_path / "run")
    assert reopened is not None
    reopened.remove_data()
    assert [Path("work")] == list(Path().iterdir())
    assert not (tmp_path / "run" / "wd").exists()
    alias.unlink()
    alias.parent.rmdir()
