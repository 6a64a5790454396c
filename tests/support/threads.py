"""Calls that start at the same moment, to test races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from local_azure.processes import PATIENCE_S

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run every call in its own thread, all released by one barrier; return their results in order."""
    barrier = threading.Barrier(len(calls))

    def meet_and(call: Callable[[], T]) -> T:
        barrier.wait(timeout=PATIENCE_S)
        return call()

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return list(pool.map(meet_and, calls))
