"""Byte arrays decoded page by page: images are large, and pyarrow holds a page of them four times over.

Source: apache/parquet-format, Encodings.md (PLAIN, RLE_DICTIONARY) and README.md, "Data Pages".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import repeat

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.byte_streams import ByteStream
from shard_validation.parquet.decompression import decompress
from shard_validation.parquet.deferred import MAX_ROWS, DeferredRows, TooManyRowsError
from shard_validation.parquet.faults import ParquetFaultError
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.levels import LevelsError, hybrid_values
from shard_validation.parquet.page_streams import open_page
from shard_validation.parquet.pages import Page, PageKind, read_body
from shard_validation.reason_codes import ReasonCode

_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_BIT_PACKED = 4
_ENCODINGS = frozenset({_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY, _BIT_PACKED})
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "BROTLI"})
_LENGTH_BYTES = 4
_MAX_BIT_WIDTH = 32
_TOO_LARGE, _COMPLEX = ReasonCode.PARQUET_PAGE_TOO_LARGE, ReasonCode.PARQUET_TOO_COMPLEX


class Deferred(Enum):
    """A value that is not known yet."""

    DEFERRED = 0


DEFERRED = Deferred.DEFERRED


def decodes(chunk: ColumnChunk) -> bool:
    """Tell whether `PageDecoder` reads a column chunk; pyarrow reads the others."""
    return (
        chunk.leaf.physical_type == "BYTE_ARRAY"
        and not chunk.is_nested
        and chunk.compression in _CODECS
        and chunk.encodings <= _ENCODINGS
    )


@dataclass(frozen=True)
class _Values:
    """Byte arrays in a row, with the place of each: far smaller than as many objects."""

    content: memoryview
    places: array[int]
    """Start and stop of each in turn."""

    def __len__(self) -> int:
        return len(self.places) // 2

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.content[self.places[2 * index] : self.places[2 * index + 1]])


class PageDecoder:
    """Decodes the pages of one column chunk in order."""

    def __init__(self, file: BlockFile, chunk: ColumnChunk, max_held_bytes: int) -> None:
        """Begin; larger pages, and values in them, than ``max_held_bytes`` are read in pieces, or refused."""
        self._file = file
        self._chunk = chunk
        self._max_held_bytes = max_held_bytes
        self._dictionary: _Values | None = None
        self._large_dictionary: Page | None = None
        self._deferred = DeferredRows(0)
        self._num_rows = 0

    def values(self, page: Page) -> Iterator[bytes | Deferred | None]:
        """Yield a data page's values, None where a row has none; keep a dictionary's. Raises ParquetFaultError.

        Of a row that refers to a dictionary too large to be held there is `DEFERRED`: see `deferred`.
        """
        try:
            for value in self._decoded(page):
                if isinstance(value, int):
                    self._deferred.note(self._num_rows, value)
                self._num_rows += 1
                yield DEFERRED if isinstance(value, int) else value
        except (LevelsError, IndexError) as error:
            raise self._fault(page, "values as the page's header states", str(error)) from error
        except TooManyRowsError as error:
            raise self._fault(page, f"a large dictionary for {MAX_ROWS} rows", str(error), _COMPLEX) from error

    def deferred(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows that were deferred, counted from the chunk's first, with their values.

        Raises ParquetFaultError.
        """
        page = self._large_dictionary
        if page is None:
            return
        try:
            _, stream = open_page(self._file, self._chunk, page)
            for rows in self._deferred.by_value():
                value = self._streamed_value(page, stream)
                yield from ((row, value) for row in rows)
            stream.finish()
        except LevelsError as error:
            raise self._fault(page, "values as the page's header states", str(error)) from error

    def _decoded(self, page: Page) -> Iterator[bytes | int | None]:
        """Yield values, and indices of a dictionary that is not held."""
        is_large = page.largest_bytes > self._max_held_bytes
        if page.kind == PageKind.DICTIONARY and is_large:
            self._large_dictionary, self._deferred = page, DeferredRows(page.num_values)
        elif page.kind == PageKind.DICTIONARY:
            content = self._uncompressed(page, self._body(page), page.uncompressed_bytes)
            self._dictionary = _plain_values(content, page.num_values)
        elif page.holds_rows:
            yield from self._streamed_rows(page) if is_large else self._rows(page)

    def _streamed_rows(self, page: Page) -> Iterator[bytes | None]:
        if page.encoding != _PLAIN:
            seen = f"{page.largest_bytes} bytes of encoding {page.encoding}"
            raise self._fault(page, f"plain values in pages over {self._max_held_bytes} bytes", seen, _TOO_LARGE)
        self._held(page, sum(page.level_bytes))
        levels, stream = open_page(self._file, self._chunk, page)
        highest = self._chunk.leaf.max_definition_level
        if page.kind == PageKind.DATA_V2:
            levels = levels[page.level_bytes[0] :]
        elif highest:
            self._check_level_encoding(page)
            levels = stream.take(self._held(page, int.from_bytes(stream.take(_LENGTH_BYTES), "little")))
        present = hybrid_values(memoryview(levels), highest.bit_length(), page.num_values)
        for level in present if highest else repeat(highest, page.num_values):
            if level > highest:
                raise _level_error(level, highest)
            yield self._streamed_value(page, stream) if level == highest else None
        stream.finish()

    def _streamed_value(self, page: Page, stream: ByteStream) -> bytes:
        return stream.take(self._held(page, int.from_bytes(stream.take(_LENGTH_BYTES), "little")))

    def _held(self, page: Page, size_bytes: int) -> int:
        """Return the size of what is to be held. Raises ParquetFaultError where that is too much."""
        if size_bytes > self._max_held_bytes:
            expected = f"values, and levels, of at most {self._max_held_bytes} bytes (limits.max_page_bytes)"
            raise self._fault(page, expected, f"one of {size_bytes} bytes", _TOO_LARGE)
        return size_bytes

    def _rows(self, page: Page) -> Iterator[bytes | int | None]:
        levels, content = self._parts(page)
        if levels is None:
            yield from self._present(page, content, page.num_values)
            return
        highest = self._chunk.leaf.max_definition_level
        width = highest.bit_length()
        num_present = _count_present(hybrid_values(levels, width, page.num_values), highest)
        present = self._present(page, content, num_present)
        for level in hybrid_values(levels, width, page.num_values):
            yield next(present) if level == highest else None

    def _parts(self, page: Page) -> tuple[memoryview | None, memoryview]:
        """Return definition levels and values."""
        has_levels = self._chunk.leaf.max_definition_level > 0
        if page.kind == PageKind.DATA_V2:
            skipped, num_level_bytes = page.level_bytes
            start = skipped + num_level_bytes
            body = self._body(page)
            content = self._uncompressed(page, body[start:], page.uncompressed_bytes - start)
            return (memoryview(body[skipped:start]) if has_levels else None), content
        content = self._uncompressed(page, self._body(page), page.uncompressed_bytes)
        if not has_levels:
            return None, content
        self._check_level_encoding(page)
        stop = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        if stop > len(content):
            raise LevelsError(f"{stop} bytes of levels should begin the page, it has {len(content)}")
        return content[_LENGTH_BYTES:stop], content[stop:]

    def _check_level_encoding(self, page: Page) -> None:
        if page.level_encodings[0] != _RLE:
            raise self._fault(page, "definition levels in runs", f"encoding {page.level_encodings[0]}")

    def _present(self, page: Page, content: memoryview, count: int) -> Iterator[bytes | int]:
        if page.encoding == _PLAIN:
            values = _plain_values(content, count)
            return (values[i] for i in range(count))
        dictionary = self._dictionary
        has_dictionary = dictionary is not None or self._large_dictionary is not None
        if page.encoding not in {_PLAIN_DICTIONARY, _RLE_DICTIONARY} or not has_dictionary:
            raise self._fault(page, "plain values, or indices of a dictionary", f"encoding {page.encoding}")
        if count and (not content or content[0] > _MAX_BIT_WIDTH):
            raise LevelsError(f"a bit width of 0 to {_MAX_BIT_WIDTH} should begin the indices")
        indices = hybrid_values(content[1:], content[0] if content else 0, count)
        return indices if dictionary is None else (dictionary[i] for i in indices)

    def _body(self, page: Page) -> bytes:
        return read_body(self._file, self._chunk, page)

    def _uncompressed(self, page: Page, content: bytes, size_bytes: int) -> memoryview:
        if self._chunk.compression == "UNCOMPRESSED" or not page.is_compressed or not content:
            return memoryview(content)
        import pyarrow as pa

        try:
            view = memoryview(decompress(self._chunk.compression, content, max(0, size_bytes)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._fault(page, f"{self._chunk.compression} data", str(error)) from error
        if len(view) != size_bytes:
            raise self._fault(page, f"{size_bytes} bytes uncompressed", f"{len(view)} bytes or more")
        return view

    def _fault(
        self, page: Page, expected: str, seen: str, code: ReasonCode = ReasonCode.PARQUET_PAGE_CORRUPT
    ) -> ParquetFaultError:
        return ParquetFaultError(code, expected, seen or "other bytes", page.offset, self._chunk.path)


def _plain_values(content: memoryview, count: int) -> _Values:
    """Find the values of the PLAIN encoding: a length of four bytes before each. Raises LevelsError."""
    if count * _LENGTH_BYTES > len(content):
        raise LevelsError(f"{count} values should follow, {len(content)} bytes do")
    places = array("I")
    position = 0
    for i in range(count):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(content[position:start], "little")
        if position > len(content):
            raise LevelsError(f"value {i} should end by byte {len(content)} of the page, ends at byte {position}")
        places.append(start)
        places.append(position)
    return _Values(content, places)


def _count_present(levels: Iterator[int], highest: int) -> int:
    """Return how many rows have a value. Raises LevelsError for a level that the column cannot have."""
    num_present = 0
    for level in levels:
        if level > highest:
            raise _level_error(level, highest)
        num_present += level == highest
    return num_present


def _level_error(level: int, highest: int) -> LevelsError:
    return LevelsError(f"definition levels should be at most {highest}, one was {level}")
