"""The twin's state on disk: its folder with the lock, its secrets, and its description for other processes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local_azure.azurite import random_account_key
from local_azure.processes import TwinError

MAX_TWINS = 20
"""Most twins of one clone at the same time: more are a mistake."""
TWIN_FILE = "twin.json"
LOCK_FILE = "lock"
SECRETS_FILE = "secrets.json"


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Created once for each state folder, so that its data stay readable."""

    data_account_key: str
    function_key: str
    topic_key: str
    identity_header: str

    @classmethod
    def random(cls) -> Secrets:
        """Return new secrets."""
        return cls(
            data_account_key=random_account_key(),
            function_key=secrets.token_urlsafe(32),
            topic_key=base64.b64encode(secrets.token_bytes(32)).decode(),
            identity_header=secrets.token_urlsafe(32),
        )


@dataclass(frozen=True)
class StateFolder:
    """A twin's folder, ours while `lock` is open."""

    path: Path
    lock: int

    def release(self) -> None:
        """Release the folder for another twin, as soon as our child processes have ended too."""
        os.close(self.lock)

    def secrets(self) -> Secrets:
        """Return the twin's secrets, which the first call creates, readable for the user alone."""
        path = self.path / SECRETS_FILE
        if not path.exists():
            write_atomically(path, json.dumps(asdict(Secrets.random()), indent=1), mode=0o600)
        try:
            return Secrets(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise TwinError(f"{path} is damaged ({error}). Remove the folder {self.path}.") from error


def take_state_folder(base: Path) -> StateFolder:
    """Take `base`/twin, or `base`/twin-2 and so on where other twins of this clone run.

    Raises TwinError where there are too many, or the folder cannot be written.
    """
    for number in range(1, MAX_TWINS + 1):
        folder = base / ("twin" if number == 1 else f"twin-{number}")
        try:
            lock = _lock(folder)
        except OSError as error:
            raise TwinError(f"the state folder {folder} cannot be used: {error}") from error
        if lock is not None:
            return StateFolder(folder, lock)
    raise TwinError(f"{MAX_TWINS} twins of this clone run already (see {base}); stop one of them.")


def running_twins(base: Path) -> list[dict[str, Any]]:
    """Return the descriptions of a clone's running twins, the first one first."""
    found = sorted(base.glob(f"twin*/{TWIN_FILE}"), key=lambda path: (len(path.parent.name), path.parent.name))
    return [json.loads(path.read_text()) for path in found if _is_locked(path.parent / LOCK_FILE)]


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file whole or not at all, also where several processes write it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_twin_file(folder: Path, members: Mapping[str, Any]) -> None:
    """Write where the twin can be reached; the file has secrets and is readable for the user alone."""
    write_atomically(folder / TWIN_FILE, json.dumps(members, indent=1), mode=0o600)


def _lock(folder: Path) -> int | None:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(BlockingIOError):  # a running twin has it
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
