"""Where stories are told: a world that outlives its process, and processes that die of SIGKILL."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from function_app.domain.events import TrainingRequest
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, NotificationState, ShardState
from function_app.ports import Ledger
from function_app.runs.submission import handle_request
from function_app.services import Services
from tests.support.long_shards import serve_uploads
from tests.support.port_calls import PortCall, watched
from tests.support.processes import die_with_parent
from tests.support.world import World

BROKEN = 70
"""Exit status of a child in which something else went wrong (sysexits.h: internal error)."""
_Lock, _RLock = type(threading.Lock()), type(threading.RLock())


class WorldPickler(pickle.Pickler):
    """Pickles a world of doubles; locks are made anew."""

    def reducer_override(self, value: Any) -> Any:
        """Stand in new locks for those that belong to a process."""
        if isinstance(value, _Lock):
            return threading.Lock, ()
        return (threading.RLock, ()) if isinstance(value, _RLock) else NotImplemented


@dataclass(kw_only=True)
class State:
    """What is left when a process dies: the world, and how many steps of the story were acknowledged."""

    world: World
    done: int = 0

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        aside = path.with_suffix(".new")
        with aside.open("wb") as file:
            WorldPickler(file).dump(self)
        aside.replace(path)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read what `save` wrote."""
        with path.open("rb") as file:
            state: State = pickle.load(file)  # noqa: S301 (written by this very test)
        return state


def serve_messages(world: World) -> None:
    """Be the queues' other end, of those in memory: a message stays until it was handled."""
    while world.requests.messages:
        handle_request(TrainingRequest.from_json(world.requests.messages[0]), world.services)
        world.requests.messages.pop(0)
    serve_uploads(world)


Step = Callable[[World], object]
"""Of a story: done once, or again."""
Open = Callable[[World], World]
"""Returns a world whose ports are opened by the process that asks; what has no place outside is shared with it."""


def in_memory(world: World) -> World:
    """Every port is a double."""
    return copy.copy(world)


@dataclass(kw_only=True)
class Stage:
    """A process that tells a story, and may die at one of its effects."""

    path: Path
    open: Open = in_memory
    dies_after: int | None = None
    """Dies right after so many effects, 0 meaning before the first; None lets it live."""
    points: list[str] = field(default_factory=list)
    """The effects so far, by name."""
    _state: State = field(init=False, repr=False)

    def tell(self, steps: Sequence[Step], *, instead: Step | None = None) -> None:
        """Continue the story where the last process left it; ``instead`` takes the place of what it was at."""
        self._state = State.load(self.path)
        world = self.open(self._state.world)
        world.services = watched(world.services, self._made)
        first = self._state.done
        for number, step in enumerate(steps[first:], first):
            (instead if instead and number == first else step)(world)
            self._state.done = number + 1
        self._state.save(self.path)

    def _made(self, call: PortCall, make: Callable[[], Any]) -> Any:
        if call.is_write and self.dies_after == 0:
            self._die()
        try:
            return make()
        finally:
            if call.is_write:
                self.passed(call.point)

    def passed(self, point: str) -> None:
        """Note an effect, and die where this was the one."""
        self.points.append(point)
        if len(self.points) == self.dies_after:
            self._die()

    def _die(self) -> None:
        """Leave what the ports hold by now, as tables and queues would, and nothing else of this process."""
        self._state.save(self.path)
        os.kill(os.getpid(), signal.SIGKILL)


def killed(tell: Callable[[], object]) -> bool:
    """Run in a child process; whether it died of SIGKILL. Raises RuntimeError where it broke in another way."""
    pid = os.fork()
    if pid == 0:
        _run_child(tell)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    if os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"the child ended with {os.WEXITSTATUS(status)}; its traceback is on standard error")
    return False


def _run_child(tell: Callable[[], object]) -> None:
    die_with_parent()
    try:
        tell()
    except BaseException:  # noqa: BLE001 (whatever it was, a forked child must not run the parent's tests)
        traceback.print_exc()
        os._exit(BROKEN)
    os._exit(0)


def outcome(world: World, services: Services) -> dict[str, object]:
    """Return all that must not depend on who died when. Times, revisions and the story's lines do."""
    ledger, versions = services.ledger, sorted(services.ledger.versions())
    latest = {str(v): ledger.latest_generation(v) for v in versions}
    runs = ledger.runs()
    subjects = [*(run.run_id for run in runs), *(str(version) for version in versions)]
    rows = [row for subject in subjects for row in ledger.notifications(subject)]
    return {
        "shards": sorted((r.name, r.state, r.crc32c, r.size_bytes) for v in versions for r in ledger.shards(v)),
        "miscounted": [key for version in versions for key in miscounted(version, ledger)],
        "closings": {v: g and (g.number, g.fingerprint, g.auto_run_id) for v, g in latest.items()},
        "runs": sorted((run.run_id, run.state, run.notified_at is not None) for run in runs),
        "jobs": sorted(world.jobs.submitted),
        "models": sorted((name, model.path) for (name, _), model in world.models.registered.items()),
        "outbox": sorted((timeless(row.key), row.state) for row in rows),
        "unsent": [row.key for row in ledger.unsent_notifications() if row.state is not NotificationState.SENT],
        "received": {
            w: sorted({timeless(n.key) for n in m.received}) for w, m in (("t", world.topic), ("p", world.people))
        },
    }


def miscounted(version: DatasetVersion, ledger: Ledger) -> list[tuple[str, int]]:
    """Return the buckets whose counter differs from their rows, by split."""
    rows = [row for row in ledger.shards(version) if row.state is ShardState.ACCEPTED]
    counted = Counter((row.split, row.index % NUM_BUCKETS) for row in rows)
    keys = [(split, bucket) for split in ledger.split_sizes(version) for bucket in range(NUM_BUCKETS)]
    return [key for key in keys if ledger.accepted_in_bucket(version, *key) != counted[key]]


def timeless(key: str) -> str:
    """Return a notification's key without the moment that tells equal outcomes apart: a crash delays it."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "then", key)


def deliveries(world: World) -> list[str]:
    """Return the keys of everything that recipients got, repetitions too."""
    return sorted(timeless(one.key) for recipient in (world.topic, world.people) for one in recipient.received)
