"""Which rank is named when nothing moves any more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from training_job.liveness import liveness as module
from training_job.liveness.liveness import Heartbeat, Liveness, Rendezvous


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def heartbeat(rank: int, count: int, place: str = "step") -> Heartbeat:
    return Heartbeat(rank=rank, count=count, place=place, step=count // 2, host=f"node{rank}", process_id=100 + rank)


def watched(timeout_s: float = 10, awaited: Iterable[int] = ()) -> tuple[Liveness, Clock]:
    clock = Clock()
    return Liveness(timeout_s, awaited, clock), clock


def receive(liveness: Liveness, clock: Clock, seconds: int, *heartbeats: Heartbeat) -> None:
    """Receive the same heartbeats every second."""
    for _ in range(seconds):
        clock.now += 1
        for each in heartbeats:
            liveness.receive(each)


def test_all_is_well_while_ranks_move() -> None:
    """A hundred seconds of steps."""
    liveness, clock = watched()
    for count in range(100):
        receive(liveness, clock, 1, heartbeat(0, count), heartbeat(1, count))
        assert liveness.verdict() is None


def test_a_silent_rank_is_named_with_its_node_and_where_it_was() -> None:
    """This happens after the timeout, not before."""
    liveness, clock = watched()
    liveness.receive(heartbeat(1, 8))
    receive(liveness, clock, 10, heartbeat(0, 8))
    assert liveness.verdict() is None
    receive(liveness, clock, 1, heartbeat(0, 8))
    assert "No heartbeat came from rank 1 (host node1, process 101) for 11 s; it was in 'step' after step 4." in (
        liveness.verdict() or ""
    )


def test_a_rank_that_lives_but_does_not_move_is_named() -> None:
    """The root waits in a step that rank 1 never comes to."""
    liveness, clock = watched()
    receive(liveness, clock, 13, heartbeat(0, 9), heartbeat(1, 8, "reading"))
    assert (liveness.verdict() or "").startswith(
        "rank 1 (host node1, process 101) has been in 'reading' after step 4"
    )


def test_ranks_that_all_stand_still_in_one_place_blame_what_is_between_them() -> None:
    """No rank is behind."""
    liveness, clock = watched()
    receive(liveness, clock, 13, heartbeat(0, 9), heartbeat(1, 9))
    assert "All 2 ranks have been in 'step' after step 4" in (liveness.verdict() or "")


def test_a_rank_that_still_moves_is_no_standstill() -> None:
    """One slow reader that gets on is not stuck, however long another waits for it."""
    liveness, clock = watched()
    for count in range(30):
        receive(liveness, clock, 1, heartbeat(0, 99), heartbeat(1, count, "reading"))
    assert liveness.verdict() is None


def test_compiling_and_exporting_may_take_ten_times_as_long() -> None:
    """The longer timeout is also limited."""
    liveness, clock = watched()
    receive(liveness, clock, 100, heartbeat(0, 9, "export"), heartbeat(1, 9, "export"))
    assert liveness.verdict() is None
    receive(liveness, clock, 3, heartbeat(0, 9, "export"), heartbeat(1, 9, "export"))
    assert liveness.verdict() is not None


def test_ranks_that_never_sent_a_heartbeat_are_named_once_the_others_stand_still() -> None:
    """Even if the others may take long, the usual timeout applies: living ranks send heartbeats from the start."""
    liveness, clock = watched(awaited=range(4))
    receive(liveness, clock, 10, heartbeat(0, 1, "start"), heartbeat(2, 1, "start"))
    assert liveness.verdict() is None
    receive(liveness, clock, 2, heartbeat(0, 1, "start"), heartbeat(2, 1, "start"))
    assert (liveness.verdict() or "").startswith(
        "No heartbeat ever came from ranks 1, 3 since the ranks met, "
        "and the others have stood still for 10 s, in 'start'."
    )


def test_a_rank_that_never_sent_a_heartbeat_is_alive_while_the_others_move() -> None:
    """No step is taken without it."""
    liveness, clock = watched(awaited=range(2))
    for count in range(100):
        receive(liveness, clock, 1, heartbeat(0, count))
        assert liveness.verdict() is None


def test_a_rank_that_was_awaited_and_came_is_not_missing() -> None:
    """Its own silence or standstill is judged from then on."""
    liveness, clock = watched(awaited=range(2))
    receive(liveness, clock, 1, heartbeat(0, 1, "start"), heartbeat(1, 1, "start"))
    receive(liveness, clock, 50, heartbeat(0, 1, "start"), heartbeat(1, 1, "start"))
    assert liveness.verdict() is None


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have left their marks before."""
    monkeypatch.setattr(module, "_MARKING_S", 0.0)


def present(folder: Path, *ranks: int) -> Path:
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / str(rank)).touch()
    return folder


def test_ranks_without_a_mark_are_named(tmp_path: Path) -> None:
    """This rank is there; 1 and 3 are not."""
    meeting = Rendezvous(folder=present(tmp_path / "a", 2), rank=0, world_size=4, sees_all=True)
    assert (
        "The ranks have not met within 900 s. Of 4, ranks 1, 3 gave no sign: dead, stopped or not started. "
        "Look at the log of each." == meeting.verdict(900.0)
    )


def test_where_all_are_alive_the_network_is_blamed(tmp_path: Path) -> None:
    """No rank is missing, and still they did not meet."""
    meeting = Rendezvous(folder=present(tmp_path / "a", 1), rank=0, world_size=2, sees_all=True)
    assert "All 2 are alive, but cannot reach each other" in meeting.verdict(900.0)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The deadline holds all the same, without a name."""
    (tmp_path / "file").touch()
    words = Rendezvous(folder=tmp_path / "file" / "a", rank=0, world_size=2, sees_all=True).verdict(900.0)
    assert (
        f"Which ranks are missing could not be determined in {tmp_path}/file/a: {tmp_path}/file/a/0 cannot "
        f"be" in words
    )


def test_marks_of_other_nodes_may_not_be_visible_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount caches: no rank is declared dead whose mark may only be late, except on one node or without a cache."""
    for name, value in {"SIZE": "4", "RANK": "0", "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    unseen = Rendezvous.under(present(tmp_path / "a")).verdict(900.0)
    assert "Of 4, ranks 1, 2, 3 gave no sign that this node sees" in unseen
    assert "or on another node and not visible here yet" in unseen
    monkeypatch.setenv("DATASET_MOUNT_ATTRIBUTE_CACHE_TTL", "0")
    assert "gave no sign: dead, stopped or not started" in Rendezvous.under(tmp_path / "b").verdict(900.0)
    monkeypatch.delenv("DATASET_MOUNT_ATTRIBUTE_CACHE_TTL")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    assert "gave no sign: dead, stopped or not started" in Rendezvous.under(tmp_path / "c").verdict(900.0)
