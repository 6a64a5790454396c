"""Ranks that send each other heartbeats, over real datagrams."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from local_azure.processes import wait_until
from training_job.liveness.heartbeat import HeartbeatThread, RootAddress, open_root_socket
from training_job.liveness.liveness import Heartbeat

pytestmark = pytest.mark.processes

TIMEOUT_S = 0.6
PATIENT_S = 3.0
"""For ranks that should not give up: longer than a busy machine keeps a thread waiting."""


class Rank:
    """A rank without MPI, which records verdicts instead of ending."""

    def __init__(self, number: int, timeout_s: float) -> None:
        self.number = number
        self.heartbeats = 0
        self.moves = True
        self.verdicts: list[str] = []
        self.thread = HeartbeatThread(self.heartbeat, timeout_s=timeout_s, give_up=self.verdicts.append)

    def heartbeat(self) -> Heartbeat:
        self.heartbeats += 1
        count = self.heartbeats if self.moves else 0
        return Heartbeat(rank=self.number, count=count, place="step", step=1, host="here", process_id=self.number)


@pytest.fixture
def timeout_s() -> float:
    """How long a rank may be silent; tests may set another value."""
    return TIMEOUT_S


@pytest.fixture
def root(timeout_s: float) -> Iterator[Rank]:
    """The root."""
    rank = Rank(0, timeout_s)
    yield rank
    rank.thread.stop()
    rank.thread.wait()


@pytest.fixture
def rank(timeout_s: float) -> Iterator[Rank]:
    """Another rank."""
    rank = Rank(1, timeout_s)
    yield rank
    rank.thread.stop()
    rank.thread.wait()


@pytest.fixture
def address(root: Rank, rank: Rank) -> RootAddress:
    """The root's address, once both send heartbeats."""
    receiver, address = open_root_socket(one_node=True)
    root.thread.start_root(receiver, address, 2)
    rank.thread.start_rank(address)
    wait_until(lambda: root.heartbeats > 4, what="the root has answered the rank")
    return address


def wait_for_heartbeats(rank: Rank, number: int) -> None:
    wait_until(lambda: rank.heartbeats >= number, what=f"{number} heartbeats of rank {rank.number}")


@pytest.mark.parametrize("timeout_s", [PATIENT_S])
def test_ranks_that_send_heartbeats_do_not_give_up(root: Rank, rank: Rank, address: RootAddress) -> None:
    """Over twenty heartbeats, several times the timeout."""
    del address
    wait_for_heartbeats(rank, 20)
    assert ([], []) == (root.verdicts, rank.verdicts)


def test_the_root_notices_a_rank_that_falls_silent(root: Rank, rank: Rank, address: RootAddress) -> None:
    """And names it."""
    del address
    rank.thread.stop()
    wait_until(lambda: root.verdicts, what="the root gives up")
    assert root.verdicts[0].startswith("No heartbeat came from rank 1 (host here, process 1)")


def test_a_rank_notices_a_root_that_falls_silent(root: Rank, rank: Rank, address: RootAddress) -> None:
    """No other rank would notice: the root watches the others."""
    del address
    root.thread.stop()
    wait_until(lambda: rank.verdicts, what="the rank gives up")
    assert rank.verdicts[0].startswith("No heartbeat came from rank 0 (host here, process 0)")


def test_the_root_notices_a_rank_that_never_sent_a_heartbeat(root: Rank) -> None:
    """When nothing moves, because the root waits for that rank."""
    receiver, address = open_root_socket(one_node=True)
    root.moves = False
    root.thread.start_root(receiver, address, 2)
    wait_until(lambda: root.verdicts, what="the root gives up")
    assert root.verdicts[0].startswith("No heartbeat ever came from rank 1 since the ranks met")


def test_a_rank_notices_a_root_that_never_answered(rank: Rank) -> None:
    """A port that is bound and never read: the root was stopped before its first look."""
    receiver, address = open_root_socket(one_node=True)
    rank.moves = False
    with receiver:
        rank.thread.start_rank(address)
        wait_until(lambda: rank.verdicts, what="the rank gives up")
    assert rank.verdicts[0].startswith("No heartbeat ever came from rank 0 since the ranks met")


@pytest.mark.parametrize("timeout_s", [PATIENT_S])
def test_a_rank_without_datagrams_that_takes_part_is_left_alone(root: Rank) -> None:
    """A network that drops UDP is no dead rank: the root moves, so all others do."""
    receiver, address = open_root_socket(one_node=True)
    root.thread.start_root(receiver, address, 2)
    wait_for_heartbeats(root, 20)
    assert [] == root.verdicts


def test_datagrams_without_the_key_are_ignored(root: Rank, rank: Rank, address: RootAddress) -> None:
    """A stranger cannot keep a dead rank alive, nor end the root's thread."""
    forged = json.dumps({"rank": 1, "count": 1, "place": "x", "step": 1, "host": "x", "process_id": 1}).encode()
    rank.thread.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def given_up_in_spite_of_it() -> bool:
            for content in (b"", b"x" * 500, b"\0" * 32 + forged):
                stranger.sendto(content, (address.addresses[0], address.port))
            return bool(root.verdicts)

        wait_until(given_up_in_spite_of_it, what="the root gives up on the silent rank")
    assert root.verdicts[0].startswith("No heartbeat came from rank 1 (host here")


def test_only_this_machine_reaches_the_root_socket_of_one_node() -> None:
    """With all ranks on one node the socket is loopback's; the key is new for every training."""
    opened = [open_root_socket(one_node=True) for _ in range(2)]
    for receiver, _ in opened:
        receiver.close()
    first, second = (address for _, address in opened)
    assert ("127.0.0.1",) == first.addresses
    assert first.key != second.key


def test_an_address_survives_the_way_to_other_ranks() -> None:
    """As bytes and back."""
    address = RootAddress(addresses=("10.0.0.4", "10.1.0.4"), port=50000, key="ab" * 16)
    assert address == RootAddress.from_bytes(address.to_bytes())
