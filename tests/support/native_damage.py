"""A program that passes damaged files to a native library, each stretch in a buffer of exactly its size.

    python -m tests.support.native_damage LIBRARY SCRATCH_FILE

Prints how many stretches there were. With a library and an interpreter under AddressSanitizer this finds every byte
that is accessed outside of them.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from pathlib import Path

from shard_validation.tfrecord.native import Findings
from tests.fuzz.mutations import damaged
from tests.support.shards import framed

_NUM_FILES = 150
_MAX_RECORDS = 7


def main(library: ctypes.CDLL, path: Path) -> int:
    """Read files as native.py does; return the number of stretches."""
    library.landfall_find_end.restype = ctypes.c_uint64
    stretches = 0
    for seed in range(_NUM_FILES):
        chance = random.Random(seed)  # noqa: S311 - damage, not a secret
        sound = framed([chance.randbytes(chance.choice([1, 9, 300, 1023, 1024, 5000])) for _ in range(12)])
        path.write_bytes(damaged(sound, chance))
        file = os.open(path, os.O_RDONLY)
        stretches += _read(library, file, path.stat().st_size, chance)
        os.close(file)
    return stretches


def _read(library: ctypes.CDLL, file: int, size: int, chance: random.Random) -> int:
    u64 = ctypes.c_uint64
    offset = stretches = 0
    findings = Findings()
    while True:
        wanted, room, longest = chance.choice([1, 900, 9000]), chance.choice([100, 6000, 1 << 20]), u64(1 << 31)
        num_bytes = library.landfall_find_end(
            file, u64(offset), u64(size), u64(wanted), u64(room), longest, u64(_MAX_RECORDS)
        )
        if not num_bytes:
            return stretches
        read = chance.randint(1, num_bytes)  # as if the file had changed between the two calls
        memory, ends = ctypes.create_string_buffer(read), (ctypes.c_uint32 * _MAX_RECORDS)()
        library.landfall_check(
            file,
            u64(offset),
            u64(read),
            memory,
            longest,
            u64(_MAX_RECORDS),
            ctypes.byref(ends),
            ctypes.byref(findings),
        )
        stretches += 1
        offset += num_bytes


if __name__ == "__main__":
    sys.stdout.write(f"{main(ctypes.CDLL(sys.argv[1]), Path(sys.argv[2]))}\n")
