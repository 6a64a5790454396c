"""Linux process control that Python does not wrap: dying with the parent, and adopting orphans."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}): {os.strerror(ctypes.get_errno())}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process `signal_number` when its parent ends, however that happens."""
    _prctl(PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Make this process the new parent of every descendant whose own parent ends, so none gets away."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
