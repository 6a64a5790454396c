"""GZIP and ZLIB streams inflated block by block, in bounded memory and to a bounded size."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from shard_validation.limits import Limits
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.verdicts import Compression

BLOCK_BYTES = 1 << 20
"""The most that is inflated at a time."""
_INPUT_BYTES = 64 << 10
"""Given to zlib at a time: what it does not use is copied for the next call."""
_FREE_INFLATION_BYTES = 64 << 20
"""Below this no ratio is looked at."""
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
_GZIP_MAGIC = b"\x1f\x8b"


class InflatingError(ValueError):
    """The compressed stream is at fault; `byte_offset` is of the file as it is stored."""

    def __init__(self, code: ReasonCode, expected: str, seen: str, byte_offset: int) -> None:
        super().__init__(f"should be {expected}, was {seen}")
        self.fault = Fault(code=code, expected=expected, seen=seen)
        self.byte_offset = byte_offset


class Inflater:
    """Takes the stored content in chunks, yields the inflated one in blocks."""

    def __init__(self, compression: Compression, limits: Limits) -> None:
        """Begin a stream."""
        self._compression = compression
        self._limits = limits
        self._stream = zlib.decompressobj(_WINDOW_BITS[compression])
        self._num_taken = 0
        self._num_inflated = 0

    def inflate(self, chunk: bytes | memoryview) -> Iterator[bytes]:
        """Yield what a chunk inflates to. Raises InflatingError."""
        for start in range(0, len(chunk), _INPUT_BYTES):
            rest = bytes(chunk[start : start + _INPUT_BYTES])
            self._num_taken += len(rest)
            while rest:
                if self._stream.eof:
                    self._begin_member(rest)
                yield from self._blocks(rest)
                rest = self._stream.unused_data

    def finish(self) -> None:
        """State that the stored content is over. Raises InflatingError where the stream is not."""
        if not self._stream.eof:
            raise InflatingError(
                ReasonCode.COMPRESSION_CUT,
                f"the end of the {self._compression} stream",
                f"the end of the file after {self._num_taken} bytes",
                self._num_taken,
            )

    def _blocks(self, piece: bytes) -> Iterator[bytes]:
        while True:
            try:
                block = self._stream.decompress(piece, BLOCK_BYTES)
            except zlib.error as error:
                raise InflatingError(
                    ReasonCode.COMPRESSION_CORRUPT, f"a {self._compression} stream", str(error), self._num_taken
                ) from error
            self._num_inflated += len(block)
            self._check_size()
            if block:
                yield block
            piece = self._stream.unconsumed_tail
            if self._stream.eof or (not piece and len(block) < BLOCK_BYTES):
                return

    def _check_size(self) -> None:
        limit = min(
            self._limits.max_inflated_bytes,
            max(_FREE_INFLATION_BYTES, self._num_taken * self._limits.max_inflation),
        )
        if self._num_inflated > limit:
            raise InflatingError(
                ReasonCode.COMPRESSION_BOMB,
                f"at most {limit} bytes (limits.max_inflation, limits.max_inflated_bytes)",
                f"{self._num_inflated} bytes out of the first {self._num_taken}",
                self._num_taken,
            )

    def _begin_member(self, rest: bytes) -> None:
        """Go on with another GZIP member, as RFC 1952 allows and TensorFlow reads; nothing else may follow."""
        if self._compression != "gzip" or not _GZIP_MAGIC.startswith(rest[: len(_GZIP_MAGIC)]):
            raise InflatingError(
                ReasonCode.TRAILING_BYTES,
                f"the end of the file behind the {self._compression} stream",
                f"bytes beginning {rest[:8].hex(' ')}",
                self._num_taken - len(rest),
            )
        self._stream = zlib.decompressobj(_WINDOW_BITS[self._compression])
