"""Byte arrays in pages too large for memory, decoded piece by piece: pyarrow would need four copies of such a page.

pyarrow and pandas write up to 1,024 images into a page. pyarrow decodes all smaller pages, see `arrow_columns`.
Source: apache/parquet-format, Encodings.md (PLAIN, RLE_DICTIONARY) and README.md, "Data Pages".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import Enum
from itertools import accumulate, repeat

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.decompression import ByteStream, open_page
from shard_validation.parquet.encodings import (
    BIT_PACKED,
    LENGTH_BYTES,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    PageDataError,
    PlainValues,
    checked_levels,
    hybrid_values,
    plain_values,
)
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.pages import Page, PageKind
from shard_validation.reasons import FaultError, ReasonCode

_ENCODINGS = frozenset({PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY})
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "BROTLI"})
_MAX_BIT_WIDTH = 32
_TOO_LARGE, _COMPLEX = ReasonCode.PARQUET_PAGE_TOO_LARGE, ReasonCode.PARQUET_TOO_COMPLEX
MAX_DEFERRED_ROWS = 1_000_000
"""Limit for rows that refer to a dictionary too large for memory, and for its values; such dictionaries are rare. """


class Deferred(Enum):
    """Marks a value that is read later."""

    DEFERRED = 0


DEFERRED = Deferred.DEFERRED


def decodes(chunk: ColumnChunk) -> bool:
    """Whether `PageDecoder` can read a column chunk, so that its pages may have any size."""
    return (
        chunk.leaf.physical_type == "BYTE_ARRAY"
        and not chunk.is_nested
        and chunk.compression in _CODECS
        and chunk.encodings <= _ENCODINGS
    )


class PageDecoder:
    """Decodes the pages of one column chunk in order."""

    def __init__(self, file: BlockFile, chunk: ColumnChunk, max_held_bytes: int) -> None:
        """Begin. Pages above ``max_held_bytes`` are read in pieces; values above it are rejected."""
        self._file = file
        self._chunk = chunk
        self._max_held_bytes = max_held_bytes
        self._dictionary: PlainValues | None = None
        self._large_dictionary: Page | None = None
        self._deferred = DeferredRows(0)
        self._num_rows = 0

    def values(self, page: Page) -> Iterator[bytes | Deferred | None]:
        """Yield the values of a data page, None if a row has no value; keep those of a dictionary. Raises FaultError.

        For a row that refers to a dictionary too large for memory, it yields `DEFERRED`: see `deferred`.
        """
        try:
            for value in self._decoded(page):
                if isinstance(value, int):
                    self._deferred.note(self._num_rows, value)
                self._num_rows += 1
                yield DEFERRED if isinstance(value, int) else value
        except (PageDataError, IndexError) as error:
            raise self._fault(page, "values as the page's header states", str(error)) from error
        except TooManyRowsError as error:
            expected = f"at most {MAX_DEFERRED_ROWS} rows and values of a large dictionary"
            raise self._fault(page, expected, str(error), _COMPLEX) from error

    def deferred(self) -> Iterator[tuple[int, bytes]]:
        """Yield the deferred rows, counted from the first of the chunk, with their values. Raises FaultError."""
        page = self._large_dictionary
        if page is None:
            return
        try:
            _, stream = open_page(self._file, self._chunk, page)
            for rows, value in zip(self._deferred.by_value(), self._values(page, stream), strict=False):
                yield from ((row, value) for row in rows)
            stream.finish()
        except PageDataError as error:
            raise self._fault(page, "values as the page's header states", str(error)) from error

    def _decoded(self, page: Page) -> Iterator[bytes | int | None]:
        """Yield values, or indices of a dictionary that is not held."""
        is_large = page.largest_bytes > self._max_held_bytes
        if page.kind == PageKind.DICTIONARY and is_large:
            self._large_dictionary, self._deferred = page, DeferredRows(page.num_values)
        elif page.kind == PageKind.DICTIONARY:
            _, stream = open_page(self._file, self._chunk, page)
            self._dictionary = plain_values(memoryview(stream.take(page.uncompressed_bytes)), page.num_values)
        elif page.holds_rows:
            if is_large and page.encoding != PLAIN:
                seen = f"{page.largest_bytes} bytes of encoding {page.encoding}"
                raise self._fault(page, f"plain values in pages above {self._max_held_bytes} bytes", seen, _TOO_LARGE)
            yield from self._rows(page)

    def _rows(self, page: Page) -> Iterator[bytes | int | None]:
        self._held(page, sum(page.level_bytes))
        levels, stream = open_page(self._file, self._chunk, page)
        highest, left = self._chunk.leaf.max_definition_level, page.uncompressed_bytes - len(levels)
        if page.kind == PageKind.DATA_V2:
            levels = levels[page.level_bytes[0] :]
        elif highest:
            self._check_level_encoding(page)
            levels = stream.take(self._held(page, int.from_bytes(stream.take(LENGTH_BYTES), "little")))
            left -= LENGTH_BYTES + len(levels)
        present = hybrid_values(memoryview(levels), highest.bit_length(), page.num_values)
        values = self._values(page, stream) if page.encoding == PLAIN else self._indexed(page, stream, left)
        for level in checked_levels(present, highest) if highest else repeat(highest, page.num_values):
            yield next(values) if level == highest else None
        stream.finish()

    def _check_level_encoding(self, page: Page) -> None:
        if page.level_encodings[0] != RLE:
            raise self._fault(page, "run-length encoded definition levels", f"encoding {page.level_encodings[0]}")

    def _values(self, page: Page, stream: ByteStream) -> Iterator[bytes]:
        """Yield plain values indefinitely."""
        while True:
            yield stream.take(self._held(page, int.from_bytes(stream.take(LENGTH_BYTES), "little")))

    def _indexed(self, page: Page, stream: ByteStream, size_bytes: int) -> Iterator[bytes | int]:
        """Return values of the dictionary, or indices of one that is not held, in a page of bounded size."""
        dictionary = self._dictionary
        has_dictionary = dictionary is not None or self._large_dictionary is not None
        if page.encoding not in {PLAIN_DICTIONARY, RLE_DICTIONARY} or not has_dictionary:
            raise self._fault(page, "plain values, or indices of a dictionary", f"encoding {page.encoding}")
        content = memoryview(stream.take(max(0, size_bytes)))
        indices = _indices(content, page.num_values)
        return indices if dictionary is None else (dictionary[i] for i in indices)

    def _held(self, page: Page, size_bytes: int) -> int:
        """Return the size if that many bytes may be held in memory. Raises FaultError."""
        if size_bytes > self._max_held_bytes:
            expected = f"values and levels of at most {self._max_held_bytes} bytes (limits.max_page_bytes)"
            raise self._fault(page, expected, f"one of {size_bytes} bytes", _TOO_LARGE)
        return size_bytes

    def _fault(
        self, page: Page, expected: str, seen: str, code: ReasonCode = ReasonCode.PARQUET_PAGE_CORRUPT
    ) -> FaultError:
        return FaultError(code, expected, seen or "other bytes", page.offset, self._chunk.path)


def _indices(content: memoryview, count: int) -> Iterator[int]:
    if not content or content[0] > _MAX_BIT_WIDTH:
        raise PageDataError(f"dictionary indices without a bit width of 0 to {_MAX_BIT_WIDTH}")
    yield from hybrid_values(content[1:], content[0], count)


class TooManyRowsError(ValueError):
    """More deferred rows, or values of their dictionary, than `MAX_DEFERRED_ROWS`."""


class DeferredRows:
    """Rows whose value is in a dictionary too large for memory: they are read with the dictionary at the end."""

    def __init__(self, num_values: int) -> None:
        """Begin. Raises TooManyRowsError for more values than `MAX_DEFERRED_ROWS`."""
        if num_values > MAX_DEFERRED_ROWS:
            raise TooManyRowsError(f"{num_values} values")
        self.num_values = num_values
        self._indices = array("I")
        self._rows = array("I")

    def note(self, row: int, index: int) -> None:
        """Note a row. Raises IndexError for an index outside the dictionary, and TooManyRowsError."""
        if index >= self.num_values:
            raise IndexError(f"index {index} in a dictionary of {self.num_values}")
        if len(self._rows) >= MAX_DEFERRED_ROWS:
            raise TooManyRowsError(f"more than {MAX_DEFERRED_ROWS} rows")
        self._indices.append(index)
        self._rows.append(row)

    def by_value(self) -> Iterator[array[int]]:
        """Yield the rows of each value of the dictionary in turn."""
        counts = array("I", bytes(4 * (self.num_values + 1)))
        for index in self._indices:
            counts[index + 1] += 1
        starts = array("I", accumulate(counts))
        ends, ordered = starts[:], array("I", bytes(4 * len(self._rows)))
        for index, row in zip(self._indices, self._rows, strict=True):
            ordered[ends[index]] = row
            ends[index] += 1
        for index in range(self.num_values):
            yield ordered[starts[index] : ends[index]]
