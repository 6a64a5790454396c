"""What a twin keeps from one start to the next, and that no process is left, however it ends."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from azure.storage.blob import BlobServiceClient

from local_azure.processes import PATIENCE_S, Process, wait_until
from tests.support.processes import REPOSITORY, child_environment, start_module
from tests.support.twin import PIPELINES, WITHIN_S, TwinUnderTest, options, require_twin_parts, twin_under_test
from tests.twin.shards import whole_version

pytestmark = pytest.mark.twin

SLOW_S = 1.5
"""Longer than Azure ML waits for open requests when it stops; shorter than the function app may take."""
READY = "Ready. Ctrl-C stops everything."
START_S = 300.0
"""Deadline; a start takes ten seconds on an idle machine."""
ENDED_BY = {signal.SIGINT: 0, signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}
"""Exit status of `landfall up`: a request to stop is its normal end."""


@pytest.mark.slow
def test_a_second_start_continues_where_the_first_stopped(twin: TwinUnderTest) -> None:
    """Data and runs are kept, no asset is registered again, and a submission in progress completes before the stop.

    This happens beside another twin of the clone: folders and ports differ, and each has its own versions.
    """
    with twin_under_test(twin.twin.options) as first:
        first.upload("steady/before", whole_version())
        run_id = first.await_settled("steady/before")["run_id"]
        ports = [set(one.twin.places.ports.numbers.values()) for one in (first, twin)]
        submitted = begin_submission(first, "steady/amid")
    with twin_under_test(twin.twin.options) as second:
        calls = second.client.calls()
        states = [second.api.run(one)["state"] for one in (run_id, submitted)]
        second.upload("steady/after", whole_version())
        assert "registered" == second.await_settled("steady/after")["state"]
        folder = second.twin.places.folder.name
    assert ("twin-2", set[int](), {}) == (folder, ports[0] & ports[1], twin.version("steady/before"))
    assert ("registered", True, set[str]()) == (
        states[0],
        states[1] != "submitting",
        {call["method"] for call in calls if "/jobs/" not in call["path"]} - {"GET"},
    )


def begin_submission(twin: TwinUnderTest, version: str) -> str:
    """Upload a version and return its run's id as soon as Azure ML has its submission, which it answers late."""
    twin.client.fail_calls({"match": {"method": "PUT", "path": "/jobs/"}, "do": {"delay_s": SLOW_S}})
    twin.upload(version, whole_version())
    wait_until(lambda: twin.client.pending_call_faults() == 0, what="the submission to arrive", timeout_s=WITHIN_S)
    return str(twin.runs(version)[0]["run_id"])


@pytest.mark.slow
def test_a_functions_host_of_ones_own_gets_the_settings_in_a_file(tmp_path: Path) -> None:
    """Everything but the development host starts; the file has the app settings, readable only by the user."""
    with twin_under_test(replace(options(tmp_path), own_host=True)) as twin:
        places = twin.twin.places
        values = json.loads(places.local_settings.read_text())["Values"]
        assert (3, places.host_connection, 0o600) == (
            len(twin.twin.pids()),
            values["AzureWebJobsStorage"],
            stat.S_IMODE(places.local_settings.stat().st_mode),
        )


@contextmanager
def starting_twin(folder: Path) -> Iterator[Process]:
    """Start `landfall up` with its state in a folder; whatever is left at the end is killed."""
    require_twin_parts()
    arguments = ["up", "--folder", str(folder), "--pipelines", str(PIPELINES), "--node-start-delay-s", "0"]
    up = start_module("cli", *arguments, log=folder / "up.log", environment=child_environment())
    try:
        yield up
    finally:
        up.kill()
        for process in members(folder):
            process.kill()


def members(folder: Path) -> dict[psutil.Process, list[str]]:
    """Return the processes that a folder's twin started, at any depth, with their command lines."""
    found = {process: words(process) for process in psutil.process_iter() if process.pid != os.getpid()}
    return {process: said.command for process, said in found.items() if said.names(folder)}


@dataclass(frozen=True)
class Words:
    """The places where a process may name its folder."""

    command: list[str]
    others: list[str]

    def names(self, folder: Path) -> bool:
        """Return whether command line, environment or working directory name the folder."""
        return any(str(folder) in text for text in (*self.command, *self.others))


def words(process: psutil.Process) -> Words:
    """Read a process's texts; empty for a process that is gone or not ours."""
    try:
        return Words(process.cmdline(), [*process.environ().values(), process.cwd()])
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return Words([], [])


def end(up: Process, number: signal.Signals) -> int:
    """Send a signal and return the exit status."""
    up.popen.send_signal(number)
    return up.await_end()


def await_none_left(folder: Path) -> list[str]:
    """Return the command lines that remain after a while; return at once when there are none."""
    try:
        wait_until(lambda: not members(folder), what="all processes to be gone", timeout_s=120.0, poll_s=0.1)
    except TimeoutError:
        return [" ".join(command) for command in members(folder).values()]
    return []


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("starting Azurite", signal.SIGINT),
        ("publishing", signal.SIGTERM),
        ("publishing", signal.SIGKILL),
        ("starting the Functions", signal.SIGINT),
        (READY, signal.SIGINT),
    ],
)
@pytest.mark.slow
def test_a_signal_at_any_moment_leaves_no_process(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    """SIGINT and SIGTERM work during start-up and afterwards; after SIGKILL, the guards end all processes."""
    with starting_twin(tmp_path) as up:
        up.await_line(moment, timeout_s=START_S)
        wait_until(lambda: len(members(tmp_path)) > 1, what="children to be there")
        status = end(up, number)
        left = [] if number is signal.SIGKILL else list(members(tmp_path).values())
        said = "stopping everything" in up.output().lower()
        assert (ENDED_BY[number], number is not signal.SIGKILL, [], []) == (
            status,
            said,
            left,
            await_none_left(tmp_path),
        )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGKILL))]
)
def test_a_signal_during_a_job_ends_its_ranks(tmp_path: Path, number: signal.Signals) -> None:
    """Mpirun and both ranks, which have their own sessions, end with everything else."""
    with starting_twin(tmp_path) as up:
        up.await_line(READY, timeout_s=START_S)
        upload("endless/v1", twin_file(tmp_path))
        ranks = wait_until(lambda: running_ranks(tmp_path), what="two ranks to run", timeout_s=START_S)
        status = end(up, number)
        assert (ENDED_BY[number], [], False) == (
            status,
            await_none_left(tmp_path),
            any(r.is_running() for r in ranks),
        )


@pytest.mark.slow
def test_a_part_that_dies_ends_the_twin_with_its_name_and_log(tmp_path: Path) -> None:
    """The message names the part that ended and its log, and the other parts are stopped."""
    with starting_twin(tmp_path) as up:
        up.await_line(READY, timeout_s=START_S)
        guard = psutil.Process(twin_file(tmp_path)["parts"]["Azurite"])
        guard.children()[0].kill()
        status = up.await_end()
        assert (1, True, [], False) == (
            status,
            f"Error: Azurite ended with status 137. The end of its log {tmp_path / 'twin/logs/azurite.log'}"
            in up.output()
            or f"Its log {tmp_path / 'twin/logs/azurite.log'} is empty" in up.output(),
            await_none_left(tmp_path),
            "Traceback" in up.output(),
        )


def test_a_missing_part_is_one_sentence(tmp_path: Path) -> None:
    """Azurite needs node; the message says what to install."""
    ended = subprocess.run(
        [sys.executable, "-m", "cli", "up", "--folder", str(tmp_path)],
        env=child_environment(PATH="/nowhere"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (1, "run `make setup`.\n", False) == (ended.returncode, ended.stderr[-18:], "Traceback" in ended.stderr)


def running_ranks(folder: Path) -> list[psutil.Process]:
    """Return the two ranks of the endless job once both exist."""
    found = members(folder).items()
    ranks = [p for p, command in found if Path(*command[:1]).name == "python" and "scripts/stand_in.py" in command]
    return ranks if len(ranks) == 2 else []


def upload(dataset_version: str, twin: dict[str, Any]) -> None:
    """Upload a complete version to a twin that another process runs."""
    with BlobServiceClient.from_connection_string(twin["data_connection"]) as blobs:
        for name, content in whole_version().items():
            blobs.get_blob_client("datasets", f"{dataset_version}/{name}").upload_blob(content)


def twin_file(folder: Path) -> dict[str, Any]:
    """Return the twin's own state file."""
    members: dict[str, Any] = json.loads((folder / "twin" / "twin.json").read_text())
    return members
