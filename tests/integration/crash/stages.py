"""Where stories are told: a world that outlives its process, and processes that die of SIGKILL."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from function_app.ledger import NotificationState
from function_app.ports import TrainingRequest
from function_app.steps.services import Services
from function_app.steps.submission import handle_request
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


class Requests:
    """The queues' other end, for those in memory: a message stays until it was handled."""

    def serve(self, world: World) -> None:
        """Handle what is there."""
        while world.requests.messages:
            handle_request(TrainingRequest.from_json(world.requests.messages[0]), world.services)
            world.requests.messages.pop(0)
        serve_uploads(world)


Step = Callable[[World], object]
"""Of a story: done once, or again."""
Attach = Callable[[World], Services]
"""Returns a world's services with its real ports, opened by the process that asks."""


def in_memory(world: World) -> Services:
    """Every port is a double."""
    return world.services


@dataclass(kw_only=True)
class Stage:
    """A process that tells a story, and may die at one of its effects."""

    path: Path
    attach: Attach = in_memory
    requests: Any = field(default_factory=Requests)
    dies_after: int | None = None
    """Dies right after so many effects, 0 meaning before the first; None lets it live."""
    points: list[str] = field(default_factory=list)
    """The effects so far, by name."""

    def tell(self, steps: Sequence[Step], *, instead: Step | None = None) -> None:
        """Continue the story where the last process left it; ``instead`` takes the place of what it was at."""
        state = State.load(self.path)
        world = copy.copy(state.world)
        world.services = watched(self.attach(state.world), lambda call, make: self._made(call, make, state))
        first = state.done
        for number, step in enumerate(steps[first:], first):
            (instead if instead and number == first else step)(world)
            state.done = number + 1
        state.save(self.path)

    def _made(self, call: PortCall, make: Callable[[], Any], state: State) -> Any:
        if call.is_write and self.dies_after == 0:
            self._die(state)
        try:
            return make()
        finally:
            if call.is_write:
                self.points.append(call.point)
                if len(self.points) == self.dies_after:
                    self._die(state)

    def _die(self, state: State) -> None:
        """Leave what the ports hold by now, as tables and queues would, and nothing else of this process."""
        state.save(self.path)
        os.kill(os.getpid(), signal.SIGKILL)


def killed(tell: Callable[[], None]) -> bool:
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


def _run_child(tell: Callable[[], None]) -> None:
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
        "shards": sorted((row.name, row.state, row.etag) for v in versions for row in ledger.shards(v)),
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


def timeless(key: str) -> str:
    """Return a notification's key without the moment that tells equal outcomes apart: a crash delays it."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "then", key)


def deliveries(world: World) -> list[str]:
    """Return the keys of everything that recipients got, repetitions too."""
    return sorted(timeless(one.key) for recipient in (world.topic, world.people) for one in recipient.received)
