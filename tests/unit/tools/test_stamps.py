"""Stamps: an environment is made anew exactly when something that it was made from changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import stamps


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    """A requirement file."""
    path = tmp_path / "requirements.txt"
    path.write_text("a==1\n")
    return path


def test_a_stamped_folder_is_current(tmp_path: Path, requirements: Path) -> None:
    """The second make finds nothing to do."""
    wanted = stamps.digest(tmp_path, [requirements])
    stamps.write(tmp_path, wanted)
    assert stamps.is_current(tmp_path, stamps.digest(tmp_path, [requirements]))


def test_a_changed_requirement_changes_the_digest(tmp_path: Path, requirements: Path) -> None:
    """A pin that moved is installed by the next make."""
    before = stamps.digest(tmp_path, [requirements])
    requirements.write_text("a==2\n")
    assert before != stamps.digest(tmp_path, [requirements])


def test_a_moved_clone_has_another_digest(tmp_path: Path, requirements: Path) -> None:
    """The scripts of a virtual environment name the folder that it was made in."""
    here, there = tmp_path / "here", tmp_path / "there"
    assert stamps.digest(here, [requirements]) != stamps.digest(there, [requirements])


def test_interrupted_work_is_not_taken_for_done(tmp_path: Path, requirements: Path) -> None:
    """The stamp goes before the work starts and comes back after it has ended."""
    wanted = stamps.digest(tmp_path, [requirements])
    stamps.write(tmp_path, wanted)
    stamps.clear(tmp_path)
    assert not stamps.is_current(tmp_path, wanted)
