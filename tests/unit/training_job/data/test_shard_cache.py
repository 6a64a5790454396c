"""Shards kept on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from shared.manifest import ManifestShard
from training_job.data.shard_cache import ShardCache
from training_job.errors import DataChangedError, DataError


def written_shard(folder: Path, content: bytes = b"records") -> ManifestShard:
    folder.mkdir(exist_ok=True)
    (folder / "s0").write_bytes(content)
    return ManifestShard(
        split="train",
        index=0,
        num_shards=1,
        name="s0",
        size_bytes=len(content),
        crc32c=f"{crc32c(content):08x}",
        num_records=1,
    )


def test_a_shard_is_read_from_the_mount_until_its_copy_is_there(tmp_path: Path) -> None:
    """First the shard itself, then a copy with the same content."""
    shard = written_shard(tmp_path / "mount")
    cache = ShardCache(tmp_path / "mount", tmp_path / "cache", [shard])
    before = cache.path_of("s0")
    cache.copy(shard)
    after = cache.path_of("s0")
    assert (tmp_path / "mount" / "s0", b"records") == (before, after.read_bytes())
    assert tmp_path / "cache" == after.parent


def test_a_shard_that_changed_after_closing_is_found_out(tmp_path: Path) -> None:
    """The copy's CRC32C is the manifest's, or there is no copy."""
    shard = written_shard(tmp_path / "mount")
    (tmp_path / "mount" / "s0").write_bytes(b"changed")
    cache = ShardCache(tmp_path / "mount", tmp_path / "cache", [shard])
    with pytest.raises(DataChangedError, match=r"s0 has CRC32C [0-9a-f]{8} instead of the manifest's [0-9a-f]{8}"):
        cache.copy(shard)
    assert [] == list((tmp_path / "cache").iterdir())


def test_another_versions_shard_of_the_same_name_is_another_copy(tmp_path: Path) -> None:
    """A cache folder that several trainings share mixes nothing up."""
    for version, content in (("v1", b"first"), ("v2", b"second")):
        shard = written_shard(tmp_path / version, content)
        cache = ShardCache(tmp_path / version, tmp_path / "cache", [shard])
        cache.copy(shard)
        assert content == cache.path_of("s0").read_bytes()


def test_a_cache_folder_that_cannot_be_written_is_said_in_words(tmp_path: Path) -> None:
    """The folder and the system's reason."""
    (tmp_path / "cache").write_text("a file")
    shard = written_shard(tmp_path / "mount")
    cache = ShardCache(tmp_path / "mount", tmp_path / "cache", [shard])
    with pytest.raises(DataError, match=r"Shards cannot be cached in .*: .*File exists"):
        cache.copy(shard)


def test_what_is_read_from_a_full_disks_source_or_an_old_copy_is_checked_too(tmp_path: Path) -> None:
    """A copy of an earlier attempt, and a shard that has gone from the mount."""
    shard = written_shard(tmp_path / "mount")
    cache = ShardCache(tmp_path / "mount", tmp_path / "cache", [shard])
    cache.copy(shard)
    cache.path_of("s0").write_bytes(b"damaged")
    with pytest.raises(DataChangedError, match="s0 has CRC32C"):
        cache.copy(shard)
    cache.path_of("s0").unlink()
    (tmp_path / "mount" / "s0").unlink()
    with pytest.raises(DataChangedError, match="s0 does not exist"):
        cache.copy(shard)
