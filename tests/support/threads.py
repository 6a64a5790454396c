"""Calls that begin at the same moment, to find out who wins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from local_azure.processes import PATIENCE_S

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run every call in a thread of its own, all from one barrier; return what they returned, in their order."""
    barrier = threading.Barrier(len(calls))

    def meet_and(call: Callable[[], T]) -> T:
        barrier.wait(timeout=PATIENCE_S)
        return call()

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return list(pool.map(meet_and, calls))
