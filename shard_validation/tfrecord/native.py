"""The library that checks sound records without the interpreter's lock, where there is one.

It is built by tools/native_library.py, for processors that multiply without carry. Its name holds a digest of its
source, so that one that was built from another is not found.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from functools import cache
from mmap import mmap
from pathlib import Path

SOURCE = Path(__file__).with_name("sound_records.c")
ROOM_BYTES = 8 << 20
"""Memory for one stretch; what is not read into takes none. Longer records are left to framing.py."""
_MAX_RECORDS = 16_384
"""Of one stretch: small ones would make a list of their ends that is larger than they are."""


class Findings(ctypes.Structure):
    """What the library found in a stretch, as sound_records.c declares it."""

    num_records: int
    num_bytes: int
    """Of the sound records, with their framing."""
    content_crc: int
    """The CRC32C of those bytes."""
    _fields_ = (("num_records", ctypes.c_uint64), ("num_bytes", ctypes.c_uint64), ("content_crc", ctypes.c_uint32))


class Memory:
    """Where one stretch is read to, and what was found in it; filled again and again."""

    def __init__(self) -> None:
        # Begins where a page does: AMD's Zen copies to other places at a quarter of the speed.
        self._room = mmap(-1, ROOM_BYTES)
        self.content = memoryview(self._room).toreadonly()
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        self.ends = (ctypes.c_uint32 * _MAX_RECORDS)()
        """Where each sound record ends, trailer included."""
        self.findings = Findings()


class NativeRecords:
    """The library's two functions. They let go of the interpreter's lock while they work."""

    def __init__(self, library: ctypes.CDLL) -> None:
        u64 = ctypes.c_uint64
        self._find_end, self._check = library.landfall_find_end, library.landfall_check
        self._find_end.argtypes = (ctypes.c_int, u64, u64, u64, u64, u64, u64)
        self._find_end.restype = u64
        pointers = (ctypes.c_void_p, ctypes.c_void_p)
        self._check.argtypes = (ctypes.c_int, u64, u64, ctypes.c_void_p, u64, u64, *pointers)
        self._check.restype = None

    def find_end(self, file: int, offset: int, size: int, *, wanted: int, max_payload: int) -> int:
        """Return how many bytes of whole records follow ``offset``, at least ``wanted`` where there are so many.

        Lengths are believed; 0 where the first record is one for framing.py. ``size`` is that of the file.
        """
        found: int = self._find_end(file, offset, size, wanted, ROOM_BYTES, max_payload, _MAX_RECORDS)
        return found

    def check(self, file: int, offset: int, num_bytes: int, memory: Memory, *, max_payload: int) -> None:
        """Read a stretch, and write into ``memory`` how many of its first records are sound."""
        ends, findings = ctypes.addressof(memory.ends), ctypes.addressof(memory.findings)
        self._check(file, offset, num_bytes, memory.address, max_payload, _MAX_RECORDS, ends, findings)


def library_path() -> Path:
    """Return where the library of this source is, if it was built: beside it."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return SOURCE.with_name(f"_{SOURCE.stem}-{sys.platform}-{digest}.so")


@cache
def native_records() -> NativeRecords | None:
    """Return the library, or None where Python has to do."""
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError:
        return None
    return NativeRecords(library) if library.landfall_is_supported() else None
