"""Processes are awaited with a deadline, and an error names the program and its log."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from local_azure.processes import (
    ROOT,
    Process,
    Program,
    TwinError,
    await_strays,
    clean_environment,
    keep_loopback_direct,
    run,
    wait_until,
)

pytestmark = pytest.mark.processes

NAP = "import time; time.sleep(600)"
READY = f"print('ready at 7', flush=True); {NAP}"


def program(log: Path, script: str, *, ready: str = "ready at", patience_s: float = 120.0) -> Program:
    """Return a program that runs a Python script."""
    command = [sys.executable, "-c", script]
    return Program(
        name="the part", command=command, environment=os.environ, log=log, ready=ready, patience_s=patience_s
    )


def test_a_program_is_ready_when_its_output_says_so(tmp_path: Path) -> None:
    """Waiting ends with the line, which may say more, such as a port."""
    process = Process(program(tmp_path / "part.log", READY))
    line, status = process.await_ready(), process.exit_status()
    process.stop()
    assert ("ready at 7", None) == (line, status)


def test_a_program_that_ends_while_it_should_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    """The error holds the status, the log's path and its end."""
    log = tmp_path / "part.log"
    process = Process(program(log, "print('no such port'); raise SystemExit(3)"))
    with pytest.raises(TwinError) as caught:
        process.await_ready()
    process.stop()
    assert f"the part ended with status 3. The end of its log {log}:\n    no such port" == str(caught.value)


def test_a_program_that_never_becomes_ready_is_reported_after_its_deadline(tmp_path: Path) -> None:
    """The error says which line was awaited, for how long, and what the log holds."""
    process = Process(program(tmp_path / "part.log", NAP, patience_s=0.2))
    with pytest.raises(TwinError, match=r"the part has not written 'ready at' within 0\.2 s\. Its log .* is empty"):
        process.await_ready()
    process.stop()


def test_a_program_that_ends_by_itself_must_succeed(tmp_path: Path) -> None:
    """Status 0 is success; any other is reported."""
    run(program(tmp_path / "good.log", ""))
    with pytest.raises(TwinError, match="the part ended with status 4"):
        run(program(tmp_path / "bad.log", "raise SystemExit(4)"))


def test_what_a_program_writes_is_for_its_owner_only(tmp_path: Path) -> None:
    """Its logs, one of which an older version left, their folder, and every file that it makes."""
    log, made, other = tmp_path / "part.log", tmp_path / "made", tmp_path / "logs" / "other.log"
    log.touch(0o644)
    run(program(log, f"open({str(made)!r}, 'w').close()"))
    run(program(other, ""))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (log, made, other, other.parent)]
    assert [0o600, 0o600, 0o600, 0o700] == modes


@pytest.mark.parametrize("guarded", [True, False])
def test_stopping_waits_for_the_end(tmp_path: Path, *, guarded: bool) -> None:
    """SIGTERM reaches the program, and its status comes back."""
    process = Process(program(tmp_path / "part.log", READY), guarded=guarded)
    process.await_ready()
    assert (128 + signal.SIGTERM if guarded else -signal.SIGTERM) == process.stop()


def test_a_held_lock_outlives_its_owner_only_as_long_as_the_child(tmp_path: Path) -> None:
    """A descriptor that a child inherits stays open in it, and closes with it."""
    reading, writing = os.pipe()
    process = Process(program(tmp_path / "part.log", NAP), hold=[writing])
    os.close(writing)
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    process.stop()
    assert b"" == os.read(reading, 1)
    os.close(reading)


def test_a_guard_that_never_became_a_process_is_awaited() -> None:
    """A signal between starting a guard and recording it leaves it ending by itself; the twin waits for that."""
    command = [sys.executable, "-m", "local_azure.guard", "--label", "a-label", "--", sys.executable, "-c", NAP]
    stray = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
    assert stray.stdin is not None
    stray.stdin.close()
    await_strays("a-label")
    assert not psutil.pid_exists(stray.pid)
    stray.returncode = 0  # await_strays has collected it


def test_a_time_out_says_what_was_awaited_and_what_was_seen() -> None:
    """The message is what a person reads in a failing test's report."""
    with pytest.raises(TimeoutError, match=r"waited 0 s for the third shard; last seen: \[\]"):
        wait_until(list, what="the third shard", timeout_s=0.0)


def test_foreign_settings_are_left_out() -> None:
    """Credentials, other twins' settings and what makes the worker believe in Azure do not reach a child."""
    names = ["AZURE_CLIENT_SECRET", "AzureWebJobsStorage", "LANDFALL_URL", "CONTAINER_NAME", "https_proxy"]
    names += ["DataStorage__blobServiceUri", "REQUESTS_CA_BUNDLE", "IDENTITY_HEADER"]
    foreign = dict.fromkeys(names, "x")
    cleaned = clean_environment({**foreign, "HOME": "/home/user"})
    assert {"HOME": "/home/user", "NO_PROXY": "localhost,127.0.0.1", "PYTHONUNBUFFERED": "1"} == cleaned


def test_loopback_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user exempts already stays exempt; asking twice adds nothing."""
    monkeypatch.setenv("NO_PROXY", "intranet")
    monkeypatch.setenv("no_proxy", "")
    keep_loopback_direct()
    keep_loopback_direct()
    assert ("intranet,localhost,127.0.0.1", "localhost,127.0.0.1") == (os.environ["NO_PROXY"], os.environ["no_proxy"])
