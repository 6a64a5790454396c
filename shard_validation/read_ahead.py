"""Reading a source from front to back: a thread fetches the next chunk while the current one is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from mmap import mmap
from queue import SimpleQueue
from threading import Thread

from shard_validation.sources import ChunkedSource, RefillingSource, ShardSource

Chunk = bytes | memoryview

DEFAULT_CHUNK_BYTES = 8 << 20
"""For sources without a preferred size: fast enough with Blob storage, and two chunks are in memory at a time."""
_NUM_SLOTS = 2
_NUM_REFILLED_SLOTS = 3
"""Checking small records rarely releases the interpreter lock; a third slot is filled when it does."""

_Slot = Callable[[int, int], Chunk]
"""Reads at an offset a number of bytes. Reading takes a free slot, so there are never more chunks than slots."""


def read_ahead(source: ShardSource, start: int = 0) -> Iterator[Chunk]:
    """Yield the content from ``start`` in chunks, two or three of them in memory at a time. Raises SourceError.

    A chunk is valid until the next one is requested: then its memory is refilled.
    """
    chunk_bytes = source.chunk_bytes if isinstance(source, ChunkedSource) else DEFAULT_CHUNK_BYTES
    if source.size_bytes - start <= chunk_bytes:
        if start < source.size_bytes:
            yield source.read(start, source.size_bytes - start)
        return
    reader = _Reader(source, start, chunk_bytes)
    reader.start()
    try:
        yield from reader.chunks()
    finally:
        reader.stop()


class _Reader(Thread):
    """Reads while there are free slots. Queues cost a tenth of a pool's futures, which matters for small chunks."""

    def __init__(self, source: ShardSource, start: int, chunk_bytes: int) -> None:
        super().__init__(name="read-ahead", daemon=True)
        self._offsets = range(start, source.size_bytes, chunk_bytes)
        self._size_bytes = source.size_bytes
        self._free: SimpleQueue[_Slot | None] = SimpleQueue()
        self._filled: SimpleQueue[tuple[_Slot, Chunk] | BaseException] = SimpleQueue()
        for slot in _slots(source, chunk_bytes):
            self._free.put(slot)

    def run(self) -> None:
        """Read until the end, the first error, or `stop`."""
        try:
            for offset in self._offsets:
                slot = self._free.get()
                if slot is None:
                    return
                length = min(self._offsets.step, self._size_bytes - offset)
                self._filled.put((slot, slot(offset, length)))
        except BaseException as error:  # noqa: BLE001 - raised again where the chunk is awaited
            self._filled.put(error)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks in order. Raises what the source raised."""
        for _ in self._offsets:
            answer = self._filled.get()
            if isinstance(answer, BaseException):
                raise answer
            slot, chunk = answer
            del answer
            yield chunk
            del chunk
            self._free.put(slot)

    def stop(self) -> None:
        """Wait until the thread has ended."""
        self._free.put(None)
        self.join()


def _slots(source: ShardSource, chunk_bytes: int) -> list[_Slot]:
    """Return slots, with memory to reuse where the source can: allocating memory costs as much as reading into it."""
    if isinstance(source, RefillingSource):
        return [_refilled(source, _aligned_memory(chunk_bytes)) for _ in range(_NUM_REFILLED_SLOTS)]
    return [source.read] * _NUM_SLOTS


def _aligned_memory(num_bytes: int) -> memoryview:
    """Return page-aligned memory: AMD's Zen copies to unaligned addresses at a quarter of the speed."""
    return memoryview(mmap(-1, num_bytes))


def _refilled(source: RefillingSource, memory: memoryview) -> _Slot:
    def refill(offset: int, length: int) -> Chunk:
        source.read_into(offset, memory[:length])
        return memory[:length].toreadonly()

    return refill
