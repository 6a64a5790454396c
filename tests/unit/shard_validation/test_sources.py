"""Sources: a file that changes, is deleted or cannot be read gives no verdict, and an error that says which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shard_validation import (
    LocalFileSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
    validate_shard,
)
from shard_validation import (
    ReasonCode as Code,
)
from tests.support.shards import NAME, BytesSource, framed

SHARD = framed([bytes(1000)] * 5000)


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
    path.write_bytes(SHARD)
    return path


def test_file(path: Path) -> None:
    """A file is read to its end, with progress in bytes."""
    done: list[int] = []
    with LocalFileSource(path) as source:
        verdict = validate_shard(source, progress=done.append)
    assert (True, 5000, len(SHARD)) == (verdict.accepted, verdict.num_records, sum(done))
    assert NAME == verdict.shard


def test_file_overwritten_while_it_is_read(path: Path) -> None:
    """A file that another writer changes meanwhile gives no verdict."""
    with LocalFileSource(path) as source:
        path.write_bytes(SHARD[:-1] + b"!")
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
    source = FailingSource(SHARD)
    source.error = error
    with pytest.raises(type(error)) as raised:
        validate_shard(source)
    assert (code, "a/b") == (raised.value.reason("a/b").code, raised.value.reason("a/b").shard)
