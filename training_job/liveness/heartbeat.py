"""Every rank sends the root heartbeats, and the root answers: over UDP, independently of MPI.

MPI cannot detect a stopped rank: Horovod's own negotiation hangs with it before its stall check is reached. A lost
datagram does no harm, because another follows.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from training_job.liveness.liveness import Heartbeat, Liveness

MAX_DATAGRAM_BYTES = 1024
_KEY_BYTES = 16
_DIGEST_BYTES = 32
_LONGEST_INTERVAL_S = 2.0
_HEARTBEATS_PER_TIMEOUT = 6
_SIOCGIFADDR = 0x8915
"""netdevice(7): an interface's address."""
_INTERFACE_NAME_BYTES = 15


@dataclass(frozen=True, kw_only=True)
class RootAddress:
    """Where the root listens, and the key by which its ranks are recognised."""

    addresses: tuple[str, ...]
    port: int
    key: str

    def to_bytes(self) -> bytes:
        """Return the bytes that the root sends to all ranks."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> RootAddress:
        """Read the output of `to_bytes`."""
        members = json.loads(content)
        return cls(addresses=tuple(members["addresses"]), port=members["port"], key=members["key"])


def open_root_socket(*, one_node: bool) -> tuple[socket.socket, RootAddress]:
    """Open the root's socket; reachable from this machine only, if all ranks are on it."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1" if one_node else "0.0.0.0", 0))  # noqa: S104 (ranks of other nodes must reach it)
    addresses = ("127.0.0.1",) if one_node else own_addresses()
    key = secrets.token_hex(_KEY_BYTES)
    return receiver, RootAddress(addresses=addresses, port=receiver.getsockname()[1], key=key)


class HeartbeatThread:
    """Sends this rank's heartbeats and watches others: the root watches all ranks, a rank watches the root.

    Only the root judges a standstill: a rank does not know whether another one is in a place that may take long.
    """

    def __init__(
        self,
        heartbeat: Callable[[], Heartbeat],
        *,
        timeout_s: float,
        give_up: Callable[[str], None],
    ) -> None:
        self._heartbeat = heartbeat
        self._give_up = give_up
        self._interval_s = min(_LONGEST_INTERVAL_S, timeout_s / _HEARTBEATS_PER_TIMEOUT)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start_root(self, receiver: socket.socket, address: RootAddress, liveness: Liveness) -> None:
        """Listen, answer and watch all ranks."""
        receiver.settimeout(self._interval_s)
        self._start(receiver, lambda: self._receive(receiver, address, liveness, answer=True), liveness.verdict)

    def start_rank(self, address: RootAddress, liveness: Liveness) -> None:
        """Send heartbeats, and watch the root by its answers."""
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.settimeout(self._interval_s)
        targets = [(host, address.port) for host in address.addresses]

        def send_and_receive() -> None:
            _send(sender, self._heartbeat(), address.key, targets)
            self._receive(sender, address, liveness, answer=False)

        self._start(sender, send_and_receive, liveness.lost)

    def stop(self) -> None:
        """Stop sending and watching; the thread ends within an interval."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join()

    def _start(self, link: socket.socket, communicate: Callable[[], None], judge: Callable[[], str | None]) -> None:
        def watch() -> None:
            with link:
                while not self._stopped.is_set():
                    communicate()
                    verdict = judge()
                    if verdict and not self._stopped.is_set():
                        self._give_up(verdict)

        self._thread = threading.Thread(target=watch, name="heartbeat", daemon=True)
        self._thread.start()

    def _receive(self, receiver: socket.socket, address: RootAddress, liveness: Liveness, *, answer: bool) -> None:
        """Process the datagrams that arrive within one interval."""
        until = time.monotonic() + self._interval_s
        liveness.receive(self._heartbeat())
        while time.monotonic() < until:
            try:
                content, sender = receiver.recvfrom(MAX_DATAGRAM_BYTES)
            except (TimeoutError, ConnectionError):
                continue  # silence, or a peer whose port is closed by now: the verdict covers both
            heartbeat = _verified(content, address.key)
            if heartbeat is not None:
                liveness.receive(heartbeat)
            if heartbeat is not None and answer:
                _send(receiver, self._heartbeat(), address.key, [sender])


def this_process() -> tuple[str, int]:
    """Return host name and process id."""
    return socket.gethostname(), os.getpid()


def own_addresses() -> tuple[str, ...]:
    """Return this node's IPv4 addresses from the kernel, loopback excluded.

    Host names need not resolve on a cluster's private network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found = [_address(probe, name) for _, name in socket.if_nameindex()]
    return tuple(address for address in found if address and not address.startswith("127."))


def _address(probe: socket.socket, interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:_INTERFACE_NAME_BYTES])
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return None  # an interface without an IPv4 address
    return socket.inet_ntoa(answer[20:24])


def _send(sender: socket.socket, heartbeat: Heartbeat, key: str, targets: Sequence[tuple[str, int]]) -> None:
    content = json.dumps(asdict(heartbeat)).encode()
    for target in targets:
        try:
            sender.sendto(_digest(content, key) + content, target)
        except OSError:
            continue  # this node has no route to that address of the root; the others are tried


def _verified(content: bytes, key: str) -> Heartbeat | None:
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, _digest(body, key)):
        return None
    return Heartbeat(**json.loads(body))


def _digest(content: bytes, key: str) -> bytes:
    return hmac.new(bytes.fromhex(key), content, hashlib.sha256).digest()
