"""Optional accelerator: two threads read a local file and check its records in C, as long as the records are sound.

One core cannot copy a file out of the page cache as fast as two can check it, and a thread that needs the interpreter
lock for every record blocks the other. So both threads call the C library, sound_records.c, which needs the lock once
per stretch of records and releases it while it works. tools/native_library.py builds the library, for processors with
carry-less multiplication; without it framing.py does all the work, with the same verdicts. The name of the library
contains a digest of its source, so a library built from another version is never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol, runtime_checkable

from shared.record_framing import FRAME_OVERHEAD_BYTES

SOURCE = Path(__file__).with_name("sound_records.c")
ROOM_BYTES = 8 << 20
"""Address space for one stretch; unused pages take no memory. framing.py checks longer records."""
_MAX_RECORDS = 16_384
"""Records in one stretch: with small records, the list of their ends would outgrow the records."""
_NUM_HELD = 2
"""Stretches that each thread may read before the first of them was checked."""


@runtime_checkable
class FileSource(Protocol):
    """A source that is an open file."""

    @property
    def chunk_bytes(self) -> int:
        """Preferred bytes per read."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length of the content."""
        ...

    def fileno(self) -> int:
        """Return the file descriptor, from which the library reads by offset."""
        ...

    def check_unchanged(self) -> None:
        """Raise SourceChangedError if the file has changed."""
        ...


class SoundStretch:
    """Consecutive sound records."""

    def __init__(self, memory: Memory, free: Callable[[Memory], object]) -> None:
        findings = memory.findings
        self.num_records = findings.num_records
        self.num_bytes = findings.num_bytes
        self.num_payload_bytes = self.num_bytes - FRAME_OVERHEAD_BYTES * self.num_records
        self.content_crc = findings.content_crc
        self._memory: Memory | None = memory
        self._free = free

    def release(self) -> None:
        """Return the memory for reuse; only the first call has an effect."""
        if self._memory is not None:
            memory, self._memory = self._memory, None
            self._free(memory)

    def content(self) -> memoryview:
        """Return the records with their framing, valid until the next stretch is requested."""
        return self._held().content[: self.num_bytes]

    def ends(self) -> list[int]:
        """Return the end of each record, as positions in the content."""
        return self._held().ends[: self.num_records]

    def _held(self) -> Memory:
        if self._memory is None:
            raise ValueError("the stretch was released; request it with held=True")
        return self._memory


def sound_stretches(
    source: FileSource, start: int, native: NativeRecords, *, max_payload: int, held: bool
) -> Iterator[SoundStretch]:
    """Yield sound records from ``start`` to the end, or to the first record that framing.py must check.

    ``held`` keeps their content for the caller. Raises SourceChangedError at the end of a file that has changed.
    """
    reading = _Reading(source, start, native, max_payload, held=held)
    try:
        for stretch in reading.stretches():
            yield stretch
            start += stretch.num_bytes
    finally:
        reading.stop()
    if start == source.size_bytes:
        source.check_unchanged()


class _Turn:
    """A stretch that a thread is reading, or has read."""

    def __init__(self, offset: int, num_bytes: int) -> None:
        self.offset = offset
        self.num_bytes = num_bytes
        self._answer: SimpleQueue[SoundStretch | BaseException] = SimpleQueue()

    def is_ready(self) -> bool:
        """Whether reading it has ended."""
        return not self._answer.empty()

    def end(self, answer: SoundStretch | BaseException) -> None:
        """Set what was read, or the error."""
        self._answer.put(answer)

    def stretch(self) -> SoundStretch:
        """Wait for the stretch. Raises the error of reading it."""
        answer = self._answer.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _Reading:
    """A worker thread that reads and checks while it has memory; the consumer does the same while it would wait.

    With a third thread that only consumes, each wake-up would take a core from one of the two that read.
    """

    def __init__(
        self, source: FileSource, start: int, native: NativeRecords, max_payload: int, *, held: bool
    ) -> None:
        self._offset = start  # where the next turn begins
        self._file = source.fileno()
        self._size_bytes, self._wanted = source.size_bytes, source.chunk_bytes
        self._native = native
        self._max_payload = max_payload
        self._held = held
        self._is_stopped = False
        self._turns: deque[_Turn] = deque()
        self._taking_turns = Lock()
        num_memories = _NUM_HELD if held else 1
        self._own = [Memory() for _ in range(num_memories)]
        self._of_worker: SimpleQueue[Memory | None] = SimpleQueue()
        for _ in range(num_memories):
            self._of_worker.put(Memory())
        self._thread = Thread(target=self._work, name="read-and-check", daemon=True)

    def stretches(self) -> Iterator[SoundStretch]:
        """Yield the stretches in the order of the file."""
        self._thread.start()
        while True:
            turn = self._turns[0] if self._turns else None
            if self._own and (turn is None or not turn.is_ready()) and (own := self._take_turn()):
                self._check(own, self._own.pop(), self._own.append)
                continue
            if not self._turns:
                return
            turn = self._turns.popleft()
            stretch = turn.stretch()
            yield stretch
            if stretch.num_bytes != turn.num_bytes:
                return
            stretch.release()

    def stop(self) -> None:
        """Wait until the worker has ended."""
        self._is_stopped = True
        self._of_worker.put(None)
        self._thread.join()

    def find_end(self, wanted: int) -> int:
        """Return the size of the next stretch in bytes, 0 if there is none."""
        return self._native.find_end(
            self._file, self._offset, self._size_bytes, wanted=wanted, max_payload=self._max_payload
        )

    def _work(self) -> None:
        while (memory := self._of_worker.get()) is not None and (turn := self._take_turn()) is not None:
            self._check(turn, memory, self._of_worker.put)

    def _take_turn(self) -> _Turn | None:
        """Return the next stretch, which the caller must read; None if there is none."""
        with self._taking_turns:
            num_bytes = 0 if self._is_stopped else self.find_end(self._wanted)
            if not num_bytes:
                return None
            turn = _Turn(self._offset, num_bytes)
            self._offset += num_bytes
            self._turns.append(turn)
            return turn

    def _check(self, turn: _Turn, memory: Memory, free: Callable[[Memory], object]) -> None:
        try:
            self._native.check(self._file, turn.offset, turn.num_bytes, memory, max_payload=self._max_payload)
            stretch = SoundStretch(memory, free)
        except BaseException as error:  # noqa: BLE001 - raised again where the stretch is awaited
            turn.end(error)
            return
        if not self._held:
            stretch.release()
        turn.end(stretch)


class Findings(ctypes.Structure):
    """The library's findings in a stretch, as declared in sound_records.c."""

    num_records: int
    num_bytes: int
    """Bytes of the sound records, with their framing."""
    content_crc: int
    """The CRC32C of those bytes."""
    _fields_ = (("num_records", ctypes.c_uint64), ("num_bytes", ctypes.c_uint64), ("content_crc", ctypes.c_uint32))


class Memory:
    """Memory for one stretch and what was found in it; reused."""

    def __init__(self) -> None:
        # Page-aligned: AMD's Zen copies to unaligned addresses at a quarter of the speed.
        self._room = mmap(-1, ROOM_BYTES)
        self.content = memoryview(self._room).toreadonly()
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        self.ends = (ctypes.c_uint32 * _MAX_RECORDS)()
        """End of each sound record, including its trailer."""
        self.findings = Findings()


class NativeRecords:
    """The two functions of the library. They release the interpreter lock while they work."""

    def __init__(self, library: ctypes.CDLL) -> None:
        u64 = ctypes.c_uint64
        self._find_end, self._check = library.landfall_find_end, library.landfall_check
        self._find_end.argtypes = (ctypes.c_int, u64, u64, u64, u64, u64, u64)
        self._find_end.restype = u64
        pointers = (ctypes.c_void_p, ctypes.c_void_p)
        self._check.argtypes = (ctypes.c_int, u64, u64, ctypes.c_void_p, u64, u64, *pointers)
        self._check.restype = None

    def find_end(self, file: int, offset: int, size: int, *, wanted: int, max_payload: int) -> int:
        """Return how many bytes of whole records follow ``offset``: at least ``wanted``, if there are that many.

        Lengths are not verified. 0 means that framing.py must check the first record. ``size`` is the file's.
        """
        found: int = self._find_end(file, offset, size, wanted, ROOM_BYTES, max_payload, _MAX_RECORDS)
        return found

    def check(self, file: int, offset: int, num_bytes: int, memory: Memory, *, max_payload: int) -> None:
        """Read a stretch, and write into ``memory`` how many of its first records are sound."""
        ends, findings = ctypes.addressof(memory.ends), ctypes.addressof(memory.findings)
        self._check(file, offset, num_bytes, memory.address, max_payload, _MAX_RECORDS, ends, findings)


def library_path() -> Path:
    """Return the path of the library built from this source, next to the source, whether it exists or not."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return SOURCE.with_name(f"_{SOURCE.stem}-{sys.platform}-{digest}.so")


@cache
def native_records() -> NativeRecords | None:
    """Return the library, or None if framing.py must do all the work."""
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError:
        return None
    return NativeRecords(library) if library.landfall_is_supported() else None
