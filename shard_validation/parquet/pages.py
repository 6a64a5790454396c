"""The pages of a column chunk: all headers are read, and all sizes and checksums are checked.

Source of the layout: apache/parquet-format, parquet.thrift (PageHeader) and Encodings.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.thrift import BOOL, I32, CompactReader, ThriftEndError, ThriftError, Wanted
from shard_validation.reasons import FaultError, ReasonCode
from shard_validation.requirements import Limits

MAX_HEADER_BYTES = 128 << 10
"""A header contains the smallest and the largest value, which writers shorten."""
_USUAL_HEADER_BYTES = 256
_MAX_HEADER_VALUES = 200
MAX_PAGE_VALUES = 1 << 26
MAX_PAGES = 1 << 20
"""In one column chunk; the validator keeps 16 bytes for each."""
MAX_STREAMED_BYTES = (1 << 31) - 1
"""The largest size that a header can state."""
_PLAIN_ENCODINGS = frozenset({0, 2})
"""PLAIN, and PLAIN_DICTIONARY, which old writers state for it in a dictionary."""

_WANTED: Wanted = {
    1: I32,
    2: I32,
    3: I32,
    4: I32,
    5: {1: I32, 2: I32, 3: I32, 4: I32},
    7: {1: I32, 2: I32},
    8: {1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32, 7: BOOL},
}


class PageKind(IntEnum):
    """Kinds of pages, numbered as in parquet.thrift."""

    DATA = 0
    INDEX = 1
    DICTIONARY = 2
    DATA_V2 = 3


_DETAILS = {PageKind.DATA: 5, PageKind.DICTIONARY: 7, PageKind.DATA_V2: 8}
"""The header field that is specific to a kind of page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page, as its header describes it."""

    kind: PageKind
    offset: int
    """Where the header begins."""
    body_offset: int
    compressed_bytes: int
    uncompressed_bytes: int
    num_values: int
    encoding: int
    level_encodings: tuple[int, int]
    """Encodings of definition and repetition levels; version 1 only."""
    level_bytes: tuple[int, int]
    """Sizes of repetition and definition levels, which version 2 does not compress."""
    is_compressed: bool
    crc: int | None

    @property
    def largest_bytes(self) -> int:
        """The larger of the body's stored and uncompressed sizes."""
        return max(self.compressed_bytes, self.uncompressed_bytes)

    @property
    def holds_rows(self) -> bool:
        """Whether its values are rows of the column."""
        return self.kind in {PageKind.DATA, PageKind.DATA_V2}


def walk_pages(file: BlockFile, chunk: ColumnChunk, limits: Limits, *, is_streamed: bool = False) -> Iterator[Page]:
    """Yield the pages of a column chunk in order. Raises FaultError, SourceError.

    Pages above ``limits.max_page_bytes`` are faults unless ``is_streamed``: the caller then reads them in pieces.
    """
    max_page_bytes = MAX_STREAMED_BYTES if is_streamed else limits.max_page_bytes
    offset, num_values, num_pages = chunk.start, 0, 0
    while offset < chunk.stop:
        num_pages += 1
        if num_pages > MAX_PAGES:
            expected = f"at most {MAX_PAGES} pages in a column chunk"
            raise _fault(ReasonCode.PARQUET_TOO_COMPLEX, expected, "more", offset, chunk)
        page = _read_header(file, chunk, offset, max_page_bytes)
        if page.kind == PageKind.DICTIONARY and (offset != chunk.start or page.encoding not in _PLAIN_ENCODINGS):
            seen = f"one of encoding {page.encoding} at byte {offset}"
            raise _fault(ReasonCode.PARQUET_PAGE_CORRUPT, "a plain dictionary as the first page", seen, offset, chunk)
        num_values += page.num_values if page.holds_rows else 0
        yield page
        offset = page.body_offset + page.compressed_bytes
    if num_values != chunk.num_values or (not chunk.is_nested and num_values != chunk.num_rows):
        expected = f"{chunk.num_values} values for {chunk.num_rows} rows, as the footer states"
        raise _fault(ReasonCode.PARQUET_ROWS_DIFFER, expected, f"{num_values} in the pages", chunk.start, chunk)


def read_body(file: BlockFile, chunk: ColumnChunk, page: Page) -> bytes:
    """Return the body of a page as it is stored, after comparing its checksum if it has one. Raises FaultError."""
    body = file.read_at(page.body_offset, page.compressed_bytes)
    if page.crc is not None and (crc := zlib.crc32(body)) != page.crc:
        raise crc_fault(chunk, page, crc)
    return body


def check_body(file: BlockFile, chunk: ColumnChunk, page: Page) -> None:
    """Compare the checksum of a page that has one. Raises FaultError."""
    if page.crc is not None:
        read_body(file, chunk, page)


def crc_fault(chunk: ColumnChunk, page: Page, crc: int) -> FaultError:
    """Return the fault of a page whose checksum differs from that in its header."""
    seen = f"{crc:08x} of its {page.compressed_bytes} bytes"
    return _fault(ReasonCode.PARQUET_PAGE_CRC, f"CRC {page.crc:08x}", seen, page.offset, chunk)


def _read_header(file: BlockFile, chunk: ColumnChunk, offset: int, max_page_bytes: int) -> Page:
    left = chunk.stop - offset
    try:
        fields, length = _fields(file.read_at(offset, min(_USUAL_HEADER_BYTES, left)))
    except ThriftError:
        window = file.read_at(offset, min(MAX_HEADER_BYTES, left))
        try:
            fields, length = _fields(window)
        except ThriftError as error:
            raise _header_fault(error, chunk, offset, len(window)) from error
    return _checked(fields, offset, length, chunk, max_page_bytes)


def _fields(window: bytes) -> tuple[dict[int, Any], int]:
    reader = CompactReader(window, _MAX_HEADER_VALUES)
    return reader.read_struct(_WANTED), reader.position


def _header_fault(error: ThriftError, chunk: ColumnChunk, offset: int, num_bytes: int) -> FaultError:
    is_cut = num_bytes < MAX_HEADER_BYTES and isinstance(error, ThriftEndError)
    code = ReasonCode.PARQUET_PAGE_CUT if is_cut else ReasonCode.PARQUET_PAGE_CORRUPT
    return _fault(code, "a page header", str(error), offset, chunk)


def _checked(fields: dict[int, Any], offset: int, header_bytes: int, chunk: ColumnChunk, max_page_bytes: int) -> Page:
    page = _page(fields, offset, header_bytes, chunk)
    body_offset, compressed = page.body_offset, page.compressed_bytes
    if page.num_values > MAX_PAGE_VALUES:
        expected = f"at most {MAX_PAGE_VALUES} values in a page"
        raise _fault(ReasonCode.PARQUET_TOO_COMPLEX, expected, str(page.num_values), offset, chunk)
    if page.largest_bytes > max_page_bytes:
        expected = f"pages of at most {max_page_bytes} bytes (limits.max_page_bytes); write smaller row groups"
        seen = f"{compressed} bytes stored, {page.uncompressed_bytes} uncompressed"
        raise _fault(ReasonCode.PARQUET_PAGE_TOO_LARGE, expected, seen, offset, chunk)
    if body_offset + compressed > chunk.stop:
        expected = f"a page that ends by byte {chunk.stop}, where its column chunk ends"
        raise _fault(ReasonCode.PARQUET_PAGE_CUT, expected, f"byte {body_offset + compressed}", offset, chunk)
    return page


def _page(fields: dict[int, Any], offset: int, header_bytes: int, chunk: ColumnChunk) -> Page:
    try:
        kind = PageKind(_whole(fields[1]))
        details = fields[_DETAILS[kind]] if kind in _DETAILS else {}
        is_v2 = kind == PageKind.DATA_V2
        if is_v2:
            _whole(details[2], details[3])
        return Page(
            kind=kind,
            offset=offset,
            body_offset=offset + header_bytes,
            compressed_bytes=_whole(fields[3]),
            uncompressed_bytes=_whole(fields[2]),
            num_values=_whole(details[1]) if details else 0,
            encoding=_whole(details[4 if is_v2 else 2]) if details else 0,
            level_encodings=(_whole(details[3]), _whole(details[4])) if kind == PageKind.DATA else (0, 0),
            level_bytes=(_whole(details[6]), _whole(details[5])) if is_v2 else (0, 0),
            is_compressed=bool(details.get(7, True)) if is_v2 else True,
            crc=None if fields.get(4) is None else fields[4] & 0xFFFFFFFF,
        )
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise _fault(ReasonCode.PARQUET_PAGE_CORRUPT, "a page header", repr(error), offset, chunk) from error


def _whole(*values: Any) -> int:
    """Return the first of some non-negative integers. Raises ValueError if one is negative or not an integer."""
    if not all(isinstance(value, int) and value >= 0 for value in values):
        raise ValueError(f"a negative size or count among {values}")
    return int(values[0])


def _fault(code: ReasonCode, expected: str, seen: str, offset: int, chunk: ColumnChunk) -> FaultError:
    return FaultError(code, expected, seen, offset, chunk.path)
