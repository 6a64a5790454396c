"""`landfall` can be called from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import REPOSITORY
from tools.launcher import write_launcher


def make_venv(folder: Path) -> Path:
    """Return a folder that looks like an environment with this Python."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    return folder


def test_the_launcher_runs_this_clones_command_from_anywhere(tmp_path: Path) -> None:
    """The working directory does not matter, nor is anything installed."""
    launcher = write_launcher(REPOSITORY, make_venv(tmp_path / "a venv"))
    ended = subprocess.run([launcher, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Usage: landfall" == ended.stdout[:15]


def test_an_unchanged_launcher_is_left_alone(tmp_path: Path) -> None:
    """Preparing a clone that is prepared changes nothing."""
    venv = make_venv(tmp_path / "venv")
    before = write_launcher(REPOSITORY, venv).stat().st_mtime_ns
    assert before == write_launcher(REPOSITORY, venv).stat().st_mtime_ns
