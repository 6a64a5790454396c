"""Bytes that come in pieces, taken in the lengths that somebody needs."""

from __future__ import annotations

from collections.abc import Iterator

from shard_validation.parquet.levels import LevelsError

PIECE_BYTES = 1 << 20


class ByteStream:
    """Over pieces of any size; what was taken is gone."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._position = 0

    def take(self, length: int) -> bytes:
        """Return so many bytes, which the caller has bounded. Raises LevelsError where there are fewer."""
        start = self._position
        content = self._piece[start : start + length]
        self._position = start + len(content)
        return content if len(content) == length else content + b"".join(self.pieces(length - len(content)))

    def pieces(self, length: int) -> Iterator[bytes]:
        """Yield so many bytes without holding them all. Raises LevelsError where there are fewer."""
        while length > 0:
            if self._position == len(self._piece):
                self._next(length)
            content = self._piece[self._position : self._position + min(length, PIECE_BYTES)]
            self._position += len(content)
            length -= len(content)
            yield content

    def finish(self) -> None:
        """Read to the end, where pieces find their own faults. Raises LevelsError where bytes are left."""
        left = len(self._piece) - self._position + sum(map(len, self._pieces))
        if left:
            raise LevelsError(f"the page should end with its last value, has {left} bytes more")

    def _next(self, length: int) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise LevelsError(f"{length} bytes should follow, the page is over")
        self._piece, self._position = piece, 0
