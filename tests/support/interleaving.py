"""Deterministic concurrency: handlers take turns at every call of a port, in a chosen order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PATIENCE_S = 600.0
"""A turn takes microseconds, but on a busy machine the other handlers' turns may take minutes."""


class Turns:
    """Runs handlers in threads, of which only one runs at any moment."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._left: list[int] = []
        self._back = _taken()

    def around(self, call: object, make: Callable[[], Any]) -> Any:
        """Let another handler take its turn before the call is made, if there is another one."""
        del call
        go: threading.Lock | None = getattr(self._own, "go", None)
        if go is not None and len(self._left) > 1:
            self._back.release()
            _acquire(go)
        return make()

    def run(self, handlers: Sequence[Callable[[], object]], order: Iterable[int]) -> list[BaseException]:
        """Run all handlers to their ends; ``order`` yields the number of the next one. Returns what they raised."""
        goes = [_taken() for _ in handlers]
        raised: list[BaseException] = []
        left = self._left = list(range(len(handlers)))

        def body(number: int) -> None:
            self._own.go = goes[number]
            _acquire(goes[number])
            try:
                handlers[number]()
            except BaseException as error:  # noqa: BLE001 (whatever it is, the caller gets it)
                raised.append(error)
            left.remove(number)
            self._back.release()

        threads = [threading.Thread(target=body, args=(number,), daemon=True) for number in left]
        for thread in threads:
            thread.start()
        choices = iter(order)
        while left:
            goes[left[next(choices, 0) % len(left)]].release()
            _acquire(self._back)
        for thread in threads:
            thread.join(PATIENCE_S)
        return raised


def _taken() -> threading.Lock:
    """Return a lock that another thread may release; `threading.Semaphore` is three times as slow."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def _acquire(lock: threading.Lock) -> None:
    if not lock.acquire(timeout=PATIENCE_S):
        raise TimeoutError(f"a handler waited {PATIENCE_S} s for its turn")
