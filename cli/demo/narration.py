"""Narrates a demo: one sentence for each change between two observations, printed with the seconds since the start.

`sentences` is pure; `cli.demo.following` makes the observations.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console

from cli.screen import wrapped
from shared.progress import Progress
from shared.safe_text import counted

RUN_STATES = {
    "planned": "the run is planned",
    "submitting": "the run is being submitted",
    "submitted": "the job is submitted: Azure ML has it",
    "queued": "the job is queued: it waits for its nodes",
    "running": "the job is running: mpirun started its ranks, which load TensorFlow",
    "completed": "the training has completed",
    "failed": "the run has failed",
    "canceled": "the run was canceled",
    "suppressed": "the run was not submitted",
    "lost": "the run is lost: Azure ML does not know its job",
    "registered": "the gate holds",
    "not_registered": "the gate does not hold",
}
"""A run's state in the ledger → its sentence."""
TIME_COLUMNS = 10
"""Columns of the seconds and the space after them."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run, as the HTTP API shows it."""

    run_id: str
    state: str
    reason: str | None = None
    model: str | None = None
    """``name version n`` once registered."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The state at one moment, as far as the narration uses it."""

    accepted: int = 0
    expected: int = 0
    """Number of shards uploaded."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Shard → first reason."""
    fingerprint: str | None = None
    """None while the version is open."""
    num_records: int | None = None
    run: RunView | None = None
    awaited: tuple[str, ...] = ()
    """What a run that stays planned waits for: usually its turn."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """State → number of nodes of the cluster."""
    progress: tuple[Progress, ...] = ()
    """All lines of progress so far."""
    notified: tuple[str, ...] = ()
    """Recipients that have received a notification, in order."""


def sentences(before: Observation, now: Observation) -> Iterator[str]:
    """Yield a sentence for each change between two observations."""
    yield from _shards(before, now)
    yield from _version(before, now)
    yield from _nodes(before, now)
    # One observation often brings both the last epochs and the end of the run: the training comes first.
    yield from (_epoch(progress) for progress in now.progress[len(before.progress) :])
    yield from _run(before, now)
    yield from (f"the run waits for {text}" for text in now.awaited if text not in before.awaited)
    yield from (f"notified: {recipient}" for recipient in now.notified[len(before.notified) :])


def _shards(before: Observation, now: Observation) -> Iterator[str]:
    if now.accepted != before.accepted:
        yield f"shards validated: {now.accepted} of {now.expected} accepted"
    for name in sorted(set(now.rejected) - set(before.rejected)):
        yield f"shard rejected: {name}: {now.rejected[name]}"


def _version(before: Observation, now: Observation) -> Iterator[str]:
    if now.fingerprint and now.fingerprint != before.fingerprint:
        yield f"the dataset version is complete: {now.num_records:,} records, fingerprint {now.fingerprint[:12]}"


def _nodes(before: Observation, now: Observation) -> Iterator[str]:
    if now.nodes == before.nodes:
        return
    starting, up = now.nodes.get("preparing", 0), now.nodes.get("idle", 0) + now.nodes.get("running", 0)
    was_up = before.nodes.get("idle", 0) + before.nodes.get("running", 0)
    if starting and starting != before.nodes.get("preparing", 0):
        yield f"cluster: {counted(up, 'node')} up, {starting} starting"
    elif up > was_up:
        yield f"cluster: {counted(up, 'node')} up"


def _run(before: Observation, now: Observation) -> Iterator[str]:
    if now.run is None or now.run == before.run:
        return
    if before.run is None or before.run.run_id != now.run.run_id:
        yield f"run: {now.run.run_id}"
    if before.run is None or before.run.state != now.run.state:
        because = f": {now.run.reason}" if now.run.reason else ""
        yield RUN_STATES.get(now.run.state, now.run.state) + because
    if now.run.model and (before.run is None or before.run.model != now.run.model):
        yield f"model registered: {now.run.model}"


def _epoch(progress: Progress) -> str:
    parts = [f"loss {progress.loss:.3f}", f"accuracy {progress.accuracy:.3f}"]
    if progress.val_accuracy is not None:
        parts.append(f"validation accuracy {progress.val_accuracy:.3f}")
    if progress.images_per_s is not None:
        parts.append(f"{progress.images_per_s:,.0f} images/s")
    epoch = f"epoch {progress.epoch} of {progress.epochs}" if progress.epoch else "the first step is done"
    return f"{epoch}: {', '.join(parts)}"


class TimedLines:
    """Prints a demo's sentences, to a log or to a terminal; only a terminal shows that the demo is waiting."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic, *, stderr: bool = False
    ) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False, stderr=stderr)
        self._clock = clock
        self._started_s = clock()

    def say(self, sentence: str) -> None:
        """Print a sentence with the seconds since the start."""
        self.text(f"{self._clock() - self._started_s:6.1f} s  {sentence}", indent=TIME_COLUMNS)

    def text(self, text: str = "", *, indent: int = 0) -> None:
        """Print without the time. A terminal's further lines are indented by so many columns."""
        for line in wrapped(text, self._console.width, indent) if self._console.is_terminal else [text]:
            self._console.print(line, soft_wrap=True)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal that the demo waits; print nothing into a log."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what):
            yield
