"""Random damage to bytes: the same for the same seed, and a fixed number of seeds for each test."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

import pytest

SEEDS_PER_BLOCK = int(os.environ.get("FUZZ_SEEDS", "200"))
"""To look for more: ``FUZZ_SEEDS=100000 .venv/bin/python -m pytest tests/fuzz``."""
FIRST_SEED = int(os.environ.get("FUZZ_FIRST_SEED", "0"))
NUM_BLOCKS = 10
BLOCKS = [pytest.param(i, marks=[pytest.mark.slow] if i else []) for i in range(NUM_BLOCKS)]
"""The first block is in the gate; the others are slow."""
_INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"PAR1", b"\x19\xfc")
_MAX_EDITS = 4
_MAX_RUN = 64


def for_every_seed(test: Callable[[random.Random], None]) -> Callable[[int], None]:
    """Turn a test of one seed into a test of a block of seeds; a failure names its seed."""

    @pytest.mark.parametrize("block", BLOCKS)
    def run(block: int) -> None:
        first = FIRST_SEED + block * SEEDS_PER_BLOCK
        for seed in range(first, first + SEEDS_PER_BLOCK):
            try:
                test(random.Random(seed))  # noqa: S311 - damage, not a secret
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return the content with some bytes changed, removed, repeated or inserted."""
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
