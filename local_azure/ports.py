"""Ports on loopback: the usual ones where they are free, others where not, never one that another twin has.

Whether a port is free can be tried by binding it, but the process that will listen on it binds it a while later.
In between only a lock keeps a second twin away: one locked file for each port, in the user's cache folder,
held open for as long as the twin lives (the system releases it however the twin ends).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from local_azure.azurite import DEFAULT_PORTS
from local_azure.processes import TwinError

DEFAULTS: Mapping[str, int] = {
    **DEFAULT_PORTS,
    "functions": 7071,
    "azure_ml": 10443,
    "event_grid": 10080,
}
"""Azurite's own, that of Functions hosts, and two that no other program uses by custom."""
STRIDE = 10
"""Taken ports move by tens, so that 10000-10002 become 10010-10012 and stay recognisable."""
MAX_MOVES = 400


@dataclass(frozen=True)
class Ports:
    """The twin's ports; `held` keeps them from other twins until `release`."""

    numbers: Mapping[str, int]
    held: tuple[int, ...] = field(default=(), repr=False)

    def __getitem__(self, name: str) -> int:
        """The port of one service."""
        return self.numbers[name]

    def release(self) -> Ports:
        """Release the ports for other twins."""
        for descriptor in self.held:
            os.close(descriptor)
        return replace(self, held=())


def take_ports(defaults: Mapping[str, int] = DEFAULTS, *, folder: Path | None = None) -> Ports:
    """Take one free port for each name. Raises TwinError where there is none within reach."""
    locks = folder or cache_folder() / "ports"
    numbers: dict[str, int] = {}
    held: list[int] = []
    try:
        locks.mkdir(parents=True, exist_ok=True)
        for name, wanted in defaults.items():
            numbers[name], descriptor = _take(name, wanted, locks)
            held.append(descriptor)
    except (TwinError, OSError) as error:
        Ports(numbers, tuple(held)).release()
        if isinstance(error, TwinError):
            raise
        raise TwinError(f"the folder {locks}, which keeps twins apart, cannot be used: {error}") from error
    return Ports(numbers, tuple(held))


def free_port() -> int:
    """Return a port that was free a moment ago; prefer port 0 where a server can say which one it took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cache_folder() -> Path:
    """The folder for what outlives a clone, after the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "landfall"


def _take(name: str, wanted: int, locks: Path) -> tuple[int, int]:
    for port in range(wanted, min(wanted + MAX_MOVES * STRIDE, 1 << 16), STRIDE):
        descriptor = _lock(locks / f"{port}.lock")
        if descriptor is None:
            continue
        if is_free(port):
            return port, descriptor
        os.close(descriptor)
    raise TwinError(f"no free port for {name}: tried {wanted}, {wanted + STRIDE} and so on. Stop what listens there.")


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(BlockingIOError):  # another twin has it
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return None


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now, on loopback and (node listens there) on every address."""
    for address in ("127.0.0.1", ""):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
