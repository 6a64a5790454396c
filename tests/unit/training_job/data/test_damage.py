"""Finding the damaged shard and record after reading failed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from shared.manifest import ManifestShard
from shared.record_framing import frame_record
from training_job.data.damage import find_damage
from training_job.errors import DataChangedError

PAYLOADS = [b"first", b"second one", b"third", b"fourth"]
FRAMED = b"".join(map(frame_record, PAYLOADS))
SECOND = len(frame_record(PAYLOADS[0]))


def written_shard(path: Path, content: bytes = FRAMED) -> tuple[ManifestShard, Path]:
    path.write_bytes(content)
    shard = ManifestShard(
        split="train",
        index=0,
        num_shards=1,
        name=path.name,
        size_bytes=len(content),
        crc32c=f"{crc32c(content):08x}",
        num_records=len(PAYLOADS),
    )
    return shard, path


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def changed(suspects: list[tuple[ManifestShard, Path]], data_format: str = "tfrecord") -> str:
    with pytest.raises(DataChangedError) as caught:
        find_damage(suspects, data_format)
    return str(caught.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda c: flipped(c, SECOND + 12), f"Record 1 (at byte {SECOND}) has a damaged payload of 10 bytes."),
        (lambda c: flipped(c, SECOND + 23), f"Record 1 (at byte {SECOND}) has a damaged payload of 10 bytes."),
        (lambda c: flipped(c, SECOND), f"Record 1 (at byte {SECOND}) has a damaged length."),
        (lambda c: c[: SECOND + 15], f"Record 1 (at byte {SECOND}) ends after 3 of 10 bytes."),
        (lambda c: c[: SECOND + 5], f"Record 1 (at byte {SECOND}) ends within its header."),
        (lambda c: c[:SECOND], "It holds 1 records instead of 4."),
        (lambda _: b"", "It holds 0 records instead of 4."),
    ],
)
def test_the_first_damaged_record_is_named(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    """The shard with both checksums, the record by its number, and what is wrong with it."""
    intact, (shard, path) = written_shard(tmp_path / "s0"), written_shard(tmp_path / "s1")
    path.write_bytes(damage(FRAMED))
    found = changed([intact, (shard, path)])
    assert found.startswith(f"Shard {path} has CRC32C ")
    assert found.endswith(f": it changed after the dataset version was closed. {reason}")


@pytest.mark.parametrize("compressed", [gzip.compress, zlib.compress])
def test_a_compressed_shard_is_looked_into(tmp_path: Path, compressed: Callable[[bytes], bytes]) -> None:
    """A record that is damaged within, and a stream that breaks off."""
    shard, path = written_shard(tmp_path / "s", compressed(FRAMED))
    path.write_bytes(compressed(flipped(FRAMED, SECOND + 12)))
    assert changed([(shard, path)]).endswith("has a damaged payload of 10 bytes.")
    path.write_bytes(compressed(FRAMED)[:-12])
    assert "cannot be decompressed: " in changed([(shard, path)])


def test_of_a_parquet_shard_the_file_is_named(tmp_path: Path) -> None:
    """Its records are not framed one by one."""
    shard, path = written_shard(tmp_path / "s.parquet", b"PAR1 rows PAR1")
    path.write_bytes(b"PAR1 rowz PAR1")
    assert changed([(shard, path)], "parquet").endswith("it changed after the dataset version was closed.")


def test_a_shard_that_is_gone_is_named(tmp_path: Path) -> None:
    """It was accepted, so this is a change."""
    shard, path = written_shard(tmp_path / "s")
    path.unlink()
    assert f"Shard {path} does not exist: it changed after the dataset version was closed." == changed(
        [(shard, path)]
    )


def test_intact_shards_are_not_blamed(tmp_path: Path) -> None:
    """The cause is then the features, or a mount that failed for a moment."""
    suspects = [written_shard(tmp_path / name) for name in ("a", "b")]
    assert find_damage(suspects, "tfrecord").startswith("All 2 shards of this rank are as the manifest says")


def test_looking_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """All ranks wait meanwhile: of three shards, one is looked at."""
    ticks = iter([0.0, 1.0, 11.0])
    suspects = [written_shard(tmp_path / name) for name in ("a", "b", "c")]
    found = find_damage(suspects, "tfrecord", budget_s=10, clock=lambda: next(ticks))
    assert found.startswith("The first 1 shards of this rank are as the manifest says; the others")
