"""The resources that a twin locks against other twins: its state folder with the secrets, and its ports.

Binding a port shows whether it is free, but the process that will listen on it binds it only later. In between, a
lock excludes other twins: one locked file for each port, in the user's cache folder, which stays open as long as the
twin lives. The system always releases the lock when the twin ends.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from local_azure.azurite import DEFAULT_PORTS as AZURITE_PORTS
from local_azure.azurite import random_account_key
from local_azure.processes import TwinError

MAX_TWINS = 20
"""Maximum number of twins of one clone at the same time; more are probably a mistake."""
TWIN_FILE = "twin.json"
LOCK_FILE = "lock"
SECRETS_FILE = "secrets.json"
DEFAULT_PORTS: Mapping[str, int] = {
    **AZURITE_PORTS,
    "functions": 7071,
    "azure_ml": 10443,
    "event_grid": 10080,
}
"""Ports to try first: the defaults of Azurite and the Functions host, and two that no common program uses."""
STRIDE = 10
"""Step from a taken port to the next: 10000-10002 become 10010-10012, which are easy to recognise."""
MAX_MOVES = 400


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Keys of a twin. They are created once for each state folder, so that its data stay readable."""

    data_account_key: str
    function_key: str
    """Key for every function, which `landfall` uses."""
    master_key: str
    """Key that is also valid for the host's admin endpoints."""
    topic_key: str
    identity_header: str

    @classmethod
    def random(cls) -> Secrets:
        """Return new secrets."""
        return cls(
            data_account_key=random_account_key(),
            function_key=secrets.token_urlsafe(32),
            master_key=secrets.token_urlsafe(32),
            topic_key=base64.b64encode(secrets.token_bytes(32)).decode(),
            identity_header=secrets.token_urlsafe(32),
        )


@dataclass(frozen=True)
class StateFolder:
    """A twin's state folder, which this process owns while `lock` is open."""

    path: Path
    lock: int

    def release(self) -> None:
        """Release the folder. Another twin can use it after this twin's child processes have also ended."""
        os.close(self.lock)

    def secrets(self) -> Secrets:
        """Return the twin's secrets. The first call creates them in a file that only the user can read."""
        path = self.path / SECRETS_FILE
        if not path.exists():
            write_atomically(path, json.dumps(asdict(Secrets.random()), indent=1), mode=0o600)
        try:
            stored = json.loads(path.read_text())
            known = {field.name for field in fields(Secrets)}
            if "master_key" not in stored or stored.keys() - known:  # file of an earlier version
                stored = {name: stored[name] for name in stored if name in known}
                stored.setdefault("master_key", Secrets.random().master_key)
                write_atomically(path, json.dumps(stored, indent=1), mode=0o600)
            return Secrets(**stored)
        except (ValueError, TypeError, AttributeError) as error:
            raise TwinError(f"{path} is damaged ({error}). Remove the folder {self.path}.") from error


def take_state_folder(base: Path) -> StateFolder:
    """Lock `base`/twin, or `base`/twin-2 and so on if other twins of this clone run.

    Raises TwinError if there are too many, or the folder cannot be written.
    """
    for number in range(1, MAX_TWINS + 1):
        folder = base / ("twin" if number == 1 else f"twin-{number}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # so that no other user of this machine can read the parts' files
            lock = _lock(folder / LOCK_FILE)
        except OSError as error:
            raise TwinError(f"the state folder {folder} cannot be used: {error}") from error
        if lock is not None:
            return StateFolder(folder, lock)
    raise TwinError(f"{MAX_TWINS} twins of this clone run already (see {base}); stop one of them.")


def running_twins(base: Path) -> list[dict[str, Any]]:
    """Return the descriptions of a clone's running twins, in the order of their numbers."""
    found = sorted(base.glob(f"twin*/{TWIN_FILE}"), key=lambda path: (len(path.parent.name), path.parent.name))
    twins = []
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # a stopping twin removes it before it releases its lock
            if _is_locked(path.parent / LOCK_FILE):
                twins.append(json.loads(path.read_text()))
    return twins


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file atomically, even if several processes write it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_twin_file(folder: Path, members: Mapping[str, Any]) -> None:
    """Write the twin's description to a file that only the user can read, because it contains secrets."""
    write_atomically(folder / TWIN_FILE, json.dumps(members, indent=1), mode=0o600)


@dataclass(frozen=True)
class Ports:
    """The twin's ports; `held` locks them against other twins until `release`."""

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


def take_ports(defaults: Mapping[str, int] = DEFAULT_PORTS, *, folder: Path | None = None) -> Ports:
    """Lock one free port for each name. Raises TwinError if none is free."""
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


def cache_folder() -> Path:
    """Return the folder for files that outlive a clone, by the XDG base directory specification."""
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


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now, on loopback and, like node, on every address."""
    for address in ("127.0.0.1", ""):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def _lock(path: Path) -> int | None:
    """Return a descriptor that has the lock until it is closed; None if another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return None


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
