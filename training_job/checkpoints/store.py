"""A folder of checkpoints in an output of the job, where no file is changed once it is written.

A checkpoint is made on the local disk and copied once under a name of its own; then its pointer is written, twice. A
pointer states the position and the checkpoint's length and CRC. A process that dies at any moment leaves the pointers
of earlier checkpoints unchanged. The next attempt uses the newest complete pointer whose checkpoint is complete; a
second copy of a pointer, or the previous checkpoint, replaces an incomplete or missing one.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shared.crc import crc32c_of_file
from shared.output_files import OutputFileError, put_bytes, put_file, read_bytes, retried
from training_job.checkpoints.position import Position
from training_job.errors import CheckpointError

MAX_POINTER_BYTES = 64 << 20
FORMER_POINTER = "latest.json"
"""The only pointer of folders that were written before pointers had names of their own; read, not written."""
_COPIES = (1, 2)
_NAME = re.compile(r"(?:checkpoint|pointer)-(\d{9,})(?:-(\d{6,})-[0-9a-f]+(?:-\d)?)?\.(?:npz|json)")
_MAX_NAMED = 4

Variables = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class _Pointer:
    """The content of a pointer."""

    position: Position
    checkpoint: Path
    crc32c: str
    size_bytes: int | None
    """None in folders of the former layout."""


class CheckpointStore:
    """The checkpoints of one logical run; only the root writes and reads."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._chosen: _Pointer | None = None
        """The pointer whose position `latest_position` returned."""

    def save(self, position: Position, variables: Variables) -> Path:
        """Write a checkpoint, then its pointers; delete older ones beyond those kept. Raises OutputFileError."""
        name = f"{position.step:09d}-{position.epoch:06d}-{secrets.token_hex(4)}"
        path = self.folder / f"checkpoint-{name}.npz"
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as local:
            made = Path(local) / path.name
            arrays: dict[str, Any] = dict(variables)
            np.savez(made, **arrays)
            members = {"file": path.name, "crc32c": crc32c_of_file(made), "size_bytes": made.stat().st_size}
            put_file(made, path)
        pointer = json.dumps({**members, "position": position.to_members()}, indent=1).encode()
        for copy in _COPIES:
            put_bytes(pointer, self.folder / f"pointer-{name}-{copy}.json")
        self._drop_old(path)
        return path

    def latest_position(self) -> Position | None:
        """Return the position of the newest complete checkpoint, None if there is none yet.

        Reads the checkpoint to compare its CRC. Raises CheckpointError if no pointer can be used.
        """
        self._chosen = self._latest()
        return self._chosen.position if self._chosen else None

    def latest_variables(self) -> dict[str, np.ndarray[Any, Any]]:
        """Read the checkpoint whose position `latest_position` returned; before such a call, the newest complete one.

        Raises CheckpointError if there is none, or if it can no longer be read.
        """
        # Not looked up again: a newer checkpoint may be readable by now, and its weights belong to another position.
        pointer = self._chosen or self._latest()
        if pointer is None:
            raise CheckpointError(f"{self.folder} holds no complete checkpoint: there is no pointer.")
        try:
            return retried(lambda: _arrays(pointer.checkpoint))
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{pointer.checkpoint} cannot be read: {error}.") from error

    def _latest(self) -> _Pointer | None:
        problems: list[str] = []
        for path in self._pointers():
            try:
                pointer = _read(path)
                retried(partial(_check, pointer))
            except (OSError, OutputFileError, ValueError, KeyError, TypeError, AttributeError) as error:
                problems.append(f"{path.name}: {_words(error)}")
                continue
            if problems:
                print(f"checkpoints: {path.name} is used, not {_list(problems)}", file=sys.stderr, flush=True)
            return pointer
        if problems:
            raise CheckpointError(
                f"{self.folder} holds no complete checkpoint: {_list(problems)}. "
                f"Empty the folder to start from the beginning."
            )
        for _, path in self._files("checkpoint-*.npz"):
            print(
                f"checkpoints: {path.name} is not used because its pointer was never written",
                file=sys.stderr,
                flush=True,
            )
        return None

    def _pointers(self) -> list[Path]:
        """Return all pointers, the newest first."""
        newest_first = sorted(self._files("pointer-*.json"), reverse=True)
        former = self.folder / FORMER_POINTER
        return [path for _, path in newest_first] + ([former] if former.exists() else [])

    def _files(self, pattern: str) -> Iterator[tuple[tuple[int, int], Path]]:
        """Yield (step, epoch) and path of each checkpoint file."""
        for path in self.folder.glob(pattern):
            if match := _NAME.fullmatch(path.name):
                yield (int(match[1]), int(match[2] or 0)), path

    def _drop_old(self, newest: Path) -> None:
        checkpoints = sorted(one for one in self._files("checkpoint-*.npz") if one[1] != newest)
        dropped = [path for _, path in checkpoints[: max(0, len(checkpoints) - self._keep + 1)]]
        for path in dropped:
            name = path.stem.removeprefix("checkpoint-")
            for old in (*(self.folder / f"pointer-{name}-{copy}.json" for copy in _COPIES), path):
                with contextlib.suppress(OSError):  # the next save tries again
                    old.unlink(missing_ok=True)


def _read(path: Path) -> _Pointer:
    members = json.loads(read_bytes(path, MAX_POINTER_BYTES))
    if not isinstance(members, dict):
        raise TypeError(f"is not a JSON object, but {type(members).__name__}")
    return _Pointer(
        position=Position.from_members(members["position"]),
        checkpoint=path.parent / Path(members["file"]).name,
        crc32c=members["crc32c"],
        size_bytes=members.get("size_bytes"),
    )


def _check(pointer: _Pointer) -> None:
    """Raise OSError or ValueError if the checkpoint does not match its pointer."""
    size_bytes = pointer.checkpoint.stat().st_size
    if pointer.size_bytes is not None and size_bytes != pointer.size_bytes:
        raise ValueError(f"{pointer.checkpoint.name}: expected {pointer.size_bytes} bytes, got {size_bytes}")
    if (seen := crc32c_of_file(pointer.checkpoint)) != pointer.crc32c:
        raise ValueError(f"{pointer.checkpoint.name}: expected CRC32C {pointer.crc32c}, got {seen}")


def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} does not exist"
    return f"states no valid position: {error!r}" if isinstance(error, (KeyError, TypeError)) else str(error)


def _list(problems: list[str]) -> str:
    more = f"; and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
    return "; ".join(problems[:_MAX_NAMED]) + more
