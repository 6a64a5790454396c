"""A folder of checkpoints: each is written aside, then a pointer to it is replaced atomically.

``latest.json`` names the current checkpoint. A process that dies at any moment leaves either the old pointer or the
new one, and both name a complete file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shared.crc import crc32c_of_file
from training_job.checkpoints.position import Position
from training_job.errors import CheckpointError

POINTER = "latest.json"
MAX_POINTER_BYTES = 64 << 20
_PATTERN = "checkpoint-{step:09d}.npz"

Variables = Mapping[str, np.ndarray[Any, Any]]


class CheckpointStore:
    """The checkpoints of one logical run; only the root writes."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def save(self, position: Position, variables: Variables) -> Path:
        """Write a checkpoint and switch to it; delete older ones beyond those kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _PATTERN.format(step=position.step)
        aside = _aside(path)
        with aside.open("wb") as file:
            arrays: dict[str, Any] = dict(variables)
            np.savez(file, **arrays)
            _flush(file.fileno())
        aside.replace(path)
        self._point_to(path, position)
        self._drop_old(path)
        return path

    def latest_position(self) -> Position | None:
        """Return the position of the current checkpoint, None if there is none yet.

        Raises CheckpointError if the pointer cannot be used.
        """
        members = self._pointer()
        if members is None:
            return None
        try:
            return Position.from_members(members["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.folder / POINTER} states no valid position: {error!r}.") from error

    def latest_variables(self) -> dict[str, np.ndarray[Any, Any]]:
        """Read the current checkpoint. Raises CheckpointError if there is none or it is damaged."""
        members = self._pointer()
        try:
            if members is None:
                raise FileNotFoundError(f"there is no {POINTER}")
            path = self.folder / Path(members["file"]).name
            _check(path, members["crc32c"])
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.folder} holds no complete checkpoint: {error}.") from error

    def _pointer(self) -> Mapping[str, Any] | None:
        pointer = self.folder / POINTER
        try:
            with pointer.open("rb") as file:
                members = json.loads(file.read(MAX_POINTER_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{pointer} cannot be read: {error}.") from error
        if not isinstance(members, dict):
            raise CheckpointError(f"{pointer} is not a JSON object, but {type(members).__name__}.")
        return members

    def _point_to(self, path: Path, position: Position) -> None:
        pointer = self.folder / POINTER
        members = {"file": path.name, "crc32c": crc32c_of_file(path), "position": position.to_members()}
        with _aside(pointer).open("w") as file:
            json.dump(members, file, indent=1)
            file.flush()
            _flush(file.fileno())
        _aside(pointer).replace(pointer)

    def _drop_old(self, newest: Path) -> None:
        others = sorted(path for path in self.folder.glob("checkpoint-*.npz") if path != newest)
        for path in others[: max(0, len(others) - self._keep + 1)]:
            path.unlink(missing_ok=True)


def _check(path: Path, expected: str) -> None:
    seen = crc32c_of_file(path)
    if seen != expected:
        raise ValueError(f"{path.name}: expected CRC32C {expected}, got {seen}")


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)
