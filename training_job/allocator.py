"""How many arenas glibc's malloc spreads this process's memory over."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

_M_ARENA_MAX = -8
"""As malloc.h has it."""


def limit_arenas(number: int, environment: Mapping[str, str] = os.environ) -> None:
    """Let all threads share so many arenas, unless the caller's environment states how many.

    Every epoch starts threads of its own that read and decode, glibc gives each the arena that happens to be free, up
    to eight for every core, and what was freed in one arena is used by no other: a rank grew with every epoch until
    each arena had been as large as an epoch needs, over a thousand of them. Later is too late: threads keep the
    arenas that they have.
    """
    if "MALLOC_ARENA_MAX" in environment or "glibc.malloc.arena_max" in environment.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no arenas
        mallopt(_M_ARENA_MAX, number)
