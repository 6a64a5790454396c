"""Keeps copies of shards on a local disk, so that a mount over the network is read once.

Shards are copied while the first epoch reads them from the mount; later epochs read the copies. Ranks of one node
share the folder. Only content that agrees with the manifest is kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from shared.crc import crc32c_of_file
from shared.manifest import ManifestShard
from training_job.data.content_check import check_content, compare_content, missing
from training_job.errors import DataError

_KEPT_FREE = 0.1
"""The part of the disk that stays free."""
_MAX_KEPT_CHARS = 200
"""Characters of a file's name that are kept: file systems take 255."""


class ShardCache:
    """A folder of checked copies."""

    def __init__(self, source: Path, folder: Path, shards: Sequence[ManifestShard]) -> None:
        self._source = source
        self._folder = folder
        self._shards = {shard.name: shard for shard in shards}

    def path_of(self, name: str) -> Path:
        """Return the copy if there is one, otherwise the shard itself."""
        copy = self._copy_of(self._shards[name])
        return copy if copy.exists() else self._source / name

    def copy(self, shard: ManifestShard) -> None:
        """Copy a shard if there is space, and check the content that will be read.

        Raises DataChangedError, DataError.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._copy_of(shard).exists() or not self._has_room(shard):
                check_content(shard, self.path_of(shard.name))
            else:
                self._copy(shard)
        except OSError as error:
            if not (self._source / shard.name).exists():
                raise missing(self._source / shard.name) from error
            raise DataError(f"Shards cannot be cached in {self._folder}: {error}.") from error

    def _copy(self, shard: ManifestShard) -> None:
        copy = self._copy_of(shard)
        aside = copy.with_name(f"{copy.name}.{os.getpid()}.part")
        try:
            with aside.open("wb") as writer:
                seen = crc32c_of_file(self._source / shard.name, writer)
            compare_content(shard, self._source / shard.name, seen)
            aside.replace(copy)
        finally:
            aside.unlink(missing_ok=True)

    def _has_room(self, shard: ManifestShard) -> bool:
        disk = shutil.disk_usage(self._folder)
        return disk.free - shard.size_bytes > disk.total * _KEPT_FREE

    def _copy_of(self, shard: ManifestShard) -> Path:
        # The checksum is part of the name: another version's shard of the same name is another file, and so are files
        # of one name in two folders, unless they have the same content.
        return self._folder / f"{shard.crc32c}-{shard.size_bytes}-{shard.name.rpartition('/')[2][-_MAX_KEPT_CHARS:]}"
