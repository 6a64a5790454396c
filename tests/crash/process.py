"""A process that runs a scenario and may die at any effect, and the world that survives it."""

from __future__ import annotations

import copy
import io
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
from typing import Any, NoReturn

from function_app.domain.events import TrainingRequest
from function_app.domain.model_versions import CURRENT_TAG, CurrentModel, current_mark
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, NotificationState, ShardState
from function_app.ports import Ledger
from function_app.runs.submission import handle_request
from function_app.services import Services
from local_azure.guard import die_with_parent
from tests.crash.faulty_ports import ProcessDiedError
from tests.crash.port_calls import PortCall, watched
from tests.support.long_shards import serve_uploads
from tests.support.world import World

BROKEN = 70
"""Exit status of a child that failed otherwise than by its planned death (sysexits.h: internal error)."""
SENDING = ("send@outbox.", "send@trial.")
"""Prefixes of effects after which a notification may be sent twice, because its sender did not record it."""
_Lock, _RLock = type(threading.Lock()), type(threading.RLock())

Step = Callable[[World], object]
"""One step of a scenario, which may be run again."""
Open = Callable[[World], World]
"""Returns a world whose ports belong to the calling process; what exists only in memory is shared with it."""


class WorldPickler(pickle.Pickler):
    """Pickles a world of doubles; locks are created again."""

    def reducer_override(self, value: Any) -> Any:
        """Replace locks, which belong to a process, by new ones."""
        if isinstance(value, _Lock):
            return threading.Lock, ()
        return (threading.RLock, ()) if isinstance(value, _RLock) else NotImplemented


@dataclass(kw_only=True)
class State:
    """What remains when a process dies: the world, and the number of acknowledged steps."""

    world: World
    done: int = 0

    def pickled(self) -> bytes:
        """Return a copy that later effects do not change."""
        buffer = io.BytesIO()
        WorldPickler(buffer).dump(self)
        return buffer.getvalue()

    @classmethod
    def unpickled(cls, content: bytes) -> State:
        """Return a new state from the result of ``pickled``."""
        state: State = pickle.loads(content)  # noqa: S301 (written by this very test)
        return state

    def save(self, path: Path) -> None:
        """Write the whole state to a file, or leave the file unchanged."""
        aside = path.with_suffix(".new")
        aside.write_bytes(self.pickled())
        aside.replace(path)

    @classmethod
    def load(cls, path: Path) -> State:
        """Read what ``save`` wrote."""
        return cls.unpickled(path.read_bytes())


def serve_messages(world: World) -> None:
    """Handle the messages of the queues in memory; each is deleted once it was handled."""
    world.requests.reappear()
    while world.requests.messages:
        handle_request(TrainingRequest.from_json(world.requests.messages[0]), world.services)
        world.requests.messages.pop(0)
    serve_uploads(world)


def in_memory(world: World) -> World:
    """Return a world in which every port is a double."""
    return copy.copy(world)


@dataclass(kw_only=True)
class Process:
    """Runs a scenario, and may die at one of its effects.

    The death is an exception that is no ``Exception``. A ``finally`` that runs on its way changes nothing: a dead
    process makes no calls.
    """

    open: Open = in_memory
    dies_after: int | None = None
    """The number of effects after which it dies (0: before the first one); None means never."""
    points: list[str] = field(default_factory=list)
    """The names of the effects so far."""
    dead: bool = field(default=False, init=False)

    def run(self, state: State, steps: Sequence[Step], *, instead: Step | None = None) -> None:
        """Continue a scenario where the last process stopped; ``instead`` replaces the interrupted step."""
        world = self.open(state.world)
        world.services = watched(world.services, self.around)
        for number in range(state.done, len(steps)):
            (instead or steps[number])(world)
            instead = None
            state.done = number + 1

    def around(self, call: PortCall, make: Callable[[], Any]) -> Any:
        """See ``port_calls.Around``."""
        if self.dead or (call.is_write and self.dies_after == 0):
            self.die()
        try:
            return make()
        finally:
            if call.is_write:
                self.passed(call.point)

    def passed(self, point: str) -> None:
        """Record an effect, and die if this was the planned one."""
        self.points.append(point)
        if len(self.points) == self.dies_after:
            self.die()

    def die(self) -> NoReturn:
        """Raise ProcessDiedError."""
        self.dead = True
        raise ProcessDiedError


@dataclass(kw_only=True)
class KilledProcess(Process):
    """A real process that SIGKILL ends: run it in a child process, see ``killed``."""

    path: Path
    """The file of the state, which is read at the start and written at the end."""
    state: State = field(init=False, repr=False)

    def go_on(self, steps: Sequence[Step], *, instead: Step | None = None) -> None:
        """Continue with the state in the file."""
        self.state = State.load(self.path)
        self.run(self.state, steps, instead=instead)
        self.state.save(self.path)

    def die(self) -> NoReturn:
        """Keep only what the ports contain now, as tables and queues would, and nothing else of this process."""
        self.state.save(self.path)
        os.kill(os.getpid(), signal.SIGKILL)
        raise ProcessDiedError  # never reached: SIGKILL cannot be caught


def killed(run: Callable[[], object]) -> bool:
    """Run in a child process, and return whether SIGKILL ended it. Raises RuntimeError if it failed otherwise."""
    pid = os.fork()
    if pid == 0:
        _run_child(run)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    if os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"the child ended with {os.WEXITSTATUS(status)}; its traceback is on standard error")
    return False


def _run_child(run: Callable[[], object]) -> None:
    die_with_parent()
    try:
        run()
    except BaseException:  # noqa: BLE001 (a forked child must not go on to run the parent's tests)
        traceback.print_exc()
        os._exit(BROKEN)
    os._exit(0)


def outcome(world: World, services: Services) -> dict[str, object]:
    """Return everything that must not depend on where a process died, so no times, revisions or history."""
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
        "tagged": tagged(world, ledger),
        "outbox": sorted((timeless(row.key), row.state) for row in rows),
        "unsent": [row.key for row in ledger.unsent_notifications() if row.state is not NotificationState.SENT],
        "received": {
            w: sorted({timeless(n.key) for n in m.received}) for w, m in (("t", world.topic), ("p", world.people))
        },
    }


def tagged(world: World, ledger: Ledger) -> list[tuple[str, list[str]]]:
    """Return each model whose versions have wrong tags: exactly one must have the tag, as the ledger says."""
    wrong = []
    for name in sorted({name for name, _ in world.models.registered}):
        have = [v for (one, v), model in world.models.registered.items() if one == name and CURRENT_TAG in model.tags]
        mark = ledger.mark(current_mark(name))
        wrong.append((name, [] if have == ([CurrentModel.from_text(mark).version] if mark else []) else have))
    return wrong


def miscounted(version: DatasetVersion, ledger: Ledger) -> list[tuple[str, int]]:
    """Return split and number of each bucket whose counter differs from its rows."""
    rows = [row for row in ledger.shards(version) if row.state is ShardState.ACCEPTED]
    counted = Counter((row.split, row.index % NUM_BUCKETS) for row in rows)
    keys = [(split, bucket) for split in ledger.split_sizes(version) for bucket in range(NUM_BUCKETS)]
    return [key for key in keys if ledger.accepted_in_bucket(version, *key) != counted[key]]


def timeless(key: str) -> str:
    """Return a notification's key without its time, which a crash delays."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "then", key)


def deliveries(world: World) -> list[str]:
    """Return the keys of all notifications that recipients received, including repetitions."""
    return sorted(timeless(one.key) for recipient in (world.topic, world.people) for one in recipient.received)
