"""One command at a time packs into a folder: two would write the same files, and name each other's halves."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cli.errors import CliError


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder, made if need be, until this process leaves or ends. Raises CliError where it is held."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CliError(f"{folder}: cannot be packed into: {error.strerror}.") from error
    try:
        # where a network's file system knows no locks, packing goes on as it did before there were any
        with contextlib.suppress(OSError):
            _lock(held, folder)
        yield
    finally:
        os.close(held)


def _lock(held: int, folder: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CliError(f"{folder}: another command is packing into it: wait for it, or stop it.") from error
