"""A name for a demo's dataset version that no other demo has used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime


def new_version(now: datetime, is_taken: Callable[[str], bool]) -> str:
    """Return a name made of the time, to the second; with a number behind it where that one is taken."""
    name = now.strftime("%Y%m%d-%H%M%S")
    number = 2
    candidate = name
    while is_taken(candidate):
        candidate, number = f"{name}-{number}", number + 1
    return candidate
