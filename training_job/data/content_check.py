"""Compares the content of shards with the manifest while the first epoch of an attempt trains on them.

TensorFlow reads shards without giving access to their bytes, so a thread reads each file once more. If the file fits
into memory, the operating system reads it once for both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.crc import crc32c_of_file
from shared.manifest import ManifestShard
from training_job.errors import DataChangedError, DataError, TrainingError

CHANGED = "it changed after the dataset version was closed"

Read = Callable[[ManifestShard], None]
"""Reads a whole shard. Raises DataChangedError if its content differs from the manifest."""


class ContentCheck:
    """Reads this rank's part of the shards in a background thread, which starts at once."""

    def __init__(self, shards: Sequence[ManifestShard], read: Read) -> None:
        self._shards = tuple(shards)
        self._read = read
        self._failure: TrainingError | None = None
        self._thread = threading.Thread(target=self._read_all, name="content check", daemon=True)
        self._thread.start()

    def raise_failure(self) -> None:
        """Raise what the thread has found so far: DataChangedError, or DataError for a shard that cannot be read."""
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """Return once all shards are read and none differs. Raises as `raise_failure` does."""
        self._thread.join()
        self.raise_failure()

    def _read_all(self) -> None:
        try:
            for shard in self._shards:
                self._read(shard)
        except TrainingError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 - the main thread must report any error
            # Otherwise the thread would end silently, and unread shards would count as checked.
            self._failure = DataError(f"The content of this rank's shards cannot be checked: {error!r}.")


def check_content(shard: ManifestShard, path: Path) -> None:
    """Read a whole file. Raises DataChangedError if it is not the accepted shard, or DataError."""
    try:
        seen = crc32c_of_file(path)
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise DataError(f"Shard {path} cannot be read: {error.strerror}.") from error
    compare_content(shard, path, seen)


def missing(path: Path) -> DataChangedError:
    """Return the error for a shard that no longer exists."""
    return DataChangedError(f"Shard {path} does not exist: {CHANGED}.")


def compare_content(shard: ManifestShard, path: Path, seen: str) -> None:
    """Raise DataChangedError if a CRC32C differs from the manifest's."""
    if seen != shard.crc32c:
        raise DataChangedError(f"Shard {path} has CRC32C {seen} instead of the manifest's {shard.crc32c}: {CHANGED}.")
