"""Judging shards: one in this process, several in as many processes as there are cores."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cli.safe_text import without_secrets
from cli.validate.inputs import ShardInput, open_url
from local_azure.guard import die_with_parent
from shard_validation import (
    DataRequirements,
    LocalFileSource,
    Reason,
    ShardVerdict,
    SourceChangedError,
    SourceError,
    validate_shard,
)

Progress = Callable[[int], None]
_REPORT_BYTES = 4 << 20
"""Progress is told in steps of this size: a queue between processes is not free."""
_POLL_S = 0.2

_progress_queue: Any = None
"""In a worker process: where progress goes."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What became of one shard: a verdict, or why there is none."""

    shard: ShardInput
    verdict: ShardVerdict | None = None
    failure: Reason | None = None

    @property
    def accepted(self) -> bool:
        """Whether it may be uploaded."""
        return self.verdict is not None and self.verdict.accepted

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why not."""
        if self.failure is not None:
            return (self.failure,)
        return self.verdict.reasons if self.verdict is not None else ()


def judge(shard: ShardInput, requirements: DataRequirements | None, progress: Progress) -> Judged:
    """Judge one shard."""
    try:
        if shard.is_url:
            return Judged(
                shard=shard, verdict=validate_shard(open_url(shard.location), requirements, progress=progress)
            )
        path = Path(shard.location)
        with LocalFileSource(path) as source:
            opened = _inode(path)
            verdict = validate_shard(source, requirements, progress=progress)
        if _inode(path) != opened:  # the source notices what is written into its file, not another in its place
            raise SourceChangedError(f"{path}: the file was replaced or removed while it was read; validate it again")
        return Judged(shard=shard, verdict=verdict)
    except SourceError as error:
        reason = error.reason(shard.label)
        return Judged(shard=shard, failure=dataclasses.replace(reason, message=without_secrets(reason.message)))


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def judge_all(
    shards: Sequence[ShardInput], requirements: DataRequirements | None, *, num_processes: int, progress: Progress
) -> Generator[Judged]:
    """Yield the shards' verdicts in their order, as they come."""
    num_processes = min(num_processes, len(shards))
    if num_processes == 1:
        yield from (judge(shard, requirements, progress) for shard in shards)
        return
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_begin, initargs=(told,))
    with _listening(told, progress), _ended_at_once(pool):
        with _sigint_blocked():
            futures: list[Future[Judged]] = [pool.submit(_judge_in_worker, s, requirements) for s in shards]
        num_alive = 0
        for future in futures:
            while not wait([future], _POLL_S).done:
                num_alive = _alive(num_alive)
            yield future.result()


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Let processes begin that Ctrl-C, which a terminal sends to all, does not reach: the first one decides."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _alive(num_before: int) -> int:
    """Count this process's children. Raises BrokenProcessPool for fewer than before: the pool may miss that."""
    num_alive = len(multiprocessing.active_children())
    if num_alive < num_before:
        raise BrokenProcessPool(f"{num_before - num_alive} of {num_before} processes ended")
    return num_alive


@contextlib.contextmanager
def _ended_at_once(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Wait for the processes at the end, but not where it comes early. Raises CliError where one died."""
    try:
        yield
    except BaseException as error:  # also Ctrl-C, and a reader that has gone: the shards under way may take hours
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
        if isinstance(error, BrokenProcessPool):
            hint = "A process that judged shards was killed, perhaps for lack of memory: try again with --jobs 1."
            raise CliError(hint) from error
        raise
    pool.shutdown()  # waits: a process that has only just started would miss what it is told through


class _listening:  # noqa: N801 - a context manager, used as a function
    """Hands on what workers tell, from a thread."""

    def __init__(self, told: Any, progress: Progress) -> None:
        self._told = told
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _listen(self) -> None:
        while True:
            try:
                self._progress(self._told.get(timeout=_POLL_S))
            except queue.Empty:
                if self._over.is_set():
                    return


def _begin(told: Any) -> None:
    global _progress_queue  # noqa: PLW0603 - a worker's only way to keep what its initializer was given
    die_with_parent()
    _progress_queue = told


def _judge_in_worker(shard: ShardInput, requirements: DataRequirements | None) -> Judged:
    untold = 0

    def progress(num_bytes: int) -> None:
        nonlocal untold
        untold += num_bytes
        if untold >= _REPORT_BYTES:
            _progress_queue.put(untold)
            untold = 0

    judged = judge(shard, requirements, progress)
    _progress_queue.put(untold)
    return judged
