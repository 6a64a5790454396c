"""Pages too large to be held, decompressed piece by piece: pyarrow writes up to 1,024 images into one page."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Any

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.byte_streams import PIECE_BYTES, ByteStream
from shard_validation.parquet.faults import ParquetFaultError
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.pages import Page, crc_fault
from shard_validation.parquet.snappy import decompressed
from shard_validation.reason_codes import ReasonCode


def open_page(file: BlockFile, chunk: ColumnChunk, page: Page) -> tuple[bytes, ByteStream]:
    """Return the levels that a page of version 2 keeps apart, and a stream of the rest, uncompressed.

    Its check sum is compared first, where it has one: what is read of a damaged page means nothing.
    Raises ParquetFaultError, here and from the stream.
    """
    if page.crc is not None:
        crc = 0
        for piece in _stored(file, page, 0):
            crc = zlib.crc32(piece, crc)
        if crc != page.crc:
            raise crc_fault(chunk, page, crc)
    apart = sum(page.level_bytes)
    levels = file.read_at(page.body_offset, apart)
    if chunk.compression == "UNCOMPRESSED" or not page.is_compressed:
        return levels, ByteStream(_stored(file, page, apart))
    return levels, ByteStream(_decompressed(file, chunk, page, apart))


def _stored(file: BlockFile, page: Page, start: int) -> Iterator[bytes]:
    for offset in range(start, page.compressed_bytes, PIECE_BYTES):
        yield file.read_at(page.body_offset + offset, min(PIECE_BYTES, page.compressed_bytes - offset))


def _decompressed(file: BlockFile, chunk: ColumnChunk, page: Page, start: int) -> Iterator[bytes]:
    """Yield pieces, and no more in all than the page's header states. Raises ParquetFaultError."""
    import pyarrow as pa

    stored, size, left = _stored(file, page, start), page.uncompressed_bytes - start, page.uncompressed_bytes - start
    try:
        is_snappy = chunk.compression == "SNAPPY"
        for piece in decompressed(ByteStream(stored)) if is_snappy else _inflated(chunk.compression, stored):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, ParquetFaultError):
            raise
        raise _corrupt(chunk, page, f"{chunk.compression} data", str(error)) from error
    if left:
        seen = f"{size - left} bytes" if left > 0 else "more"
        raise _corrupt(chunk, page, f"{size} bytes uncompressed", seen)


def _inflated(compression: str, stored: Iterator[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    reader: Any = pa.PythonFile(io.BufferedReader(_Pieces(stored)), mode="r")
    with pa.CompressedInputStream(reader, compression.lower()) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield bytes(piece)


class _Pieces(io.RawIOBase):
    """Pieces as a file that is read from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as the next piece goes."""
        self._rest = self._rest or next(self._pieces, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _corrupt(chunk: ColumnChunk, page: Page, expected: str, seen: str) -> ParquetFaultError:
    return ParquetFaultError(
        ReasonCode.PARQUET_PAGE_CORRUPT, expected, seen or "other bytes", page.offset, chunk.path
    )
