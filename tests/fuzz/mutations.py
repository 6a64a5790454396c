"""Random damage to bytes, the same for the same seed, within a budget of time."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence

BUDGET_S = float(os.environ.get("FUZZ_SECONDS", "2"))
"""Of each test. More seconds reach more seeds: ``FUZZ_SECONDS=600 pytest tests/fuzz``."""
FIRST_SEED = int(os.environ.get("FUZZ_SEED", "0"))
_INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"PAR1", b"\x19\xfc")
_MAX_EDITS = 4
_MAX_RUN = 64


def seeds() -> Iterator[random.Random]:
    """Yield one generator after the other until the budget is spent; its ``seed`` is said in failures."""
    end = time.monotonic() + BUDGET_S
    seed = FIRST_SEED
    while time.monotonic() < end:
        yield random.Random(seed)  # noqa: S311 - damage, not a secret
        seed += 1


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return the content with some bytes changed, cut, doubled or put in."""
    broken = bytearray(content)
    for _ in range(chance.randint(1, _MAX_EDITS)):
        position = chance.randrange(len(broken) + 1)
        length = min(chance.randint(1, _MAX_RUN), len(broken) - position)
        kind = chance.randrange(6)
        if kind == 0 and position < len(broken):
            broken[position] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del broken[position : position + length]
        elif kind == 2:
            broken[position:position] = broken[position : position + length]
        elif kind == 3:
            del broken[position:]
        elif kind == 4:
            patch = chance.choice(_INTERESTING)
            broken[position : position + len(patch)] = patch
        else:
            broken[position:position] = chance.randbytes(chance.randint(1, 16))
    return bytes(broken)


def one_of(contents: Sequence[bytes], chance: random.Random) -> bytes:
    """Return one of several sound contents."""
    return contents[chance.randrange(len(contents))]
