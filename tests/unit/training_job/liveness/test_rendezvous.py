"""Which ranks are named when not all meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_job.liveness import rendezvous
from training_job.liveness.rendezvous import Rendezvous


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have left their marks before."""
    monkeypatch.setattr(rendezvous, "_MARKING_S", 0.0)


def present(folder: Path, *ranks: int) -> Path:
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / str(rank)).touch()
    return folder


def test_ranks_without_a_mark_are_named(tmp_path: Path) -> None:
    """This rank is there; 1 and 3 are not."""
    meeting = Rendezvous(folder=present(tmp_path / "a", 2), rank=0, world_size=4)
    assert (
        "The ranks should have met within 900 s. Of 4, ranks 1, 3 gave no sign: dead, stopped or not started. "
        "Look at the log of each." == meeting.verdict(900.0)
    )


def test_where_all_are_alive_the_network_is_blamed(tmp_path: Path) -> None:
    """No rank is missing, and still they did not meet."""
    meeting = Rendezvous(folder=present(tmp_path / "a", 1), rank=0, world_size=2)
    assert "All 2 are alive, but cannot reach each other" in meeting.verdict(900.0)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The deadline holds all the same, without a name."""
    (tmp_path / "file").touch()
    words = Rendezvous(folder=tmp_path / "file" / "a", rank=0, world_size=2).verdict(900.0)
    assert f"Which ranks are missing could not be found out in {tmp_path}/file/a: Not a directory." in words
