"""Read users' files up to a limit; write new files, or replace one atomically; and shorten their paths."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cli.errors import CliError
from shared.safe_text import one_line


def read_at_most(path: Path, max_bytes: int, *, wanted: str) -> bytes:
    """Return the first bytes of a file. Raises CliError for anything but a file, since a device may have no end.

    ``wanted`` is what to pass instead, such as "a notebook".
    """
    name = one_line(str(path))
    try:
        if path.exists() and not path.is_file():
            raise CliError(f"{name}: is not a file. Pass {wanted}.")
        with path.open("rb") as stream:
            return stream.read(max_bytes)
    except OSError as error:
        raise CliError(f"{name}: cannot be read: {error.strerror}.") from error


def from_here(path: Path) -> Path:
    """Return a path as a person types it: relative if it is below the working directory."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):
        return path


def write_new(path: Path, text: str, *, otherwise: str) -> None:
    """Write a new file. Raises CliError if it exists (``otherwise`` says what to do then) or cannot be written."""
    name = one_line(str(path))
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise CliError(f"{name}: exists already. {otherwise}") from error
    except OSError as error:
        raise CliError(f"{name}: cannot be written: {error.strerror}.") from error


def replace_whole(path: Path, content: bytes) -> None:
    """Replace a file whole or not at all, where a link leads to it too. Raises CliError."""
    target = Path(os.path.realpath(path))
    aside = target.with_name(f".{target.name}.new")
    try:
        aside.write_bytes(content)
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise CliError(f"{one_line(str(path))}: cannot be written: {error.strerror}.") from error
