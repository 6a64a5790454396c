"""A source as a file that pyarrow can read, with a cache of the last few blocks."""

from __future__ import annotations

import io
from collections import OrderedDict

from shard_validation.content import ShardSource

BLOCK_BYTES = 1 << 20
MAX_BLOCKS = 6
MAX_HELD_BYTES = 32 << 20


class BlockFile(io.RawIOBase):
    """Serves small reads from cached blocks, so that no page is fetched twice; large reads bypass the cache."""

    def __init__(self, source: ShardSource) -> None:
        self._source = source
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._held_from, self._held = 0, b""

    def hold(self, start: int, stop: int) -> None:
        """Hold a range in memory that will be read repeatedly, unless it is large or fits into a few blocks."""
        self._held = b""  # first, so that two are never held
        if BLOCK_BYTES < stop - start <= MAX_HELD_BYTES:
            self._held_from, self._held = start, self._source.read(start, stop - start)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, or fewer at the end of the content. Raises SourceError."""
        length = max(0, min(length, self._source.size_bytes - offset))
        if self._held_from <= offset and offset + length <= self._held_from + len(self._held):
            start = offset - self._held_from
            return self._held[start : start + length]
        if length > BLOCK_BYTES:
            return self._source.read(offset, length)
        content = b""
        while length > 0:
            block, start = divmod(offset, BLOCK_BYTES)
            piece = self._block(block)[start : start + length]
            content = content + piece if content else piece
            offset, length = offset + len(piece), length - len(piece)
        return content

    def _block(self, index: int) -> bytes:
        block = self._blocks.pop(index, None)
        if block is None:
            start = index * BLOCK_BYTES
            block = self._source.read(start, min(BLOCK_BYTES, self._source.size_bytes - start))
            if len(self._blocks) >= MAX_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks[index] = block
        return block

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, as any file does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes."""
        length = self._source.size_bytes - self._position if size is None or size < 0 else size
        content = self.read_at(self._position, length)
        self._position += len(content)
        return content
