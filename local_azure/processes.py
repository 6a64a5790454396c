"""Start processes, wait until they are ready or done, and stop them with all their descendants.

It also defines the programs of the emulators and the dev host, for the twin and for tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import psutil

from local_azure.guard import die_with_parent
from shared.errors import LandfallError

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
"""The clone, in which `python -m local_azure...` finds its packages."""
PATIENCE_S = 120.0
"""Deadline for actions that should take no time, long enough for a busy machine."""
POLL_S = 0.02
_SLOWER_BY, _SLOWEST = 1.25, 5
"""Each pause between two looks is longer than the one before, up to five times the first."""
TAIL_LINES = 8
OWNER_ONLY = 0o077
"""Umask of every process, because access logs contain signatures and settings contain keys."""
FOREIGN_PREFIXES = ("AZURE", "ARM_", "IDENTITY_", "MSI_", "LANDFALL_", "DATASTORAGE", "WEBSITE_", "FUNCTIONS_")
"""Prefixes of variables that are not passed to children, because they may belong to the developer's own Azure,
another project or another twin (AZURE includes AZUREML_... and AzureWebJobsStorage). Case is ignored."""
FOREIGN = (
    "CONTAINER_NAME",
    "PYTHON_SCRIPT_FILE_NAME",
    "PYTHONPATH",
    "PYTHONHOME",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)
"""With CONTAINER_NAME the Functions worker would conclude that it runs in Azure."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
"""No proxy is needed, because everything is on loopback."""

AZURE_ML = "the Azure ML emulator"
EVENT_GRID = "the Event Grid emulator"
FUNCTIONS_HOST = "the Functions dev host"
"""The programs' names in messages."""
ANY_PORT = 0
"""The server uses a free port, which its ready line states."""
_LISTENING = "listening http"


class TwinError(LandfallError):
    """A part of the local twin cannot start, or has ended; the message names the part, its log and what to do."""


def wait_until(
    condition: Callable[[], T | None], *, what: str, timeout_s: float = PATIENCE_S, poll_s: float = POLL_S
) -> T:
    """Poll until `condition` returns something truthy, and return that; poll less often while it takes long.

    `poll_s` is the first pause. Raises TimeoutError with the condition and its last value.
    """
    deadline, pause_s = time.monotonic() + timeout_s, poll_s
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}; last seen: {seen!r}")
        time.sleep(pause_s)
        pause_s = min(pause_s * _SLOWER_BY, poll_s * _SLOWEST)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to start, and the sign that it is ready."""

    name: str
    """Name in messages, such as "Azurite"."""
    command: Sequence[str]
    environment: Mapping[str, str]
    """The complete environment, not an addition to this process's; see `clean_environment`."""
    log: Path
    """File for standard error, and for standard output unless `stdout` is set. Every start empties it."""
    stdout: Path | None = None
    ready: str = ""
    """Text of the output line that shows readiness; empty if the program ends by itself."""
    patience_s: float = PATIENCE_S
    """Deadline for being ready, or for the end of a program that ends by itself."""
    grace_s: float = 5.0
    """Time between SIGTERM and SIGKILL for guarded processes."""


class Process:
    """A started program.

    When its starter stops it or dies, a guarded process ends with all its descendants, even in other sessions. A
    process without a guard dies when the *thread* that started it ends, and leaves its children; it is for tests that
    send signals and check the exit status.
    """

    def __init__(self, program: Program, *, guarded: bool = True, label: str = "", hold: Sequence[int] = ()) -> None:
        """Start `program`. `hold`: descriptors of locks that are held as long as any of its processes lives."""
        self.program = program
        self._guarded = guarded
        guard = [sys.executable, "-m", "local_azure.guard", "--grace-s", str(program.grace_s), "--label", label, "--"]
        with contextlib.ExitStack() as files:
            log = files.enter_context(_emptied(program.log))
            stdout = files.enter_context(_emptied(program.stdout)) if program.stdout else log
            self.popen: subprocess.Popen[bytes] = subprocess.Popen(
                [*(guard if guarded else []), *program.command],
                stdin=subprocess.PIPE if guarded else subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                cwd=ROOT,
                env=dict(program.environment),
                start_new_session=True,
                umask=OWNER_ONLY,
                pass_fds=tuple(hold),
                preexec_fn=None if guarded else die_with_parent,  # noqa: PLW1509 (one prctl call, which takes no lock)
            )

    @property
    def pid(self) -> int:
        """The id of the process, or of its guard if there is one."""
        return self.popen.pid

    def exit_status(self) -> int | None:
        """Return the exit status, None while the process runs."""
        return self.popen.poll()

    def output(self) -> str:
        """Return the standard output so far, with standard error unless it is separate."""
        return _text(self.program.stdout or self.program.log)

    def await_line(self, text: str, *, timeout_s: float = PATIENCE_S) -> str:
        """Return the first line of the output that contains `text`.

        Raises TwinError if the process ends first, or does not write such a line in time.
        """

        def find() -> str | None:
            ended = self.exit_status() is not None  # before reading, so that the last output counts
            line = next((line for line in self.output().splitlines(keepends=True) if text in line), None)
            if line is not None and (ended or line.endswith("\n")):
                return line.rstrip("\n")
            self.check_running()
            return None

        try:
            return wait_until(find, what=repr(text), timeout_s=timeout_s)
        except TimeoutError:
            seen = log_end(self.program.log)
            raise TwinError(f"{self.program.name} has not written {text!r} within {timeout_s:g} s. {seen}") from None

    def await_ready(self) -> str:
        """Wait for the ready line and return it. Raises TwinError if the program ends or takes too long."""
        return self.await_line(self.program.ready, timeout_s=self.program.patience_s)

    def await_end(self, *, timeout_s: float = PATIENCE_S) -> int:
        """Wait for a process that ends by itself; return its exit status. Raises TwinError if that takes too long."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            seen = log_end(self.program.log)
            raise TwinError(f"{self.program.name} has not ended within {timeout_s:g} s. {seen}") from None

    def check_running(self) -> None:
        """Raise TwinError if the process has ended."""
        status = self.exit_status()
        if status is not None:
            raise TwinError(f"{self.program.name} ended with status {status}. {log_end(self.program.log)}")

    def ask_to_stop(self) -> None:
        """Request the process, or its guard, to end; return at once."""
        if self._guarded:
            _stdin(self.popen).close()
        elif self.exit_status() is None:
            self.popen.send_signal(signal.SIGTERM)

    def await_stopped(self) -> int:
        """Wait for the end of all processes; return the exit status. Raises TwinError if they had to be killed."""
        try:
            return self.await_end()
        except TwinError:
            self.kill()
            raise

    def stop(self) -> int:
        """Request the process to end, wait for its end, and return the exit status."""
        self.ask_to_stop()
        return self.await_stopped()

    def kill(self) -> None:
        """End the process at once with SIGKILL, like a power failure. The kernel then ends the guarded processes."""
        if self.exit_status() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(PATIENCE_S)
        if self._guarded:
            _stdin(self.popen).close()


def run(program: Program, *, label: str = "") -> None:
    """Run a program to its end. Raises TwinError if it fails."""
    process = Process(program, label=label)
    try:
        status = process.await_end(timeout_s=program.patience_s)
    finally:
        process.stop()
    if status != 0:
        process.check_running()


def await_strays(label: str) -> None:
    """Wait for guards that started, but did not become a `Process` because a signal came in between.

    Their pipe was closed together with the unfinished `Process`, so they are already ending.
    """
    with contextlib.suppress(psutil.NoSuchProcess):  # It has just ended.
        own = psutil.Process().children()
        psutil.wait_procs([child for child in own if label in child.cmdline()], timeout=PATIENCE_S)


def azure_ml_program(
    *,
    log: Path,
    state: Path,
    storage: Mapping[str, str],
    identity_header: str,
    topic_key: str = "",
    port: int = ANY_PORT,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Program:
    """Return the Azure ML emulator. `storage` is account → connection string, the host's account first."""
    return Program(
        name=AZURE_ML,
        command=[*module_command("local_azure.azure_ml", port=port, state=state), *options],
        environment={
            **clean_environment(),
            "LANDFALL_TWIN_STORAGE": json.dumps(dict(storage)),
            "LANDFALL_TWIN_TOPIC_KEY": topic_key,
            "IDENTITY_HEADER": identity_header,
            **(variables or {}),
        },
        log=log,
        ready=_LISTENING,
        grace_s=8.0,
    )


def event_grid_program(
    *, log: Path, config: Path, settings: Mapping[str, str], topic_key: str, port: int = ANY_PORT
) -> Program:
    """Return the Event Grid emulator. `settings` contain the storage connections in the configuration."""
    return Program(
        name=EVENT_GRID,
        command=module_command("local_azure.event_grid", port=port, config=config),
        environment={**clean_environment(), **settings, "LANDFALL_TWIN_TOPIC_KEY": topic_key},
        log=log,
        ready=_LISTENING,
    )


def functions_host_program(
    *, log: Path, root: Path, settings: Mapping[str, str], port: int = ANY_PORT, options: Sequence[str] = ()
) -> Program:
    """Return the dev host with the function app in `root` and its app settings."""
    return Program(
        name=FUNCTIONS_HOST,
        command=[*module_command("local_azure.functions_host", root=root, port=port), *options],
        environment={**clean_environment(), **settings},
        log=log,
        ready=_LISTENING,
    )


def listening_url(ready_line: str) -> str:
    """Return the address in an emulator's ready line, without a slash at the end."""
    return ready_line.rpartition(" ")[2]


def module_command(module: str, *words: str, **options: object) -> list[str]:
    """Return the command that runs a module of this clone; ``node_idle_s=2`` becomes ``--node-idle-s 2``."""
    command = [sys.executable, "-u", "-m", module, *words]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    return command


def clean_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a copy of the environment without foreign settings, to which a program's settings are added."""
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if not _is_foreign(name)}
    return {**kept, "NO_PROXY": "localhost,127.0.0.1", "PYTHONUNBUFFERED": "1"}


def keep_loopback_direct() -> None:
    """Let this process's clients connect to loopback without the user's proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        exempt = [part for part in os.environ.get(name, "").split(",") if part]
        os.environ[name] = ",".join(dict.fromkeys([*exempt, "localhost", "127.0.0.1"]))


def log_end(log: Path) -> str:
    """Return a sentence with the path of the log, followed by its last lines."""
    lines = _text(log).splitlines()[-TAIL_LINES:]
    if not lines:
        return f"Its log {log} is empty."
    return f"The end of its log {log}:\n" + "\n".join(f"    {line[:300]}" for line in lines)


def _is_foreign(name: str) -> bool:
    return name.upper().startswith(FOREIGN_PREFIXES) or name.upper() in FOREIGN or name.lower() in PROXIES


def _emptied(path: Path) -> IO[bytes]:
    """Open an empty private file for appending, so that writes go to its end even after a truncation."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)  # An existing file may be readable by others.
    return file


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdin is None:
        raise TwinError("a guarded process was started without the pipe that ends it")
    return process.stdin
