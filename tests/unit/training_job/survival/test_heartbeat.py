"""Ranks that tell each other that they live, over real datagrams."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from local_azure.processes import wait_until
from training_job.survival.heartbeat import Heartbeat, MeetingPoint, open_meeting_point
from training_job.survival.roll_call import Beat

TIMEOUT_S = 0.6
PATIENT_S = 3.0
"""Where nobody should give up: longer than a busy machine keeps a thread waiting."""


class Rank:
    """A rank without MPI: it notes what it would have died of."""

    def __init__(self, number: int, timeout_s: float) -> None:
        self.number = number
        self.beats = 0
        self.moves = True
        self.verdicts: list[str] = []
        self.heartbeat = Heartbeat(self.beat, timeout_s=timeout_s, give_up=self.verdicts.append)

    def beat(self) -> Beat:
        self.beats += 1
        count = self.beats if self.moves else 0
        return Beat(rank=self.number, count=count, place="step", step=1, host="here", process_id=self.number)


@pytest.fixture
def timeout_s() -> float:
    """After how long a silence is judged; tests may set another."""
    return TIMEOUT_S


@pytest.fixture
def root(timeout_s: float) -> Iterator[Rank]:
    """The root."""
    rank = Rank(0, timeout_s)
    yield rank
    rank.heartbeat.stop()
    rank.heartbeat.wait()


@pytest.fixture
def rank(timeout_s: float) -> Iterator[Rank]:
    """Another rank."""
    rank = Rank(1, timeout_s)
    yield rank
    rank.heartbeat.stop()
    rank.heartbeat.wait()


@pytest.fixture
def point(root: Rank, rank: Rank) -> MeetingPoint:
    """Where both have met and beat."""
    receiver, point = open_meeting_point(one_node=True)
    root.heartbeat.start_root(receiver, point, 2)
    rank.heartbeat.start_rank(point)
    wait_until(lambda: root.beats > 4, what="the root has answered the rank")
    return point


def beats_of(rank: Rank, number: int) -> None:
    wait_until(lambda: rank.beats >= number, what=f"{number} beats of rank {rank.number}")


@pytest.mark.parametrize("timeout_s", [PATIENT_S])
def test_ranks_that_beat_keep_each_other_content(root: Rank, rank: Rank, point: MeetingPoint) -> None:
    """Over twenty beats, several times the timeout, nobody gives up."""
    del point
    beats_of(rank, 20)
    assert ([], []) == (root.verdicts, rank.verdicts)


def test_the_root_notices_a_rank_that_falls_silent(root: Rank, rank: Rank, point: MeetingPoint) -> None:
    """And names it."""
    del point
    rank.heartbeat.stop()
    wait_until(lambda: root.verdicts, what="the root gives up")
    assert root.verdicts[0].startswith("Nothing was heard of rank 1 (host here, process 1)")


def test_a_rank_notices_a_root_that_falls_silent(root: Rank, rank: Rank, point: MeetingPoint) -> None:
    """Nobody else would: the root is the one who watches the others."""
    del point
    root.heartbeat.stop()
    wait_until(lambda: rank.verdicts, what="the rank gives up")
    assert rank.verdicts[0].startswith("Nothing was heard of rank 0 (host here, process 0)")


def test_the_root_notices_a_rank_that_never_beat(root: Rank) -> None:
    """Where nothing moves: the root waits for it somewhere."""
    receiver, point = open_meeting_point(one_node=True)
    root.moves = False
    root.heartbeat.start_root(receiver, point, 2)
    wait_until(lambda: root.verdicts, what="the root gives up")
    assert root.verdicts[0].startswith("Nothing was ever heard of rank 1 since the ranks met")


def test_a_rank_notices_a_root_that_never_answered(rank: Rank) -> None:
    """A port that is bound and never read: the root was stopped before its first look."""
    receiver, point = open_meeting_point(one_node=True)
    rank.moves = False
    with receiver:
        rank.heartbeat.start_rank(point)
        wait_until(lambda: rank.verdicts, what="the rank gives up")
    assert rank.verdicts[0].startswith("Nothing was ever heard of rank 0 since the ranks met")


@pytest.mark.parametrize("timeout_s", [PATIENT_S])
def test_a_rank_without_datagrams_that_takes_part_is_left_alone(root: Rank) -> None:
    """A network that drops UDP is no dead rank: the root moves, so all others do."""
    receiver, point = open_meeting_point(one_node=True)
    root.heartbeat.start_root(receiver, point, 2)
    beats_of(root, 20)
    assert [] == root.verdicts


def test_strangers_and_garbage_are_not_heard(root: Rank, rank: Rank, point: MeetingPoint) -> None:
    """Without the key nobody keeps a dead rank alive, and nothing ends the root's thread."""
    forged = json.dumps({"rank": 1, "count": 1, "place": "x", "step": 1, "host": "x", "process_id": 1}).encode()
    rank.heartbeat.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def heard_in_spite_of_it() -> bool:
            for content in (b"", b"x" * 500, b"\0" * 32 + forged):
                stranger.sendto(content, (point.addresses[0], point.port))
            return bool(root.verdicts)

        wait_until(heard_in_spite_of_it, what="the root gives up on the silent rank")
    assert root.verdicts[0].startswith("Nothing was heard of rank 1 (host here")


def test_only_this_machine_reaches_the_meeting_point_of_one_node() -> None:
    """With all ranks on one node the socket is loopback's; the key is new for every training."""
    opened = [open_meeting_point(one_node=True) for _ in range(2)]
    for receiver, _ in opened:
        receiver.close()
    first, second = (point for _, point in opened)
    assert ("127.0.0.1",) == first.addresses
    assert first.key != second.key


def test_a_meeting_point_survives_the_way_to_other_ranks() -> None:
    """As bytes and back."""
    point = MeetingPoint(addresses=("10.0.0.4", "10.1.0.4"), port=50000, key="ab" * 16)
    assert point == MeetingPoint.from_bytes(point.to_bytes())
