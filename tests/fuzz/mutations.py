"""Random damage to bytes, the same for the same seed, in blocks of seeds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence

import pytest

SEEDS_OF_A_BLOCK = int(os.environ.get("FUZZ_SEEDS", "200"))
"""More of them: ``FUZZ_SEEDS=100000 .venv/bin/python -m pytest tests/fuzz``."""
FIRST_SEED = int(os.environ.get("FUZZ_FIRST_SEED", "0"))
BLOCKS_OF_ALL = 10
"""The first block is part of the gate; the others are slow."""

in_blocks = pytest.mark.parametrize(
    "block", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, BLOCKS_OF_ALL))]
)
"""Marks a test that takes the number of a block, and draws from ``draws``."""


def draws(block: int) -> Iterator[random.Random]:
    """Yield one generator for each seed of a block."""
    first = FIRST_SEED + block * SEEDS_OF_A_BLOCK
    for seed in range(first, first + SEEDS_OF_A_BLOCK):
        yield random.Random(seed)  # noqa: S311 (damage, not a secret)


_INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"PAR1", b"\x19\xfc")
_MAX_EDITS = 4
_MAX_RUN = 64


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
