"""Reading ahead: all of the content in order, in memory that is filled again, and an end whatever happens."""

from __future__ import annotations

import ctypes
import threading
from mmap import PAGESIZE
from pathlib import Path

import pytest

from shard_validation import LocalFileSource, SourceUnavailableError
from shard_validation.read_ahead import read_ahead
from tests.support.shards import NAME, BytesSource

CONTENT = bytes(range(256)) * (5 << 13) + b"rest"


class UnreadableSource(BytesSource):
    """Implements ShardSource; cannot be read beyond its first thousand bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the first thousand; raise for others."""
        if offset >= 1000:
            raise SourceUnavailableError(f"nothing at byte {offset}")
        return super().read(offset, length)


def readers() -> list[str]:
    """Return the threads that read ahead now."""
    return [thread.name for thread in threading.enumerate() if thread.name == "read-ahead"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of more than five chunks."""
    path = tmp_path / NAME
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("start", [0, 1, 10 << 20, len(CONTENT) - 1, len(CONTENT)])
def test_file(path: Path, start: int) -> None:
    """A file comes whole and in order from where it was asked for, to its last byte."""
    with LocalFileSource(path) as source:
        assert CONTENT[start:] == b"".join(bytes(chunk) for chunk in read_ahead(source, start))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100, 1000])
def test_bytes(chunk_bytes: int) -> None:
    """A source that cannot fill memory is read all the same."""
    source = BytesSource(CONTENT[:1000], chunk_bytes=chunk_bytes)
    assert CONTENT[:1000] == b"".join(read_ahead(source))


def test_memory_is_filled_again(path: Path) -> None:
    """A file is read into three pieces of memory, however many chunks it has."""
    with LocalFileSource(path) as source:
        places = {id(chunk.obj) for chunk in read_ahead(source) if isinstance(chunk, memoryview)}
    assert 3 == len(places)


def test_memory_begins_where_a_page_does(path: Path) -> None:
    """Chunks are read to the beginning of a page: elsewhere some processors take up to four times as long."""
    with LocalFileSource(path) as source:
        objects = {id(chunk.obj): chunk.obj for chunk in read_ahead(source) if isinstance(chunk, memoryview)}
        offsets = {ctypes.addressof(ctypes.c_char.from_buffer(memory)) % PAGESIZE for memory in objects.values()}
    assert {0} == offsets


def test_error_comes_in_its_place() -> None:
    """What was read before an error is handed out, then the error is raised."""
    chunks = read_ahead(UnreadableSource(CONTENT, chunk_bytes=500))
    assert CONTENT[:1000] == bytes(next(chunks)) + bytes(next(chunks))
    with pytest.raises(SourceUnavailableError, match="nothing at byte 1000"):
        next(chunks)
    assert [] == readers()


def test_nobody_asks_any_more(path: Path) -> None:
    """A walk that is left early leaves no thread behind."""
    with LocalFileSource(path) as source:
        chunks = read_ahead(source)
        next(chunks)
        assert ["read-ahead"] == readers()
        del chunks
        assert [] == readers()
