"""Environments: made once, made again after a change, never made in another clone's folder; and the launcher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tools.environments import Environment, clear_stamp, digest, is_current, write_launcher, write_stamp
from tools.logged import SetupError


def install(folder: Path) -> None:
    """Install something; like the real functions, begin with an empty folder."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    (folder / "installed").touch()


def environment(folder: Path) -> Environment:
    """Return an environment without requirement files."""
    return Environment(folder=folder, files=(), install=install)


def test_another_clones_environment_is_left_alone(tmp_path: Path) -> None:
    """A link to an environment that was made for another clone is refused, and nothing in it changes."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    environment(theirs).prepare()
    (theirs / "more").touch()
    ours.symlink_to(theirs)
    with pytest.raises(SetupError, match=f"{ours} is a link to {theirs}, which was made for another clone"):
        environment(ours).prepare()
    assert {"installed", "more", ".landfall-stamp"} == {path.name for path in theirs.iterdir()}


def test_an_environment_may_lie_on_another_disk(tmp_path: Path) -> None:
    """A link to an empty folder becomes an environment, once."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "ours").symlink_to(tmp_path / "disk")
    environment(tmp_path / "ours").prepare()
    (tmp_path / "disk" / "more").touch()
    environment(tmp_path / "ours").prepare()
    assert {"installed", "more", ".landfall-stamp"} == {path.name for path in (tmp_path / "disk").iterdir()}


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    """A requirement file."""
    path = tmp_path / "requirements.txt"
    path.write_text("a==1\n")
    return path


def test_a_stamped_folder_is_current(tmp_path: Path, requirements: Path) -> None:
    """The second make has nothing to do."""
    wanted = digest(tmp_path, [requirements])
    write_stamp(tmp_path, wanted)
    assert is_current(tmp_path, digest(tmp_path, [requirements]))


def test_a_changed_requirement_changes_the_digest(tmp_path: Path, requirements: Path) -> None:
    """The next make installs a changed pin."""
    before = digest(tmp_path, [requirements])
    requirements.write_text("a==2\n")
    assert before != digest(tmp_path, [requirements])


def test_a_moved_clone_has_another_digest(tmp_path: Path, requirements: Path) -> None:
    """The scripts of a virtual environment name the folder that it was made in."""
    here, there = tmp_path / "here", tmp_path / "there"
    assert digest(here, [requirements]) != digest(there, [requirements])


def test_interrupted_work_is_not_taken_for_done(tmp_path: Path, requirements: Path) -> None:
    """The stamp is removed before the work starts and written after it has ended."""
    wanted = digest(tmp_path, [requirements])
    write_stamp(tmp_path, wanted)
    clear_stamp(tmp_path)
    assert not is_current(tmp_path, wanted)


def make_venv(folder: Path) -> Path:
    """Return a folder that looks like an environment with this Python."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    return folder


def test_the_launcher_runs_this_clones_command_from_anywhere(tmp_path: Path) -> None:
    """The working directory does not matter, and nothing is installed."""
    launcher = write_launcher(REPOSITORY, make_venv(tmp_path / "a venv"))
    ended = subprocess.run([launcher, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Usage: landfall" == ended.stdout[:15]


def test_an_unchanged_launcher_is_left_alone(tmp_path: Path) -> None:
    """Preparing a clone again changes nothing."""
    venv = make_venv(tmp_path / "venv")
    before = write_launcher(REPOSITORY, venv).stat().st_mtime_ns
    assert before == write_launcher(REPOSITORY, venv).stat().st_mtime_ns
