"""Parts are awaited with a deadline, and an error names the part and its log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from local_azure.twin.children import Child, Part, await_strays
from local_azure.twin.errors import TwinError
from tests.support.processes import REPOSITORY


def part(log: Path, script: str, *, ready: Callable[[], bool] = bool, within_s: float = 20.0) -> Part:
    """Return a part that runs a Python script."""
    command = [sys.executable, "-c", script]
    return Part(name="the part", command=command, env=os.environ, log=log, ready=ready, ready_within_s=within_s)


def stopped(child: Child) -> Child:
    """Stop a child that a test has started."""
    child.ask_to_stop()
    child.await_stopped()
    return child


def test_a_part_that_ends_while_it_should_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """The error holds the status, the log's path and its end."""
    log = tmp_path / "part.log"
    child = Child(part(log, "print('no such port'); raise SystemExit(3)"))
    with pytest.raises(TwinError) as caught:
        child.await_ready()
    stopped(child)
    assert f"the part ended with status 3. The end of its log {log}:\n    no such port" == str(caught.value)


def test_a_part_that_never_answers_is_reported_after_its_deadline(tmp_path: Path) -> None:
    """Readiness has a deadline."""
    child = Child(part(tmp_path / "part.log", "import time; time.sleep(60)", within_s=0.2))
    with pytest.raises(TwinError, match=r"the part did not answer within 0\.2 s"):
        child.await_ready()
    stopped(child)


def test_a_part_is_ready_when_it_says_so(tmp_path: Path) -> None:
    """Waiting ends with the first answer."""
    flag = tmp_path / "flag"
    script = f"open({str(flag)!r}, 'w').close(); import time; time.sleep(60)"
    child = Child(part(tmp_path / "part.log", script, ready=flag.exists))
    child.await_ready()
    status = child.exit_status()
    stopped(child)
    assert status is None


def test_a_stopped_part_is_gone(tmp_path: Path) -> None:
    """Stopping waits for the end."""
    child = stopped(Child(part(tmp_path / "part.log", "import time; time.sleep(60)")))
    assert child.exit_status() is not None


def test_a_held_lock_outlives_its_owner_only_as_long_as_the_child(tmp_path: Path) -> None:
    """A descriptor given to a child stays open in it, and closes with it."""
    reading, writing = os.pipe()
    child = Child(part(tmp_path / "part.log", "import time; time.sleep(60)"), hold=[writing])
    os.close(writing)
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    stopped(child)
    assert b"" == os.read(reading, 1)
    os.close(reading)


def test_a_guard_that_never_became_a_child_is_waited_for() -> None:
    """A signal between starting a guard and noting it down leaves it ending by itself; nobody returns before."""
    command = [sys.executable, "-m", "local_azure.twin.guard", "--label", "a-label", "--", sys.executable, "-c"]
    stray = subprocess.Popen([*command, "import time; time.sleep(60)"], stdin=subprocess.PIPE, cwd=REPOSITORY)
    assert stray.stdin is not None
    stray.stdin.close()
    await_strays("a-label")
    assert not psutil.pid_exists(stray.pid)
    stray.returncode = 0  # it was collected by await_strays
