"""Reading ahead: the whole content in order, in reused memory, and no thread remains."""

from __future__ import annotations

import ctypes
import threading
from mmap import PAGESIZE
from pathlib import Path

import pytest

from shard_validation import LocalFileSource, SourceUnavailableError
from shard_validation.content import read_ahead
from tests.support.shards import NAME, BytesSource

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
def path(tmp_path: Path) -> Path:
    """A file of more than five chunks."""
    path = tmp_path / NAME
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("start", [0, 1, 10 << 20, len(CONTENT) - 1, len(CONTENT)])
def test_file(path: Path, start: int) -> None:
    """A file is yielded in order, from the start position to its last byte."""
    with LocalFileSource(path) as source:
        assert CONTENT[start:] == b"".join(bytes(chunk) for chunk in read_ahead(source, start))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 1000])
def test_bytes(chunk_bytes: int) -> None:
    """A source that cannot fill memory is read too."""
    source = BytesSource(CONTENT[:1000], chunk_bytes=chunk_bytes)
    assert CONTENT[:1000] == b"".join(read_ahead(source))


def test_memory_is_reused(path: Path) -> None:
    """A file is read into three pieces of memory, whatever its number of chunks."""
    with LocalFileSource(path) as source:
        places = {id(chunk.obj) for chunk in read_ahead(source) if isinstance(chunk, memoryview)}
    assert 3 == len(places)


def test_memory_is_page_aligned(path: Path) -> None:
    """Chunks are page-aligned: on other addresses some processors take up to four times as long."""
    with LocalFileSource(path) as source:
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


def test_a_consumer_that_stops_early(path: Path) -> None:
    """No thread remains where the consumer stops early."""
    with LocalFileSource(path) as source:
        chunks = read_ahead(source)
        next(chunks)
        assert ["read-ahead"] == readers()
        del chunks
        assert [] == readers()
