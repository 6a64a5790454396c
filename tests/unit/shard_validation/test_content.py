"""What a file is: its content decides, and is compared with its name."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shard_validation import DataRequirements, check_name, validate_shard
from shard_validation import ReasonCode as Code
from tests.support.shards import BytesSource, framed, image_bytes, only_reason, place, verdict_on

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
