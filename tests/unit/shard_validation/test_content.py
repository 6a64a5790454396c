"""The content of a shard: what recognises it, sources that change or fail, and reading ahead."""

from __future__ import annotations

import ctypes
import gzip
import io
import os
import threading
import zipfile
import zlib
from mmap import PAGESIZE
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shard_validation import (
    DataRequirements,
    LocalFileSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
    check_name,
    validate_shard,
)
from shard_validation import ReasonCode as Code
from shard_validation.content import read_ahead
from tests.support.shards import NAME, BytesSource, framed, image_bytes, only_reason, place, verdict_on

SHARD = framed([b"one", b"two"])


def zipped() -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("image.jpg", b"bytes")
    return buffer.getvalue()


def parquet() -> bytes:
    """Return a Parquet file of two rows."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"label": [1, 2]}), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (image_bytes("JPEG"), "a JPEG image"),
        (image_bytes("PNG"), "a PNG image"),
        (b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>", "an HTML page"),
        (b"\n  <html><head><title>503</title></head></html>", "an HTML page"),
        (b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?><Error/>', "an XML document"),
        (zipped(), "a zip archive"),
        (b'{"error": "not found"}', "JSON text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
    ],
)
def test_files_of_other_kinds_are_named(content: bytes, seen: str) -> None:
    """A file of another kind with a shard's name is rejected with what it is, at byte 0."""
    verdict = verdict_on(content)
    assert (Code.NOT_A_SHARD, None, 0) == place(verdict)
    assert (seen, None) == (only_reason(verdict).seen, verdict.data_format)


def test_empty_file() -> None:
    """A file without bytes is rejected as empty, with the CRC of no content."""
    verdict = verdict_on(b"")
    assert (Code.EMPTY_FILE, None, 0) == place(verdict)
    assert ("00000000", 0) == (verdict.crc32c, verdict.num_records)


@pytest.mark.parametrize(
    ("name", "content", "data_format", "compression"),
    [
        ("train-00000-of-00001", SHARD, "tfrecord", ""),
        ("train-00000-of-00001.tfrecord", SHARD, "tfrecord", ""),
        ("train-00000-of-00001.tfrecord", gzip.compress(SHARD, mtime=0), "tfrecord", "gzip"),
        ("train-00000-of-00001.tfrecord.gz", gzip.compress(SHARD, mtime=0), "tfrecord", "gzip"),
        ("train-00000-of-00001", zlib.compress(SHARD), "tfrecord", "zlib"),
        ("mnist-train.tfrecord-00000-of-00001", SHARD, "tfrecord", ""),
        ("train-00000-of-00001-1a2b3c4d.parquet", parquet(), "parquet", ""),
        ("train-00000-of-00001", parquet(), "parquet", ""),
    ],
)
def test_format_and_compression_follow_from_the_content(
    name: str, content: bytes, data_format: str, compression: str
) -> None:
    """Format and compression follow from the content, under every naming convention."""
    verdict = validate_shard(BytesSource(content, name))
    assert (True, data_format, compression) == (verdict.accepted, verdict.data_format, verdict.compression)
    assert check_name(name) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-00000-of-00001.parquet", SHARD),
        ("train-00000-of-00001.tfrecord", parquet()),
        ("mnist-train.tfrecord-00000-of-00001", parquet()),
        ("train-00000-of-00001.tfrecord.gz", SHARD),
        ("train-00000-of-00001.tfrecord.gz", zlib.compress(SHARD)),
    ],
)
def test_name_contradicts_content(name: str, content: bytes) -> None:
    """A name that contradicts the format or compression of the content has its own reason."""
    assert (Code.NAME_CONTRADICTS_CONTENT, None, 0) == place(validate_shard(BytesSource(content, name)))


def test_unknown_content_is_not_called_a_shard() -> None:
    """A text under the name of a Parquet shard is described by its first bytes: it may be anything."""
    verdict = validate_shard(BytesSource(b"id,label\n1,2\n", "train-00000-of-00001.parquet"))
    expected = (Code.NAME_CONTRADICTS_CONTENT, "bytes beginning 69 64 2c 6c 61 62 65 6c")
    assert [expected] == [(reason.code, reason.seen) for reason in verdict.reasons]


def test_format_that_the_pipeline_does_not_accept() -> None:
    """A sound shard in another format than the pipeline's is rejected for its format."""
    source = BytesSource(parquet(), "train-00000-of-00001")
    assert (Code.WRONG_FORMAT, None, 0) == place(validate_shard(source, DataRequirements(data_format="tfrecord")))


def test_record_that_begins_like_another_file() -> None:
    """A record whose length looks like ZLIB or JPEG is a record: a header that matches its CRC decides."""
    lengths = (0x9C78, 0xD8FF)
    assert [True, True] == [verdict_on(framed([b"x" * n])).accepted for n in lengths]


@pytest.mark.parametrize(
    "name",
    [
        "my train-00000-of-00001.tfrecord",
        "train%2D00000-of-00001.tfrecord",
        "train-00000-of-00001.tfrecord%00",
        "trän-00000-of-00001.tfrecord",
        "train-" + 5 * chr(0x0660) + "-of-00001.tfrecord",
        "..",
        "../train-00000-of-00001.tfrecord",
        "t" * 1000 + "-00000-of-00001.tfrecord",
        "train-00001-of-00001.tfrecord",
        "train-00000-of-00000.tfrecord",
        "train-0-of-1.tfrecord",
        "train-00000-of-00001.tfrecord\n",
        "",
    ],
)
def test_other_names_are_rejected(name: str) -> None:
    """Names with spaces, percent signs, unicode, dots, 1,024 characters or impossible indices are rejected."""
    reason = check_name(name)
    assert reason is not None
    assert Code.NAME_NOT_UNDERSTOOD == reason.code
    assert len(reason.message) <= 200
    assert reason.message.isprintable()


FIVE_CHUNKS = framed([bytes(1000)] * 5000)


class FailingSource(BytesSource):
    """A ShardSource that fails from the second read, as a blob that is lost between two reads."""

    error: SourceError
    num_reads = 0

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes once; then raise."""
        self.num_reads += 1
        if self.num_reads > 1:
            raise self.error
        return super().read(offset, length)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A shard of five chunks."""
    path = tmp_path / NAME
    path.write_bytes(FIVE_CHUNKS)
    return path


def test_a_file_is_read_to_its_end(path: Path) -> None:
    """A file is read to its end, with progress in bytes."""
    done: list[int] = []
    with LocalFileSource(path) as source:
        verdict = validate_shard(source, progress=done.append)
    assert (True, 5000, len(FIVE_CHUNKS)) == (verdict.accepted, verdict.num_records, sum(done))
    assert NAME == verdict.shard


def test_file_overwritten_while_it_is_read(path: Path) -> None:
    """A file that another writer changes meanwhile gives no verdict."""
    with LocalFileSource(path) as source:
        path.write_bytes(FIVE_CHUNKS[:-1] + b"!")
        os.utime(path, ns=(1, 1))  # the file system's clock may not have ticked since the file was made
        with pytest.raises(SourceChangedError, match="validate it again"):
            validate_shard(source)


def test_file_that_grew(path: Path) -> None:
    """Appended bytes are a change, although the first content is still there."""
    with LocalFileSource(path) as source:
        with path.open("ab") as file:
            file.write(b"more")
        with pytest.raises(SourceChangedError):
            validate_shard(source)


def test_file_cut_while_it_is_read(path: Path) -> None:
    """A truncated file has changed; it is not a broken record."""
    with LocalFileSource(path) as source:
        os.truncate(path, 100)
        with pytest.raises(SourceChangedError):
            validate_shard(source)


def test_missing_file(tmp_path: Path) -> None:
    """A missing file, and a folder, raise SourceGoneError."""
    with pytest.raises(SourceGoneError, match="no such file"):
        LocalFileSource(tmp_path / "absent")
    with pytest.raises(SourceGoneError):
        LocalFileSource(tmp_path)


def test_impossible_file_name(tmp_path: Path) -> None:
    """A name of 1,024 characters raises SourceError."""
    with pytest.raises(SourceError):
        LocalFileSource(tmp_path / ("x" * 1024))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_made_private(path: Path) -> None:
    """A file without read permission raises SourceForbiddenError."""
    path.chmod(0)
    with pytest.raises(SourceForbiddenError):
        LocalFileSource(path)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SourceChangedError("overwritten"), Code.SOURCE_CHANGED),
        (SourceGoneError("deleted"), Code.SOURCE_GONE),
        (SourceForbiddenError("made private"), Code.SOURCE_FORBIDDEN),
        (SourceUnavailableError("no answer"), Code.SOURCE_UNAVAILABLE),
    ],
)
def test_lost_between_two_reads(error: SourceError, code: Code) -> None:
    """An error between two reads ends the validation without a verdict, and has a code."""
    source = FailingSource(FIVE_CHUNKS)
    source.error = error
    with pytest.raises(type(error)) as raised:
        validate_shard(source)
    assert (code, "a/b") == (raised.value.reason("a/b").code, raised.value.reason("a/b").shard)


CONTENT = bytes(range(256)) * (5 << 13) + b"rest"


class UnreadableSource(BytesSource):
    """A ShardSource that cannot be read beyond its first thousand bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the first thousand; raise for the others."""
        if offset >= 1000:
            raise SourceUnavailableError(f"nothing at byte {offset}")
        return super().read(offset, length)


def readers() -> list[str]:
    """Return the names of running reader threads."""
    return [thread.name for thread in threading.enumerate() if thread.name == "read-ahead"]


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    """A file of more than five chunks."""
    path = tmp_path / NAME
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("start", [0, 1, 10 << 20, len(CONTENT) - 1, len(CONTENT)])
def test_a_file_is_yielded_in_order(large_file: Path, start: int) -> None:
    """A file is yielded in order, from the start position to its last byte."""
    with LocalFileSource(large_file) as source:
        assert CONTENT[start:] == b"".join(bytes(chunk) for chunk in read_ahead(source, start))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 1000])
def test_bytes_are_yielded_in_order(chunk_bytes: int) -> None:
    """A source that cannot fill memory is read too."""
    source = BytesSource(CONTENT[:1000], chunk_bytes=chunk_bytes)
    assert CONTENT[:1000] == b"".join(read_ahead(source))


def test_memory_is_reused(large_file: Path) -> None:
    """A file is read into three pieces of memory, whatever its number of chunks."""
    with LocalFileSource(large_file) as source:
        places = {id(chunk.obj) for chunk in read_ahead(source) if isinstance(chunk, memoryview)}
    assert 3 == len(places)


def test_memory_is_page_aligned(large_file: Path) -> None:
    """Chunks are page-aligned: on other addresses some processors take up to four times as long."""
    with LocalFileSource(large_file) as source:
        objects = {id(chunk.obj): chunk.obj for chunk in read_ahead(source) if isinstance(chunk, memoryview)}
        offsets = {ctypes.addressof(ctypes.c_char.from_buffer(memory)) % PAGESIZE for memory in objects.values()}
    assert {0} == offsets


def test_error_is_raised_after_the_chunks_before_it() -> None:
    """Chunks that were read before an error are yielded, then the error is raised."""
    chunks = read_ahead(UnreadableSource(CONTENT, chunk_bytes=500))
    assert CONTENT[:1000] == bytes(next(chunks)) + bytes(next(chunks))
    with pytest.raises(SourceUnavailableError, match="nothing at byte 1000"):
        next(chunks)
    assert [] == readers()


def test_a_consumer_that_stops_early(large_file: Path) -> None:
    """No thread remains where the consumer stops early."""
    with LocalFileSource(large_file) as source:
        chunks = read_ahead(source)
        next(chunks)
        assert ["read-ahead"] == readers()
        del chunks
        assert [] == readers()
