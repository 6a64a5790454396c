"""Figures and names as people read them."""

from __future__ import annotations

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in the largest unit that it fills."""
    for unit, size in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def one_line(name: str) -> str:
    """Return a path whole, but on one line and without what a terminal would obey."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
