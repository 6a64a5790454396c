"""Pages too large for memory, decompressed piece by piece to exactly the size that their header states.

Source of the Snappy format: google/snappy, format_description.txt. Compressors work on blocks of 64 KiB and never
refer further back.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Any

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.encodings import PageDataError
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.pages import Page, crc_fault
from shard_validation.reasons import FaultError, ReasonCode

PIECE_BYTES = 1 << 20
WINDOW_BYTES = 1 << 20
"""Output that is kept for back references, many times what compressors refer to."""
_MAX_SIZE_BYTES = 5
_LITERAL, _SHORT_COPY, _MEDIUM_COPY = 0, 1, 2
_MAX_INLINE_LENGTH = 60


class ByteStream:
    """Bytes that arrive in pieces of any size and are read once, in any lengths."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._position = 0

    def take(self, length: int) -> bytes:
        """Return ``length`` bytes, which the caller has bounded. Raises PageDataError if there are fewer."""
        start = self._position
        content = self._piece[start : start + length]
        self._position = start + len(content)
        return content if len(content) == length else content + b"".join(self.pieces(length - len(content)))

    def pieces(self, length: int) -> Iterator[bytes]:
        """Yield ``length`` bytes without holding them all. Raises PageDataError if there are fewer."""
        while length > 0:
            if self._position == len(self._piece):
                self._next(length)
            content = self._piece[self._position : self._position + min(length, PIECE_BYTES)]
            self._position += len(content)
            length -= len(content)
            yield content

    def finish(self) -> None:
        """Read to the end, where the pieces are checked. Raises PageDataError if bytes are left."""
        left = len(self._piece) - self._position + sum(map(len, self._pieces))
        if left:
            raise PageDataError(f"{left} bytes after the last value of the page")

    def _next(self, length: int) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise PageDataError(f"the page ends {length} bytes too early")
        self._piece, self._position = piece, 0


def open_page(file: BlockFile, chunk: ColumnChunk, page: Page) -> tuple[bytes, ByteStream]:
    """Return the levels that a page of version 2 stores separately, and a stream of the rest, uncompressed.

    The checksum, if there is one, is compared first, so that damaged pages are not decoded. Raises FaultError, here
    and from the stream.
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
    """Yield pieces, in all as many bytes as the page's header states. Raises FaultError."""
    import pyarrow as pa

    stored, size, left = _stored(file, page, start), page.uncompressed_bytes - start, page.uncompressed_bytes - start
    try:
        is_snappy = chunk.compression == "SNAPPY"
        for piece in snappy_pieces(ByteStream(stored)) if is_snappy else _inflated(chunk.compression, stored):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FaultError):
            raise
        raise _corrupt(chunk, page, f"{chunk.compression} data", str(error)) from error
    if left:
        seen = f"{size - left} bytes" if left > 0 else "more"
        raise _corrupt(chunk, page, f"{size} bytes uncompressed", seen)


def _inflated(compression: str, stored: Iterator[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    reader: Any = pa.PythonFile(io.BufferedReader(_PiecesFile(stored)), mode="r")
    with pa.CompressedInputStream(reader, compression.lower()) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield bytes(piece)


class _PiecesFile(io.RawIOBase):
    """Pieces as a file that is read from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer with at most the rest of one piece."""
        self._rest = self._rest or next(self._pieces, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _corrupt(chunk: ColumnChunk, page: Page, expected: str, seen: str) -> FaultError:
    return FaultError(ReasonCode.PARQUET_PAGE_CORRUPT, expected, seen or "other bytes", page.offset, chunk.path)


def snappy_pieces(stream: ByteStream) -> Iterator[bytes]:
    """Yield the decompressed content of Snappy's raw format, piece by piece.

    Raises PageDataError for malformed data.
    """
    left = _snappy_size(stream)
    window, num_yielded = bytearray(), 0
    while left > 0:
        for piece in _snappy_element(stream, window):
            window += piece
            left -= len(piece)
            if len(window) >= WINDOW_BYTES + PIECE_BYTES:
                yield bytes(window[num_yielded:])
                del window[:-WINDOW_BYTES]
                num_yielded = len(window)
    if left < 0:
        raise PageDataError(f"Snappy data that is {-left} bytes longer than it states")
    yield bytes(window[num_yielded:])


def _snappy_size(stream: ByteStream) -> int:
    """Read the uncompressed size, which begins the data."""
    value = 0
    for i in range(_MAX_SIZE_BYTES):
        byte = stream.take(1)[0]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value
    raise PageDataError("Snappy data that does not begin with a size")


def _snappy_element(stream: ByteStream, window: bytearray) -> Iterator[bytes | bytearray]:
    """Yield the output of the next element: literal bytes, in pieces, or a copy of earlier ones."""
    tag = stream.take(1)[0]
    kind, length = tag & 3, (tag >> 2) + 1
    if kind == _LITERAL:
        if length > _MAX_INLINE_LENGTH:
            length = int.from_bytes(stream.take(length - _MAX_INLINE_LENGTH), "little") + 1
        yield from stream.pieces(length)
    elif kind == _SHORT_COPY:
        yield _copied(window, (tag >> 5) << 8 | stream.take(1)[0], ((tag >> 2) & 7) + 4)
    else:
        offset_bytes = 2 if kind == _MEDIUM_COPY else 4
        yield _copied(window, int.from_bytes(stream.take(offset_bytes), "little"), length)


def _copied(window: bytearray, offset: int, length: int) -> bytearray:
    if not 0 < offset <= len(window):
        raise PageDataError(f"Snappy data that refers back {offset} bytes, of {len(window)}")
    start = len(window) - offset
    if offset >= length:
        return window[start : start + length]
    return (window[start:] * (length // offset + 1))[:length]
