"""Validates shards: one in this process, several in as many processes as there are cores."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import CliError
from cli.validate.inputs import ShardInput, open_url
from shard_validation import (
    DataRequirements,
    LocalFileSource,
    Reason,
    ShardVerdict,
    SourceChangedError,
    SourceError,
    validate_shard,
)
from shard_validation.sets import with_sources
from shared.safe_text import mask_secrets
from shared.source_names import DATASET_FILE, MAX_FILE_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

Progress = Callable[[int], None]
_REPORT_BYTES = 4 << 20
"""Workers report progress in steps of this size: each report costs a message between processes."""
_POLL_S = 0.2

_progress_queue: Any = None
"""In a worker process: where it reports progress."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The result for one shard: a verdict, or the reason why there is none."""

    shard: ShardInput
    verdict: ShardVerdict | None = None
    failure: Reason | None = None

    @property
    def accepted(self) -> bool:
        """Whether the shard may be uploaded."""
        return self.verdict is not None and self.verdict.accepted

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons why it is not accepted; empty if it is."""
        if self.failure is not None:
            return (self.failure,)
        return self.verdict.reasons if self.verdict is not None else ()


def judge_all(
    shards: Sequence[ShardInput], requirements: DataRequirements | None, *, num_processes: int, progress: Progress
) -> Generator[Judged]:
    """Yield the result of each shard in their order, as soon as it is there."""
    num_processes = min(num_processes, len(shards))
    if num_processes == 1:
        yield from (judge(shard, requirements, progress) for shard in shards)
    else:
        yield from _judge_in_processes(shards, requirements, num_processes, progress)


def judge(shard: ShardInput, requirements: DataRequirements | None, progress: Progress) -> Judged:
    """Validate one shard."""
    try:
        if shard.is_url:
            return Judged(
                shard=shard, verdict=validate_shard(open_url(shard.location), requirements, progress=progress)
            )
        path = Path(shard.location)
        with LocalFileSource(path) as source:
            opened = _inode(path)
            verdict = validate_shard(source, requirements, progress=progress)
        if _inode(path) != opened:  # the source notices writes into its file, but not another file in its place
            raise SourceChangedError(f"{path}: the file was replaced or removed while it was read; validate it again")
        return Judged(shard=shard, verdict=_with_sources(verdict, path))
    except SourceError as error:
        reason = error.reason(shard.label)
        return Judged(shard=shard, failure=dataclasses.replace(reason, message=mask_secrets(reason.message)))


def _with_sources(verdict: ShardVerdict, path: Path) -> ShardVerdict:
    """Name the sources of rejected records, if dataset.json next to the shard knows them."""
    if verdict.accepted:
        return verdict
    try:
        with path.with_name(DATASET_FILE).open("rb") as file:
            return with_sources(verdict, path.name, file.read(MAX_FILE_BYTES + 1))
    except OSError:
        return verdict  # there is none, or it cannot be read: --complete reports that


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _judge_in_processes(
    shards: Sequence[ShardInput], requirements: DataRequirements | None, num_processes: int, progress: Progress
) -> Generator[Judged]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, wait

    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_start_worker, initargs=(reports,))
    with _forwarding(reports, progress), _ended_at_once(pool):
        with _sigint_blocked():
            futures: list[Future[Judged]] = [pool.submit(_judge_in_worker, s, requirements) for s in shards]
        num_alive = 0
        for future in futures:
            while not wait([future], _POLL_S).done:
                num_alive = _count_workers(num_alive)
            yield future.result()


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all of them: this process decides."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _count_workers(num_before: int) -> int:
    """Return the number of worker processes. Raises BrokenProcessPool if one has ended: the pool may not notice."""
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool

    num_alive = len(multiprocessing.active_children())
    if num_alive < num_before:
        raise BrokenProcessPool(f"{num_before - num_alive} of {num_before} processes ended")
    return num_alive


@contextlib.contextmanager
def _ended_at_once(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Wait for the workers at the normal end; kill them at any other. Raises CliError if one died."""
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BaseException as error:  # Ctrl-C and a closed pipe too: the shards under way may take hours
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
        if isinstance(error, BrokenProcessPool):
            hint = "A validating process was killed, perhaps for lack of memory: try again with --processes 1."
            raise CliError(hint) from error
        raise
    pool.shutdown()  # waits, since a process that is only just starting still reads the queue of reports


@contextlib.contextmanager
def _forwarding(reports: Any, progress: Progress) -> Iterator[None]:
    """Pass the workers' reports on to `progress`, from a thread, until they all have been passed on."""
    import queue
    import threading

    over = threading.Event()

    def forward() -> None:
        while True:
            try:
                progress(reports.get(timeout=_POLL_S))
            except queue.Empty:
                if over.is_set():
                    return

    thread = threading.Thread(target=forward, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _start_worker(reports: Any) -> None:
    from local_azure.guard import die_with_parent

    global _progress_queue  # noqa: PLW0603 - the only way for a worker to keep what its initializer gets
    die_with_parent()
    _progress_queue = reports


def _judge_in_worker(shard: ShardInput, requirements: DataRequirements | None) -> Judged:
    unreported = 0

    def progress(num_bytes: int) -> None:
        nonlocal unreported
        unreported += num_bytes
        if unreported >= _REPORT_BYTES:
            _progress_queue.put(unreported)
            unreported = 0

    judged = judge(shard, requirements, progress)
    _progress_queue.put(unreported)
    return judged
