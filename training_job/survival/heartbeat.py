"""Every rank tells the root that it lives, and the root answers: over UDP, beside MPI.

MPI cannot tell: with a stopped rank, Horovod's own negotiation hangs before its stall check is reached
(tried). A datagram that is lost does no harm, another follows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from training_job.survival.own_addresses import own_addresses
from training_job.survival.roll_call import Beat, RollCall

MAX_DATAGRAM_BYTES = 1024
_KEY_BYTES = 16
_DIGEST_BYTES = 32
_LONGEST_INTERVAL_S = 2.0
_BEATS_PER_TIMEOUT = 6
_ROOT = 0


@dataclass(frozen=True, kw_only=True)
class MeetingPoint:
    """Where the root listens, and the key that tells its ranks from strangers."""

    addresses: tuple[str, ...]
    port: int
    key: str

    def to_bytes(self) -> bytes:
        """Return it as the root tells it to all."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> MeetingPoint:
        """Read what `to_bytes` wrote."""
        members = json.loads(content)
        return cls(addresses=tuple(members["addresses"]), port=members["port"], key=members["key"])


def open_meeting_point(*, one_node: bool) -> tuple[socket.socket, MeetingPoint]:
    """Open the root's socket: reachable from this machine only where all ranks are on it."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1" if one_node else "0.0.0.0", 0))  # noqa: S104 (ranks of other nodes have to get here)
    addresses = ("127.0.0.1",) if one_node else own_addresses()
    key = secrets.token_hex(_KEY_BYTES)
    return receiver, MeetingPoint(addresses=addresses, port=receiver.getsockname()[1], key=key)


class Heartbeat:
    """A thread that beats for this rank and watches the others: the root all ranks, a rank the root."""

    def __init__(
        self,
        beat: Callable[[], Beat],
        *,
        timeout_s: float,
        give_up: Callable[[str], None],
    ) -> None:
        self._beat = beat
        self._give_up = give_up
        self._interval_s = min(_LONGEST_INTERVAL_S, timeout_s / _BEATS_PER_TIMEOUT)
        self._timeout_s = timeout_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start_root(self, receiver: socket.socket, point: MeetingPoint, world_size: int) -> None:
        """Listen, answer and watch all ranks."""
        receiver.settimeout(self._interval_s)
        roll = RollCall(self._timeout_s, range(world_size))
        self._start(receiver, roll, lambda: self._receive(receiver, point, roll, answer=True))

    def start_rank(self, point: MeetingPoint) -> None:
        """Beat, and watch the root by its answers."""
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.settimeout(self._interval_s)
        targets = [(address, point.port) for address in point.addresses]
        roll = RollCall(self._timeout_s, [_ROOT])

        def exchange() -> None:
            _send(sender, self._beat(), point.key, targets)
            self._receive(sender, point, roll, answer=False)

        self._start(sender, roll, exchange)

    def stop(self) -> None:
        """Neither beat nor judge any more; the thread ends within an interval."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join()

    def _start(self, link: socket.socket, roll: RollCall, exchange: Callable[[], None]) -> None:
        def watch() -> None:
            with link:
                while not self._stopped.is_set():
                    exchange()
                    verdict = roll.verdict()
                    if verdict and not self._stopped.is_set():
                        self._give_up(verdict)

        self._thread = threading.Thread(target=watch, name="heartbeat", daemon=True)
        self._thread.start()

    def _receive(self, receiver: socket.socket, point: MeetingPoint, roll: RollCall, *, answer: bool) -> None:
        """Take what arrives within one interval."""
        until = time.monotonic() + self._interval_s
        roll.heard(self._beat())
        while time.monotonic() < until:
            try:
                content, sender = receiver.recvfrom(MAX_DATAGRAM_BYTES)
            except (TimeoutError, ConnectionError):
                continue  # silence, or a peer whose port is closed by now: the roll call judges both
            beat = _opened(content, point.key)
            if beat is not None:
                roll.heard(beat)
            if beat is not None and answer:
                _send(receiver, self._beat(), point.key, [sender])


def this_process() -> tuple[str, int]:
    """Return host name and process id."""
    return socket.gethostname(), os.getpid()


def _send(sender: socket.socket, beat: Beat, key: str, targets: Sequence[tuple[str, int]]) -> None:
    content = json.dumps(asdict(beat)).encode()
    for target in targets:
        try:
            sender.sendto(_digest(content, key) + content, target)
        except OSError:
            continue  # an address of the root that this node has no way to: others are tried, silence is judged


def _opened(content: bytes, key: str) -> Beat | None:
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, _digest(body, key)):
        return None
    return Beat(**json.loads(body))


def _digest(content: bytes, key: str) -> bytes:
    return hmac.new(bytes.fromhex(key), content, hashlib.sha256).digest()
