"""Snappy's raw format decompressed piece by piece: libraries do it at once, which takes too much for large pages.

Source: google/snappy, format_description.txt. Compressors work on blocks of 64 KiB and never look back further.
"""

from __future__ import annotations

from collections.abc import Iterator

from shard_validation.parquet.byte_streams import PIECE_BYTES, ByteStream
from shard_validation.parquet.levels import LevelsError

WINDOW_BYTES = 1 << 20
"""Kept to be looked back at, many times what is needed."""
_MAX_SIZE_BYTES = 5
_LITERAL, _SHORT_COPY, _MEDIUM_COPY = 0, 1, 2
_MAX_INLINE_LENGTH = 60


def decompressed(stream: ByteStream) -> Iterator[bytes]:
    """Yield what a stream decompresses to, a piece at a time. Raises LevelsError where it is not Snappy's."""
    left = _size(stream)
    window, num_yielded = bytearray(), 0
    while left > 0:
        for piece in _element(stream, window):
            window += piece
            left -= len(piece)
            if len(window) >= WINDOW_BYTES + PIECE_BYTES:
                yield bytes(window[num_yielded:])
                del window[:-WINDOW_BYTES]
                num_yielded = len(window)
    if left < 0:
        raise LevelsError(f"Snappy data should end with the size that they state, were {-left} bytes longer")
    yield bytes(window[num_yielded:])


def _size(stream: ByteStream) -> int:
    value = 0
    for i in range(_MAX_SIZE_BYTES):
        byte = stream.take(1)[0]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value
    raise LevelsError("a size should begin Snappy data")


def _element(stream: ByteStream, window: bytearray) -> Iterator[bytes | bytearray]:
    """Yield what the next element stands for: literal bytes, in pieces, or some that came before."""
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
        raise LevelsError(f"Snappy data should look back 1 to {len(window)} bytes, looked back {offset}")
    start = len(window) - offset
    if offset >= length:
        return window[start : start + length]
    return (window[start:] * (length // offset + 1))[:length]
