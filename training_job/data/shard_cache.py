"""Keeps copies of shards on a local disk, so that a mount over the network is read once.

A thread copies a rank's shards while the first epoch reads them from the mount; from the next epoch on the
copies are read. Ranks of one node share the folder. A copy is checked against the manifest, so a shard that
changed after the version was closed is noticed here at the latest.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from shared.manifest import ManifestShard
from training_job.errors import DataError

_CHUNK_BYTES = 4 << 20
_KEPT_FREE = 0.1
"""The part of the disk that stays free."""


class ShardCache:
    """A folder of checked copies."""

    def __init__(self, source: Path, folder: Path, shards: Sequence[ManifestShard]) -> None:
        self._source = source
        self._folder = folder
        self._shards = {shard.name: shard for shard in shards}
        self._thread: threading.Thread | None = None
        self._failure: DataError | None = None

    def path_of(self, name: str) -> Path:
        """Return the copy where there is one, otherwise the shard itself."""
        copy = self._folder / self._copy_name(self._shards[name])
        return copy if copy.exists() else self._source / name

    def start_copying(self, names: Sequence[str]) -> None:
        """Start to copy shards in the background, once; shards without room are read from the source."""
        if self._thread is None:
            target, args = self._copy_all, (tuple(names),)
            self._thread = threading.Thread(target=target, args=args, name="shard cache", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for the copies. Raises DataError if a shard is not what the manifest says."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _copy_all(self, names: Sequence[str]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                shard = self._shards[name]
                if self.path_of(name).parent != self._folder and self._has_room(shard):
                    self._copy(shard)
        except DataError as error:
            self._failure = error
        except OSError as error:
            self._failure = DataError(f"Shards cannot be cached in {self._folder}: {error}.")

    def _copy(self, shard: ManifestShard) -> None:
        copy = self._folder / self._copy_name(shard)
        aside = copy.with_name(f"{copy.name}.{os.getpid()}.part")
        seen = _copy_content(self._source / shard.name, aside)
        if seen != shard.crc32c:
            aside.unlink()
            raise DataError(
                f"Shard {self._source / shard.name} has CRC32C {seen} instead of the manifest's {shard.crc32c}: "
                f"it changed after the dataset version was closed."
            )
        aside.replace(copy)

    def _has_room(self, shard: ManifestShard) -> bool:
        disk = shutil.disk_usage(self._folder)
        return disk.free - shard.size_bytes > disk.total * _KEPT_FREE

    @staticmethod
    def _copy_name(shard: ManifestShard) -> str:
        # The checksum is part of the name: another version's shard of the same name is another file.
        return f"{shard.crc32c}-{shard.size_bytes}-{shard.name}"


def _copy_content(source: Path, target: Path) -> str:
    """Copy and return the CRC32C of what was copied."""
    crc = 0
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            crc = crc32c(chunk, crc)
            writer.write(chunk)
    return f"{crc:08x}"
