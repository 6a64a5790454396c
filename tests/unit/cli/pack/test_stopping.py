"""`landfall pack` that is asked to stop, or killed: what it leaves, and what a later command makes of that."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_azure.processes import wait_until
from tests.support.processes import child_environment, start_module
from tests.support.terminal import landfall

pytestmark = pytest.mark.processes

SHARD = "train-00000-of-00001.tfrecord"
LEFT = {".landfall-pack.json", f".{SHARD}.part"}
"""What the same command would go on from."""


@pytest.fixture
def _received_signals() -> Iterator[None]:
    """Under nohup, the tests and everything that they start would ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_received_signals")
@pytest.mark.parametrize(
    ("number", "status", "left"),
    [
        (signal.SIGTERM, 143, LEFT),
        pytest.param(signal.SIGHUP, 129, LEFT, marks=pytest.mark.slow),
        (signal.SIGKILL, -9, {*LEFT, ".landfall-pack.rows"}),
    ],
)
def test_a_signal_while_a_table_is_packed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, number: signal.Signals, status: int, left: set[str]
) -> None:
    """The copy of its values goes, if anything can still be done; a later command sees to what is left."""
    path, target = tmp_path / "table.csv", tmp_path / "shards"
    path.write_text("x\n" + "1\n" * 300_000)  # takes seconds
    arguments = ["pack", "table", str(path), "--to", str(target), "--shards", "1", "--no-init"]
    process = start_module("cli", *arguments, log=tmp_path / "log", environment=child_environment())
    wait_until((target / f".{SHARD}.part").exists, what="a shard to be begun")
    process.popen.send_signal(number)
    assert (status, left) == (process.popen.wait(600), names(target))
    assert process.output() == ("" if number is signal.SIGKILL else "Stopped.\n")
    path.write_text("x\n1\n")
    again, _, _ = landfall(capsys, *arguments)
    assert (0, {SHARD, "dataset.json"}) == (again, names(target))


def names(folder: Path) -> set[str]:
    """Return the content of a folder."""
    return {path.name for path in folder.iterdir()}
