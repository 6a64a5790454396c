"""Reading a file by two threads that each check what they read: records as long as they are sound.

One core cannot copy a file out of the page cache as fast as two can check it, and a thread that needs the interpreter
for each record keeps another from its own; so both do all of it in native.py, which needs it once for a stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol, runtime_checkable

from function_app.validation.tfrecord.native import Memory, NativeRecords

_NUM_THREADS = 2
_NUM_MEMORIES = 4
"""What both are reading, what is being looked at, and one that is ready."""


@runtime_checkable
class FileSource(Protocol):
    """A source that is an open file."""

    @property
    def chunk_bytes(self) -> int:
        """Bytes per read that suit it best."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length of the content."""
        ...

    def fileno(self) -> int:
        """Return the file's descriptor; the library reads from it by offset."""
        ...

    def check_unchanged(self) -> None:
        """Raise SourceChangedError where the file is not the same any more."""
        ...


class SoundStretch:
    """Sound records in a row: they may be looked at until the next stretch is asked for."""

    def __init__(self, memory: Memory) -> None:
        findings = memory.findings
        self.num_records = findings.num_records
        self.num_bytes = findings.num_bytes
        self.content_crc = findings.content_crc
        self.content = memory.content[: self.num_bytes]
        self._memory = memory

    def ends(self) -> list[int]:
        """Return where in the content each record ends."""
        return self._memory.ends[: self.num_records]


def sound_stretches(
    source: FileSource, start: int, native: NativeRecords, max_payload: int
) -> Iterator[SoundStretch]:
    """Yield sound records from ``start`` on, up to the end or to the first that is one for framing.py.

    Raises SourceChangedError at the end of a file that is not the same any more.
    """
    reading = _Reading(source, start, native, max_payload)
    reading.start()
    try:
        for stretch in reading.stretches():
            yield stretch
            start += stretch.num_bytes
    finally:
        reading.stop()
    if start == source.size_bytes:
        source.check_unchanged()


_Answer = SimpleQueue["Memory | BaseException"]


class _Reading:
    """The threads, and whose turn it is to say where the next stretch ends."""

    def __init__(self, source: FileSource, start: int, native: NativeRecords, max_payload: int) -> None:
        self._offset = start  # where the next stretch begins
        self._file = source.fileno()
        self._size_bytes, self._wanted = source.size_bytes, source.chunk_bytes
        self._native = native
        self._max_payload = max_payload
        self._is_over = False
        self._turn = Lock()
        self._free: SimpleQueue[Memory | None] = SimpleQueue()
        self._order: SimpleQueue[tuple[int, _Answer] | None] = SimpleQueue()
        self._threads = [Thread(target=self._read, name="read-and-check", daemon=True) for _ in range(_NUM_THREADS)]

    def start(self) -> None:
        """Begin to read."""
        for _ in range(_NUM_MEMORIES):
            self._free.put(Memory())
        for thread in self._threads:
            thread.start()

    def stretches(self) -> Iterator[SoundStretch]:
        """Yield stretch after stretch, in the file's order."""
        while (expected := self._order.get()) is not None:
            num_bytes, answer = expected
            memory = answer.get()
            if isinstance(memory, BaseException):
                raise memory
            stretch = SoundStretch(memory)
            yield stretch
            if stretch.num_bytes != num_bytes:
                return
            self._free.put(memory)

    def stop(self) -> None:
        """Wait until nothing is read any more."""
        self._is_over = True
        for _ in self._threads:
            self._free.put(None)
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        while (memory := self._free.get()) is not None:
            answer: _Answer = SimpleQueue()
            offset, num_bytes = self._take_turn(answer)
            if not num_bytes:
                return
            try:
                self._native.check(self._file, offset, num_bytes, memory, max_payload=self._max_payload)
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the answer
                answer.put(error)
                return
            answer.put(memory)

    def _take_turn(self, answer: _Answer) -> tuple[int, int]:
        """Return the next stretch's offset and bytes, none where there is none; answers are waited for in turn."""
        with self._turn:
            offset, num_bytes = self._offset, 0
            if not self._is_over:
                sizes = {"wanted": self._wanted, "max_payload": self._max_payload}
                num_bytes = self._native.find_end(self._file, offset, self._size_bytes, **sizes)
            self._offset += num_bytes
            self._order.put((num_bytes, answer) if num_bytes else None)
            return offset, num_bytes
