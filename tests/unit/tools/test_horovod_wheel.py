"""The cache of the Horovod wheel: built once, never found half, never given to another environment."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tools.horovod_wheel import cached_wheel
from tools.logged import SetupError

REQUIREMENT = "horovod==0.28.1"
BUILD = """
case "$*" in
*"pip list"*) echo "tensorflow-cpu==$TENSORFLOW"; echo "numpy==2.0.2" ;;
*"pip wheel"*)
    echo build >> "$BUILDS"
    [ -z "${BUILD_FAILS:-}" ] || { echo "mpi.h: No such file"; exit 1; }
    while [ "$1" != --wheel-dir ]; do shift; done
    echo whole > "$2/horovod-0.28.1-cp311.whl" ;;
esac
"""


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment whose interpreter only pretends to build, and counts."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    for name, body in {"python": BUILD, "g++": "echo g++ 12.2"}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("TENSORFLOW", "2.18.1")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


def wheel(venv: Path) -> Path:
    """Ask for the wheel."""
    return cached_wheel(venv=venv, requirement=REQUIREMENT, cwd=venv)


def num_builds() -> int:
    """How often it was built."""
    return Path(os.environ["BUILDS"]).read_text().count("build\n")


def test_a_second_clone_does_not_build_again(venv: Path) -> None:
    """The cache belongs to the user, not to the clone."""
    assert (wheel(venv), 1) == (wheel(venv), num_builds())


def test_two_makes_at_once_build_once(venv: Path) -> None:
    """The second waits for the first and takes what it built."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        found = pool.map(wheel, [venv, venv])
    assert (1, 1, "whole\n") == (len(set(found)), num_builds(), found[0].read_text())


def test_another_tensorflow_gets_another_wheel(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip's own cache does not tell them apart, and such a wheel crashes when it is imported."""
    first = wheel(venv)
    monkeypatch.setenv("TENSORFLOW", "2.17.0")
    assert (True, 2) == (first != wheel(venv), num_builds())


def test_a_failed_build_tells_its_last_lines_and_leaves_nothing(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next make tries again."""
    monkeypatch.setenv("BUILD_FAILS", "1")
    with pytest.raises(SetupError, match=r"mpi\.h: No such file") as failure:
        wheel(venv)
    assert "logs/horovod-" in str(failure.value)
    monkeypatch.delenv("BUILD_FAILS")
    assert "whole\n" == wheel(venv).read_text()
