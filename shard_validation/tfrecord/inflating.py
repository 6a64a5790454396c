"""Inflate GZIP and ZLIB streams block by block, in bounded memory and to a bounded size."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from shard_validation.content import GZIP_MAGIC
from shard_validation.reasons import FaultError, ReasonCode
from shard_validation.requirements import Limits
from shard_validation.verdicts import Compression

BLOCK_BYTES = 1 << 20
"""Most bytes inflated at a time."""
_INPUT_BYTES = 64 << 10
"""Bytes passed to zlib at a time: it copies what it does not use, for the next call."""
_FREE_INFLATION_BYTES = 64 << 20
"""Up to this size the inflation ratio is not checked."""
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}


class Inflater:
    """Takes the stored content in chunks, yields the inflated content in blocks."""

    def __init__(self, compression: Compression, limits: Limits) -> None:
        """Begin a stream."""
        self._compression = compression
        self._limits = limits
        self._stream = zlib.decompressobj(_WINDOW_BITS[compression])
        self._num_taken = 0
        self._num_inflated = 0

    def inflate(self, chunk: bytes | memoryview) -> Iterator[bytes]:
        """Yield what a chunk inflates to. Raises FaultError."""
        for start in range(0, len(chunk), _INPUT_BYTES):
            rest = bytes(chunk[start : start + _INPUT_BYTES])
            self._num_taken += len(rest)
            while rest:
                if self._stream.eof:
                    self._begin_member(rest)
                yield from self._blocks(rest)
                rest = self._stream.unused_data

    def finish(self) -> None:
        """Check that the stream has ended where the stored content ends. Raises FaultError."""
        if not self._stream.eof:
            raise FaultError(
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
                raise FaultError(
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
            raise FaultError(
                ReasonCode.COMPRESSION_BOMB,
                f"at most {limit} bytes (limits.max_inflation, limits.max_inflated_bytes)",
                f"{self._num_inflated} bytes from the first {self._num_taken}",
                self._num_taken,
            )

    def _begin_member(self, rest: bytes) -> None:
        """Continue with another GZIP member, as RFC 1952 allows and TensorFlow reads; nothing else may follow."""
        if self._compression != "gzip" or not GZIP_MAGIC.startswith(rest[: len(GZIP_MAGIC)]):
            raise FaultError(
                ReasonCode.TRAILING_BYTES,
                f"the end of the file after the {self._compression} stream",
                f"bytes beginning {rest[:8].hex(' ')}",
                self._num_taken - len(rest),
            )
        self._stream = zlib.decompressobj(_WINDOW_BITS[self._compression])
