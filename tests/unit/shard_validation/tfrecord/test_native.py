"""Sound records of a file, checked by the native library: the same verdicts, in order, and no thread remains."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from crc32c import crc32c

from shard_validation import (
    DataRequirements,
    Limits,
    LocalFileSource,
    Paused,
    SourceChangedError,
    SourceUnavailableError,
    validate_shard,
    validate_shard_within,
)
from shard_validation.tfrecord import native
from shard_validation.tfrecord.native import sound_stretches
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import LABEL, NAME, BytesSource, FileBytesSource, framed, labelled

WAYS = ("words", "registers of 128 bits", "registers of 512 bits")
LONG = framed([labelled(i % 10, image=bytes([i % 251]) * (i * 37 % 9000 + 20_000 * (not i))) for i in range(600)])
"""Records of many lengths, in several stretches of `Small`."""


class Small(LocalFileSource):
    """Reads a file in small stretches."""

    chunk_bytes = 100_000


def library() -> native.NativeRecords:
    """Return the library. Raises ValueError where it is missing, so that no test passes without it."""
    found = native.native_records()
    if found is None:
        raise ValueError(f"make setup should have built {native.library_path()}")
    return found


def reading_threads() -> list[str]:
    """Return the names of running reader threads."""
    return [thread.name for thread in threading.enumerate() if thread.name == "read-and-check"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound shard of a few megabytes."""
    path = tmp_path / NAME
    path.write_bytes(LONG)
    return path


@pytest.mark.parametrize("way", range(len(WAYS)), ids=WAYS)
def test_crc(way: int) -> None:
    """Each way to take a CRC32C agrees with the crc32c package, for every length, start value and alignment."""
    loaded = ctypes.CDLL(str(native.library_path()))
    if way == len(WAYS) - 1 and not loaded.landfall_is_wide():
        pytest.skip("this processor has no registers of 512 bits that multiply without carry")
    loaded.landfall_crc32c.argtypes = (ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
    loaded.landfall_crc32c.restype = ctypes.c_uint32
    chance = random.Random(1)  # noqa: S311 - bytes, not a secret
    content = chance.randbytes(70_000)
    memory = ctypes.create_string_buffer(content, len(content))
    for length in (*range(1100), 2047, 2048, 4095, 65_537):
        begin, crc = chance.randrange(64), chance.randrange(1 << 32)
        seen = loaded.landfall_crc32c(way, crc, ctypes.addressof(memory) + begin, length)
        assert crc32c(content[begin : begin + length], crc) == seen


def test_all_of_a_sound_file(path: Path) -> None:
    """The library alone checks a sound file to its end, in stretches in order."""
    with Small(path) as source:
        stretches = sound_stretches(source, 0, library(), max_payload=len(LONG), held=True)
        seen = [(bytes(stretch.content()), stretch.ends(), stretch.content_crc) for stretch in stretches]
    contents = [content for content, _, _ in seen]
    assert LONG == b"".join(contents)
    assert [crc32c(content) for content in contents] == [crc for _, _, crc in seen]
    assert 600 == sum(len(ends) for _, ends, _ in seen)
    assert 10 < len(seen)


def test_verdict_on_a_sound_file(path: Path) -> None:
    """The verdict, statistics included, equals that on the same bytes in memory."""
    requirements = DataRequirements(features=(LABEL,))
    with Small(path) as source:
        assert validate_shard(BytesSource(LONG), requirements) == validate_shard(source, requirements)


@pytest.mark.parametrize("position", [200, len(LONG) // 2, len(LONG) - 3])
def test_verdict_on_a_damaged_file(path: Path, position: int) -> None:
    """Wherever a byte is wrong, the verdict equals that on the same bytes in memory; no thread remains."""
    content = LONG[:position] + bytes([LONG[position] ^ 1]) + LONG[position + 1 :]
    path.write_bytes(content)
    with Small(path) as source:
        verdict = validate_shard(source)
    assert validate_shard(BytesSource(content)) == verdict
    assert (False, []) == (verdict.accepted, reading_threads())


def test_records_too_long_for_the_memory() -> None:
    """Python checks a record that is longer than the memory of a stretch, and everything after it."""
    content = framed([b"x", bytes(native.ROOM_BYTES), b"y"])
    assert validate_shard(BytesSource(content)) == validate_shard(FileBytesSource(content, chunk_bytes=1 << 20))


def test_more_records_than_a_stretch_may_have() -> None:
    """The number of very small records limits a stretch."""
    content = framed([b"x"] * 40_000)
    verdict = validate_shard(FileBytesSource(content, chunk_bytes=600_000))
    assert (True, 40_000, f"{crc32c(content):08x}") == (verdict.accepted, verdict.num_records, verdict.crc32c)


@pytest.mark.parametrize("limits", [Limits(max_record_bytes=5000), Limits(max_example_bytes=5000)])
def test_limits(path: Path, limits: Limits) -> None:
    """The same limits apply as in memory, with features that of examples too."""
    requirements = DataRequirements(features=(LABEL,), limits=limits)
    with Small(path) as source:
        verdict = validate_shard(source, requirements)
    assert validate_shard(BytesSource(LONG), requirements) == verdict
    assert not verdict.accepted


def test_pausing(path: Path) -> None:
    """The validation of a file can pause after any stretch and resume, with the same verdict."""
    requirements = DataRequirements(features=(LABEL,))
    with Small(path) as source:
        outcome, num_pauses = validate_shard_within(source, requirements, should_pause=lambda: True), 0
        while isinstance(outcome, Paused):
            assert [] == reading_threads()
            num_pauses += 1
            outcome = validate_shard_within(
                source, requirements, should_pause=lambda: True, checkpoint=outcome.checkpoint
            )
        assert validate_shard(BytesSource(LONG), requirements) == outcome
    assert 10 < num_pauses


def test_file_written_to_meanwhile(path: Path) -> None:
    """Bytes written into the file while it is read give no verdict, although every record is sound."""
    with Small(path) as source, pytest.raises(SourceChangedError, match="validate it again"):
        validate_shard(source, progress=lambda _: os.utime(path, ns=(1, 1)))
    assert [] == reading_threads()


def test_file_cut_meanwhile(path: Path) -> None:
    """A file that is truncated while it is read gives no verdict."""
    with Small(path) as source, pytest.raises(SourceChangedError):
        validate_shard(source, progress=lambda _: os.truncate(path, 1000))


def test_file_closed_meanwhile(path: Path) -> None:
    """A file that can no longer be read is an error of the source, not a broken record."""
    source = Small(path)
    source.close()
    with pytest.raises(SourceUnavailableError, match="byte 0"):
        validate_shard(source)


def test_memory_safety(tmp_path: Path) -> None:
    """The sanitizers find no access out of bounds and no undefined arithmetic on damaged files."""
    built = tmp_path / "instrumented.so"
    flags = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["gcc", *flags, *warnings, "-o", str(built), str(native.SOURCE)], check=True)
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = child_environment(
        LD_PRELOAD=found.stdout.strip(),
        ASAN_OPTIONS="detect_leaks=0",  # the interpreter's own
        PYTHONMALLOC="malloc",
    )
    command = [sys.executable, "-m", "tests.support.native_damage", str(built), str(tmp_path / "damaged")]
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert 100 < int(ended.stdout)
