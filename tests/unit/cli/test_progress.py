"""What people see of `validate` and `pack` while they work: a bar on a terminal, and nowhere else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local_azure.processes import wait_until
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import framed, image_bytes, labelled
from tests.support.terminal import CTRL_C, landfall_on_terminal

pytestmark = pytest.mark.processes

SHARD = framed([labelled(i % 10, image=bytes(1000)) for i in range(2000)])
"""2.0 MiB."""


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with two shards of one size."""
    for i in range(2):
        (tmp_path / f"train-0000{i}-of-00002.tfrecord").write_bytes(SHARD)
    return tmp_path


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A folder with two files that take minutes: a terabyte of zeros each, which takes no room."""
    for i in range(2):
        with (tmp_path / f"train-0000{i}-of-00002.tfrecord").open("wb") as file:
            file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2])
def test_validate_shows_how_many_bytes_are_done(shards: Path, jobs: int) -> None:
    """The bar names what is done, and ends with all bytes of all shards, in any number of processes."""
    with landfall_on_terminal(["validate", shards, "--processes", jobs]) as terminal:
        assert 0 == terminal.wait()
    bars = re.findall(r"validating 2 shards\s+\S+\s+([\d.]+)/([\d.]+) MiB", terminal.shown)
    total = f"{2 * len(SHARD) / (1 << 20):.1f}"
    assert ({total}, total) == ({of for _, of in bars}, bars[-1][0])
    assert float(bars[0][0]) < float(total)
    assert 2 == terminal.shown.count("accepted    ")


def test_standard_output_stays_clean_for_programs(shards: Path) -> None:
    """The bar is on the terminal, and a redirected file has only JSON."""
    output = shards / "verdicts.jsonl"
    with landfall_on_terminal(["validate", shards, "--json"], stdout=output) as terminal:
        assert 0 == terminal.wait()
    assert ["accepted"] * 2 == [json.loads(line)["verdict"] for line in output.read_text().splitlines()]
    assert "validating 2 shards" in terminal.shown


def landfall_in_pipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command line with files in place of a terminal."""
    command = [sys.executable, "-m", "cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=child_environment(), check=False, timeout=600
    )


def test_without_a_terminal_there_is_no_bar(shards: Path) -> None:
    """A log holds the verdicts and nothing that moves."""
    ended = landfall_in_pipe("validate", shards)
    assert (0, "", False) == (ended.returncode, ended.stderr, "\x1b" in ended.stdout)


def test_pack_shows_how_many_examples_are_done(tmp_path: Path) -> None:
    """The bar ends with all examples; without a terminal there is none."""
    for name in ("cat", "dog"):
        (tmp_path / "source" / name).mkdir(parents=True)
        for i in range(12):
            (tmp_path / "source" / name / f"{i}.png").write_bytes(image_bytes("PNG", (8 + i, 8)))
    arguments = ("pack", "images", tmp_path / "source", "--shards", 2, "--validation-share", 0, "--no-init")
    with landfall_on_terminal([*arguments, "--to", tmp_path / "a"]) as terminal:
        assert 0 == terminal.wait()
    bars = re.findall(r"packing 24 examples\s+\S+\s+(\d+)/(\d+)", terminal.shown)
    assert (("0", "24"), ("24", "24")) == (bars[0], bars[-1])
    ended = landfall_in_pipe(*arguments, "--to", tmp_path / "b")
    assert (0, "", 1) == (ended.returncode, ended.stderr, len(ended.stdout.splitlines()))


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_everything_at_once(endless: Path, jobs: int) -> None:
    """Exit status 130, one word, no stack trace, and no process is left behind."""
    with landfall_on_terminal(["validate", endless, "--processes", jobs]) as terminal:
        terminal.wait_for("B/s")  # the bar has seen bytes go by
        session = terminal.process.pid
        terminal.type(CTRL_C)
        status = terminal.wait()
    assert (130, True, False) == (status, "Stopped." in terminal.shown, "Traceback" in terminal.shown)
    wait_until(lambda: not members(session), what="all processes of the command to end")


def test_a_killed_process_is_reported(endless: Path) -> None:
    """The kernel kills processes if memory is short: one sentence says what to do, and the others end, too."""
    with landfall_on_terminal(["validate", endless, "--processes", 2]) as terminal:
        terminal.wait_for("B/s")
        first, last = workers(terminal.process.pid)
        os.kill(first, signal.SIGSTOP)  # it would read terabytes meanwhile, and must end although it does not answer
        os.kill(last, signal.SIGKILL)
        status = terminal.wait()
    assert (1, True, False) == (
        status,
        "try again with --processes 1" in " ".join(terminal.shown.split()),
        "Traceback" in terminal.shown,
    )
    wait_until(lambda: not members(terminal.process.pid), what="all processes of the command to end")


def workers(session: int) -> list[int]:
    """Return the validating processes of a session, without the command itself and what multiprocessing adds."""
    commands = {int(process): Path(f"/proc/{process}/cmdline").read_bytes() for process in members(session)}
    return [process for process, command in commands.items() if b"spawn_main" in command]


def members(session: int) -> list[str]:
    """Return the processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                found.append(entry.name)
        except ProcessLookupError:
            continue  # it ended meanwhile
    return found


def test_a_reader_that_goes_away_ends_it(endless: Path) -> None:
    """For example `| head -1`: there is no stack trace, and no wait for unfinished shards."""
    (endless / "train-00000-of-00002.tfrecord").write_bytes(SHARD)
    reader, writer = os.pipe()
    os.close(reader)  # before the first verdict: a reader that went later would leave an unknown number of them
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "cli", "validate", str(endless), "--json", "--processes", "2"],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=child_environment(),
            check=False,
            timeout=600,
        )
    assert (1, "") == (ended.returncode, ended.stderr)
