"""Reading a file by two threads that each check what they read: records, as long as they are sound.

One core cannot copy a file out of the page cache as fast as two can check it, and a thread that needs the interpreter
for each record keeps another from its own; so both do all of it in native.py, which needs it once for a stretch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol, runtime_checkable

from shard_validation.tfrecord.native import Memory, NativeRecords
from shared.record_framing import FRAME_OVERHEAD_BYTES

_NUM_HELD = 2
"""Stretches that each of the two threads may have read before the first of them was looked at."""
_LARGE_BYTES = 16 << 10
"""Smaller examples are looked at faster by the thread that has just taken their CRC: its cache has them."""


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
    """Sound records in a row."""

    def __init__(self, memory: Memory, free: Callable[[Memory], object]) -> None:
        findings = memory.findings
        self.num_records = findings.num_records
        self.num_bytes = findings.num_bytes
        self.num_payload_bytes = self.num_bytes - FRAME_OVERHEAD_BYTES * self.num_records
        self.content_crc = findings.content_crc
        self._memory: Memory | None = memory
        self._free = free

    def let_go(self) -> None:
        """Have the memory filled anew; the first time counts."""
        if self._memory is not None:
            memory, self._memory = self._memory, None
            self._free(memory)

    def content(self) -> memoryview:
        """Return the records with their framing, where they are held: until the next stretch is asked for."""
        return self._held().content[: self.num_bytes]

    def ends(self) -> list[int]:
        """Return where in the content each record ends."""
        return self._held().ends[: self.num_records]

    def _held(self) -> Memory:
        if self._memory is None:
            raise ValueError("a stretch should be held to be looked at")
        return self._memory


def sound_stretches(
    source: FileSource, start: int, native: NativeRecords, *, max_payload: int, held: bool
) -> Iterator[SoundStretch]:
    """Yield sound records from ``start`` on, up to the end or to the first that is one for framing.py.

    ``held`` is for those who look at them; where the first is small there are none then. Raises SourceChangedError
    at the end of a file that is not the same any more.
    """
    reading = _Reading(source, start, native, max_payload, held=held)
    if held and reading.find_end(wanted=1) < _LARGE_BYTES:
        return
    try:
        for stretch in reading.stretches():
            yield stretch
            start += stretch.num_bytes
    finally:
        reading.stop()
    if start == source.size_bytes:
        source.check_unchanged()


class _Turn:
    """A stretch that somebody is reading, or has read."""

    def __init__(self, offset: int, num_bytes: int) -> None:
        self.offset = offset
        self.num_bytes = num_bytes
        self._answer: SimpleQueue[SoundStretch | BaseException] = SimpleQueue()

    def is_ready(self) -> bool:
        """Whether it was read."""
        return not self._answer.empty()

    def end(self, answer: SoundStretch | BaseException) -> None:
        """State what was read, or why nothing was."""
        self._answer.put(answer)

    def stretch(self) -> SoundStretch:
        """Wait for it. Raises what reading it raised."""
        answer = self._answer.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _Reading:
    """A helper, which reads and checks as long as it has memory, and who asks, who does so while nothing is ready.

    A third thread that only looks at what two have read would take a core from one of them each time it wakes up.
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
        self._is_over = False
        self._turns: deque[_Turn] = deque()
        self._taking_turns = Lock()
        num_memories = _NUM_HELD if held else 1
        self._own = [Memory() for _ in range(num_memories)]
        self._helpers: SimpleQueue[Memory | None] = SimpleQueue()
        for _ in range(num_memories):
            self._helpers.put(Memory())
        self._thread = Thread(target=self._help, name="read-and-check", daemon=True)

    def stretches(self) -> Iterator[SoundStretch]:
        """Yield stretch after stretch, in the file's order."""
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
            stretch.let_go()

    def stop(self) -> None:
        """Wait until nothing is read any more."""
        self._is_over = True
        self._helpers.put(None)
        self._thread.join()

    def find_end(self, wanted: int) -> int:
        """Return how many bytes the next stretch has, 0 where there is none."""
        return self._native.find_end(
            self._file, self._offset, self._size_bytes, wanted=wanted, max_payload=self._max_payload
        )

    def _help(self) -> None:
        while (memory := self._helpers.get()) is not None and (turn := self._take_turn()) is not None:
            self._check(turn, memory, self._helpers.put)

    def _take_turn(self) -> _Turn | None:
        """Return the next stretch, which whoever asks has to read; None where there is none."""
        with self._taking_turns:
            num_bytes = 0 if self._is_over else self.find_end(self._wanted)
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
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the stretch
            turn.end(error)
            return
        if not self._held:
            stretch.let_go()
        turn.end(stretch)
