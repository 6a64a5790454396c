"""The twin's processes: started under a guard, awaited with a deadline, ended with everything below them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from local_azure.twin.errors import TwinError

ROOT = Path(__file__).resolve().parents[2]
"""The clone: where `python -m local_azure...` finds its packages."""
POLL_S = 0.05
TAIL_LINES = 8
STOP_S = 20.0
"""A guard needs at most its grace, and then ends the rest by force."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the twin, ready to be started."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    """The whole environment, not an addition to ours."""
    log: Path
    """Where its output goes; started anew with every start."""
    ready: Callable[[], bool] = bool
    """Whether it answers; a part that is to end by itself needs none."""
    ready_within_s: float = 60.0
    stdout: Path | None = None
    """For standard output alone, where somebody reads it; then `log` holds standard error."""
    grace_s: float = 5.0


class Child:
    """A started part."""

    def __init__(self, part: Part, *, label: str = "", hold: Sequence[int] = ()) -> None:
        """Start it. `hold`: descriptors (of locks) that stay open as long as anything of the child is alive."""
        self.part = part
        part.log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-m", "local_azure.twin.guard", "--grace-s", str(part.grace_s), "--label", label]
        with contextlib.ExitStack() as files:
            log = files.enter_context(part.log.open("wb"))
            stdout = files.enter_context(part.stdout.open("wb")) if part.stdout else log
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*guard, "--", *part.command],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=log,
                cwd=ROOT,
                env=dict(part.env),
                start_new_session=True,
                pass_fds=tuple(hold),
            )

    @property
    def pid(self) -> int:
        """Of the guard: the root of everything that this part started."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """The part's exit status, None while it runs."""
        return self._process.poll()

    def await_ready(self) -> None:
        """Return when the part answers. Raises TwinError where it ends, or takes too long."""
        deadline = time.monotonic() + self.part.ready_within_s
        while not self.part.ready():
            self.check_running()
            if time.monotonic() > deadline:
                said = last_words(self.part.log)
                raise TwinError(f"{self.part.name} did not answer within {self.part.ready_within_s:g} s. {said}")
            time.sleep(POLL_S)

    def await_end(self) -> None:
        """Return when a part that ends by itself has done so well. Raises TwinError where not, or not in time."""
        try:
            status = self._process.wait(self.part.ready_within_s)
        except subprocess.TimeoutExpired as error:
            said = last_words(self.part.log)
            raise TwinError(f"{self.part.name} took more than {self.part.ready_within_s:g} s. {said}") from error
        if status != 0:
            raise TwinError(f"{self.part.name} ended with status {status}. {last_words(self.part.log)}")

    def check_running(self) -> None:
        """Raise TwinError where the part has ended by itself."""
        status = self.exit_status()
        if status is not None:
            raise TwinError(f"{self.part.name} ended with status {status}. {last_words(self.part.log)}")

    def ask_to_stop(self) -> None:
        """Close the guard's input, which tells it to end everything; returns at once."""
        _stdin(self._process).close()

    def kill(self) -> None:
        """End it at once, as a power cut would: SIGKILL for the guard, and from the kernel for what it guards."""
        self._process.kill()
        self._process.wait()
        _stdin(self._process).close()

    def await_stopped(self) -> None:
        """Return when nothing of the part is left. Raises TwinError where it clings on."""
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise TwinError(f"{self.part.name} did not end within {STOP_S:.0f} s; see {self.part.log}") from None


def await_strays(label: str) -> None:
    """Wait for guards that were started but never became a `Child`: a signal came in between.

    Their pipe closed when the half-made `Child` went, so they are ending already.
    """
    with contextlib.suppress(psutil.NoSuchProcess):  # one that ends while it is looked at
        own = psutil.Process().children()
        psutil.wait_procs([child for child in own if label in child.cmdline()], timeout=STOP_S)


def last_words(log: Path) -> str:
    """Say where the log is, and what stands at its end."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if log.is_file() else []
    if not lines:
        return f"Its log {log} is empty."
    return f"The end of its log {log}:\n" + "\n".join(f"    {line[:300]}" for line in lines)


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdin is None:
        raise TwinError("a child was started without the pipe that ends it")
    return process.stdin
