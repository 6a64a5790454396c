"""A folder of checkpoints: each written aside, then switched to by a pointer that is replaced as a whole.

``latest.json`` names the checkpoint that counts. A process that dies at any moment leaves either the old
pointer or the new one, and both name a file that is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shared.crc import crc32c_of_file
from training_job.checkpoints.position import Position
from training_job.errors import CheckpointError

POINTER = "latest.json"
_PATTERN = "checkpoint-{step:09d}.npz"

Variables = Mapping[str, np.ndarray[Any, Any]]


class CheckpointStore:
    """The checkpoints of one logical run; only the root writes."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, position: Position, variables: Variables) -> Path:
        """Write a checkpoint and switch to it; older ones beyond ``keep`` go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _PATTERN.format(step=position.step)
        with _aside(path).open("wb") as file:
            np.savez(file, allow_pickle=False, **variables)
            _flush(file.fileno())
        _aside(path).replace(path)
        self._point_to(path, position)
        self._drop_old()
        return path

    def latest(self) -> tuple[Position, dict[str, np.ndarray[Any, Any]]] | None:
        """Read the checkpoint that counts, None where there is none yet.

        Raises CheckpointError where the pointer or its file cannot be used.
        """
        pointer = self.folder / POINTER
        if not pointer.exists():
            return None
        try:
            members = json.loads(pointer.read_bytes())
            path = self.folder / Path(members["file"]).name
            position = Position(**{**members["position"], "epochs": tuple(members["position"]["epochs"])})
            self._check(path, members["crc32c"])
            with np.load(path, allow_pickle=False) as stored:
                return position, {name: stored[name] for name in stored.files}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{pointer}: should name a complete checkpoint, but: {error}") from error

    def _check(self, path: Path, expected: str) -> None:
        seen = crc32c_of_file(path)
        if seen != expected:
            raise ValueError(f"{path.name} should have CRC32C {expected}, has {seen}")

    def _point_to(self, path: Path, position: Position) -> None:
        pointer = self.folder / POINTER
        members = {"file": path.name, "crc32c": crc32c_of_file(path), "position": asdict(position)}
        with _aside(pointer).open("w") as file:
            json.dump(members, file, indent=1)
            _flush(file.fileno())
        _aside(pointer).replace(pointer)

    def _drop_old(self) -> None:
        for path in sorted(self.folder.glob("checkpoint-*.npz"))[: -self.keep]:
            path.unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)
