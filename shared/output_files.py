"""Files in a job's output folders, which are written once, sequentially and under their final names.

An output is a mount over blobs and not a disk: a rename is a copy and a delete, a file cannot be appended to or
changed, and it appears only when it is closed. A file is therefore created on a local disk and then copied to the
output. Temporary failures of storage are retried.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

TRIES = 5
FIRST_PAUSE_S = 0.2
"""Pause before the second try; each further pause is twice as long."""
_COPIED_BYTES = 8 << 20
_FOR_A_MOMENT = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT}
)
"""Errors of a mount whose storage cannot be reached for a while; retries do not help with other errors."""

_Result = TypeVar("_Result")


class OutputFileError(Exception):
    """An output could not be written or read; the message names the file, the problem and the fix."""


def put_bytes(content: bytes, path: Path) -> None:
    """Write a file into an output. Raises OutputFileError."""
    _put(path, lambda file: file.write(content))


def put_file(source: Path, path: Path) -> None:
    """Copy a file of the local disk into an output. Raises OutputFileError."""

    def copy(file: BinaryIO) -> None:
        with source.open("rb") as reader:
            shutil.copyfileobj(reader, file, _COPIED_BYTES)

    _put(path, copy)


def put_folder(source: Path, folder: Path) -> None:
    """Copy all files of a local folder, and of its subfolders, into an output. Raises OutputFileError."""
    for file in sorted(source.rglob("*")):
        if file.is_file():
            put_file(file, folder / file.relative_to(source))


def put_optional(source: Path, folder: Path) -> None:
    """Copy a local folder into an output. A file that cannot be written is reported on stderr, without an error."""
    try:
        put_folder(source, folder)
    except OutputFileError as error:
        sys.stderr.write(f"{error}\n")


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read at most ``max_bytes`` of a file in an output. Raises FileNotFoundError or OutputFileError."""

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(max_bytes)

    try:
        return retried(read)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OutputFileError(f"{path} cannot be read: {_problem(error)}.") from error


def _put(path: Path, write: Callable[[BinaryIO], object]) -> None:
    def put() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Files of a failed try or of an earlier training are removed, because a file cannot be overwritten.
        path.unlink(missing_ok=True)
        with path.open("xb") as file:
            write(file)

    try:
        retried(put)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise OutputFileError(
            f"{path} cannot be written: {_problem(error)}. Look at the storage account of the outputs: whether it "
            f"can be reached, has room, and lets this job write."
        ) from error


def retried(call: Callable[[], _Result]) -> _Result:
    """Return the result of a call, which is repeated after pauses if storage fails temporarily. Raises OSError."""
    for retry in range(TRIES - 1):
        try:
            return call()
        except OSError as error:
            if error.errno not in _FOR_A_MOMENT:
                raise
            time.sleep(FIRST_PAUSE_S * 2**retry)
    return call()


def _problem(error: OSError) -> str:
    tries = f", {TRIES} times in {FIRST_PAUSE_S * (2 ** (TRIES - 1) - 1):g} s" if error.errno in _FOR_A_MOMENT else ""
    return f"{error.strerror or error}{tries}"
