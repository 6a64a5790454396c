"""Ranks that send each other heartbeats, over real datagrams."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from local_azure.processes import wait_until
from training_job.liveness.heartbeat import HeartbeatThread, RootAddress, open_root_socket
from training_job.liveness.liveness import Heartbeat, Liveness

pytestmark = pytest.mark.processes

TIMEOUT_S = 0.06
"""On the tests' clock, so that a busy machine makes no rank silent. Threads wake after a sixth of it in real time."""
HALF_TIMEOUTS = 10


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CountingLiveness(Liveness):
    """Counts the heartbeats of each rank."""

    def __init__(self, awaited: Iterable[int], clock: Clock) -> None:
        super().__init__(TIMEOUT_S, awaited, clock)
        self.received: Counter[int] = Counter()

    def receive(self, heartbeat: Heartbeat) -> None:
        super().receive(heartbeat)
        self.received[heartbeat.rank] += 1


class Rank:
    """A rank without MPI, which records verdicts instead of ending."""

    def __init__(self, number: int, awaited: Iterable[int], clock: Clock) -> None:
        self.number = number
        self.heartbeats = 0
        self.moves = True
        self.verdicts: list[str] = []
        self.liveness = CountingLiveness(awaited, clock)
        self.thread = HeartbeatThread(self.heartbeat, timeout_s=TIMEOUT_S, give_up=self.verdicts.append)

    def heartbeat(self) -> Heartbeat:
        self.heartbeats += 1
        count = self.heartbeats if self.moves else 0
        return Heartbeat(rank=self.number, count=count, place="step", step=1, host="here", process_id=self.number)

    def end(self) -> None:
        self.thread.stop()
        self.thread.wait()


@pytest.fixture
def clock() -> Clock:
    """The clock by which ranks are silent."""
    return Clock()


@pytest.fixture
def root(clock: Clock) -> Iterator[Rank]:
    """The root."""
    rank = Rank(0, [0, 1], clock)
    yield rank
    rank.end()


@pytest.fixture
def rank(clock: Clock) -> Iterator[Rank]:
    """Another rank."""
    rank = Rank(1, [0], clock)
    yield rank
    rank.end()


@pytest.fixture
def address(root: Rank, rank: Rank) -> RootAddress:
    """The root's address, once each has received a heartbeat of the other."""
    receiver, address = open_root_socket(one_node=True)
    root.thread.start_root(receiver, address, root.liveness)
    rank.thread.start_rank(address, rank.liveness)
    wait_until(lambda: root.liveness.received[1] and rank.liveness.received[0], what="both have met")
    return address


def pass_half_a_timeout(clock: Clock, *heard: tuple[Rank, int]) -> None:
    """Move the clock, and wait until each of these ranks has received heartbeats of the other number since then."""
    clock.now += TIMEOUT_S / 2
    for rank, number in heard:
        before = rank.liveness.received[number]
        # The first may have been sent, or its time taken, before the clock moved.
        wait_until(lambda: rank.liveness.received[number] > before + 1, what=f"rank {rank.number} hears {number}")  # noqa: B023


def verdict(rank: Rank, clock: Clock, meanwhile: Callable[[], object] = lambda: None) -> str:
    """Let time pass, in which this rank receives only its own heartbeats, until it gives up; return what it says."""

    def verdicts() -> list[str]:
        meanwhile()
        pass_half_a_timeout(clock, (rank, rank.number))
        return rank.verdicts

    return wait_until(verdicts, what=f"rank {rank.number} gives up")[0]


def test_ranks_that_send_heartbeats_do_not_give_up(
    root: Rank, rank: Rank, clock: Clock, address: RootAddress
) -> None:
    """This is observed for several times the timeout."""
    del address
    for _ in range(HALF_TIMEOUTS):
        pass_half_a_timeout(clock, (root, 0), (root, 1), (rank, 0), (rank, 1))
    assert ([], []) == (root.verdicts, rank.verdicts)


def test_the_root_notices_a_rank_that_falls_silent(
    root: Rank, rank: Rank, clock: Clock, address: RootAddress
) -> None:
    """The message names the rank."""
    del address
    rank.end()
    assert verdict(root, clock).startswith("No heartbeat came from rank 1 (host here, process 1)")


def test_a_rank_notices_a_root_that_falls_silent(root: Rank, rank: Rank, clock: Clock, address: RootAddress) -> None:
    """No other rank would notice: the root watches the others."""
    del address
    root.end()
    assert verdict(rank, clock).startswith("No heartbeat came from rank 0 (host here, process 0)")


def test_the_root_notices_a_rank_that_never_sent_a_heartbeat(root: Rank, clock: Clock) -> None:
    """When nothing moves, because the root waits for that rank."""
    receiver, address = open_root_socket(one_node=True)
    root.moves = False
    root.thread.start_root(receiver, address, root.liveness)
    assert verdict(root, clock).startswith("No heartbeat ever came from rank 1 since the ranks met")


def test_a_rank_notices_a_root_that_never_answered(rank: Rank, clock: Clock) -> None:
    """A port that is bound and never read: the root was stopped before its first look."""
    receiver, address = open_root_socket(one_node=True)
    rank.moves = False
    with receiver:
        rank.thread.start_rank(address, rank.liveness)
        words = verdict(rank, clock)
    assert words.startswith("No heartbeat ever came from rank 0 since the ranks met")


def test_a_rank_without_datagrams_that_takes_part_is_left_alone(root: Rank, clock: Clock) -> None:
    """A network that drops UDP is no dead rank: the root moves, so all others do."""
    receiver, address = open_root_socket(one_node=True)
    root.thread.start_root(receiver, address, root.liveness)
    for _ in range(HALF_TIMEOUTS):
        pass_half_a_timeout(clock, (root, 0))
    assert [] == root.verdicts


def test_only_the_root_judges_a_standstill(root: Rank, rank: Rank, clock: Clock, address: RootAddress) -> None:
    """A third rank, which only the root knows, may be in a place that takes long."""
    del address
    root.moves = rank.moves = False
    for _ in range(HALF_TIMEOUTS):
        pass_half_a_timeout(clock, (root, 0), (root, 1), (rank, 0), (rank, 1))
    assert root.verdicts[0].startswith("All 2 ranks have been in 'step'")
    assert [] == rank.verdicts


def test_datagrams_without_the_key_are_ignored(root: Rank, rank: Rank, clock: Clock, address: RootAddress) -> None:
    """A stranger cannot keep a dead rank alive, nor end the root's thread."""
    forged = json.dumps({"rank": 1, "count": 1, "place": "x", "step": 1, "host": "x", "process_id": 1}).encode()
    rank.end()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def forge() -> None:
            for content in (b"", b"x" * 500, b"\0" * 32 + forged):
                stranger.sendto(content, (address.addresses[0], address.port))

        words = verdict(root, clock, meanwhile=forge)
    assert words.startswith("No heartbeat came from rank 1 (host here")


def test_only_this_machine_reaches_the_root_socket_of_one_node() -> None:
    """If all ranks are on one node, the socket is bound to loopback; every training has a new key."""
    opened = [open_root_socket(one_node=True) for _ in range(2)]
    for receiver, _ in opened:
        receiver.close()
    first, second = (address for _, address in opened)
    assert ("127.0.0.1",) == first.addresses
    assert first.key != second.key


def test_an_address_survives_the_way_to_other_ranks() -> None:
    """The address is converted to bytes and back."""
    address = RootAddress(addresses=("10.0.0.4", "10.1.0.4"), port=50000, key="ab" * 16)
    assert address == RootAddress.from_bytes(address.to_bytes())
