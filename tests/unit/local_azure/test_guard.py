"""A guard leaves nothing behind, however it and its asker end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from local_azure.processes import PATIENCE_S, wait_until
from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.processes

FAMILY = """
import os, signal, subprocess, sys, time
folder = sys.argv[1]
nap = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
child = subprocess.Popen([sys.executable, "-c", f"import subprocess, time; p = subprocess.Popen({nap!r}, "
    f"start_new_session=True); open({folder!r} + '/grandchild', 'w').write(str(p.pid)); time.sleep(600)"])
open(folder + "/child", "w").write(str(child.pid))
time.sleep(600)
"""
"""A process with a child and, in a session of its own, a grandchild that ignores SIGTERM."""


GUARD = [sys.executable, "-m", "local_azure.guard", "--grace-s", "2", "--", sys.executable]
"""A guard over a Python."""


class Guarded:
    """A guard over a family of three, started by this test."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [*GUARD, "-c", FAMILY, str(folder)],
            stdin=subprocess.PIPE,
            cwd=REPOSITORY,
            start_new_session=True,
        )
        wait_until(lambda: all(_pid(folder / n) for n in ("child", "grandchild")), what="the family to be there")
        self.members = psutil.Process(self.process.pid).children(recursive=True)

    def close_pipe(self) -> None:
        """What an asker's end does, whatever ended it."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def living(self) -> list[int]:
        """Members that still run."""
        return [m.pid for m in self.members if m.is_running() and m.status() != psutil.STATUS_ZOMBIE]


def _pid(path: Path) -> int | None:
    return int(path.read_text() or 0) if path.exists() else None


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    family = Guarded(tmp_path)
    yield family
    family.close_pipe()
    family.process.wait(PATIENCE_S)


def test_closing_the_pipe_ends_every_descendant(guarded: Guarded) -> None:
    """The guard ends only when children and grandchildren in other sessions have ended."""
    guarded.close_pipe()
    guarded.process.wait(PATIENCE_S)
    assert (3, []) == (len(guarded.members), guarded.living())


def test_sigterm_ends_every_descendant(guarded: Guarded) -> None:
    """SIGTERM to the guard does what closing the pipe does."""
    guarded.process.send_signal(signal.SIGTERM)
    guarded.process.wait(PATIENCE_S)
    assert [] == guarded.living()


def test_sigint_of_the_terminal_is_left_to_the_asker(guarded: Guarded) -> None:
    """Ctrl-C reaches a whole terminal; the guard waits for what its asker makes of it."""
    guarded.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        guarded.process.wait(0.3)
    assert 3 == len(guarded.living())


def test_what_the_command_leaves_behind_ends_with_it(guarded: Guarded) -> None:
    """When the command itself is killed, its orphans come to the guard, and end."""
    guarded.members[0].kill()
    status = guarded.process.wait(PATIENCE_S)
    assert (128 + signal.SIGKILL, []) == (status, guarded.living())


def test_the_exit_status_is_the_commands() -> None:
    """A command that ends by itself passes its status on."""
    command = [*GUARD, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert 7 == process.wait(PATIENCE_S)


def test_the_pipe_may_close_while_the_command_starts() -> None:
    """An asker that dies at once leaves nothing behind either."""
    command = [
        sys.executable,
        "-m",
        "local_azure.guard",
        "--",
        sys.executable,
        "-c",
        "import time; time.sleep(60)",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S)
