"""The storm: shards land while events are lost, calls fail and the dev host dies; then calm, then the late events."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from azure.core.exceptions import AzureError

from bench.chaos.call_faults import some_fault
from bench.chaos.evidence import TOPICS
from bench.chaos.plan import UPLOADS_AT_ONCE, ChaosPlan
from bench.chaos.storage_faults import some_faults
from bench.chaos.storage_proxy import StorageProxy, no_faults
from bench.figures import BenchmarkError, Context
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.run_states import SETTLED
from function_app.ports import Ledger
from tests.support.processes import wait_until
from tests.support.twin import TwinUnderTest

POLL_S = 0.5
TOLD_AND_DONE_TWICE = 2
QUIET_WITHIN_S = 120.0


@dataclass(kw_only=True)
class Damage:
    """What the storm did, and how long it took to get over it."""

    restarts_s: list[float] = field(default_factory=list)
    """From each SIGKILL until the dev host answered again."""
    storm_s: float = 0.0
    recovery_s: float = 0.0
    """From the end of the storm until every run had ended and everybody was told."""
    unspent_faults: int = 0
    call_faults: int = 0
    storage_faults: int = 0
    """Requests of storage that were refused, or lost before or after their effect."""


@dataclass(kw_only=True)
class Storm:
    """Disturbs one twin after a plan."""

    plan: ChaosPlan
    twin: TwinUnderTest
    ledger: Ledger
    proxy: StorageProxy
    """Between the app and its account; the ledger above is reached without it."""
    context: Context
    damage: Damage = field(default_factory=Damage)

    def rage(self) -> Damage:
        """Raise the storm and wait until everything has ended. Raises BenchmarkError where it does not."""
        for topic in TOPICS:
            self.twin.client.set_faults(self.plan.event_faults(topic))
        self.proxy.draw = some_faults(self.plan.dice("storage"), self.plan.storage_fault_share)
        begun = time.monotonic()
        self._disturb(begun + self.plan.calm_after_s)
        self.damage.storm_s = time.monotonic() - begun
        self.proxy.draw = no_faults
        self.damage.storage_faults = self.proxy.done.total()
        self.damage.unspent_faults = self.twin.client.end_call_faults()
        self.context.say(f"the storm took {self.damage.storm_s:.0f} s and {len(self.damage.restarts_s)} dev hosts")
        calm = time.monotonic()
        self._await_end(calm + self.plan.give_up_after_s)
        self.damage.recovery_s = time.monotonic() - calm
        return self.damage

    def deliver_late_events(self) -> None:
        """Let go what was kept back until everything was over, and wait until it has been looked at."""
        self.twin.client.end_faults()
        wait_until(self._is_quiet, what="the late events to be handled", timeout_s=QUIET_WITHIN_S, poll_s=POLL_S)

    def _is_quiet(self) -> bool:
        waiting = (
            self.twin.client.pending_deliveries,
            self.twin.queued_messages,
            self.twin.client.running_invocations,
        )
        return not any(look() for look in (*waiting, *waiting))

    def _disturb(self, until: float) -> None:
        uploads, dice = iter(self.plan.uploads()), self.plan.dice("storm")
        left = True
        while time.monotonic() < until and (left or not self._has_ended()):
            lives_until = time.monotonic() + dice.uniform(*self.plan.kill_after_s)
            while time.monotonic() < lives_until:
                left = self._upload(uploads)
                self.twin.client.fail_calls(some_fault(dice))
                self.damage.call_faults += 1
                self.twin.client.release_events()
                time.sleep(POLL_S)
            self._kill()
        while self._upload(uploads):  # the storm may end before the last shard has landed
            continue

    def _upload(self, uploads: Iterator[tuple[str, bytes]]) -> bool:
        """Let some shards land; False where there was none left."""
        some = list(itertools.islice(uploads, UPLOADS_AT_ONCE))
        for path, content in some:
            dataset_version, _, name = path.rpartition("/")
            self.twin.upload(dataset_version, {name: content})
        return bool(some)

    def _kill(self) -> None:
        killed = time.monotonic()
        self.twin.twin.kill_functions_host()
        self.twin.twin.await_functions_host()
        self.damage.restarts_s.append(time.monotonic() - killed)

    def _await_end(self, deadline: float) -> None:
        while not self._has_ended():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"after {self.plan.give_up_after_s:.0f} s of calm: {self._unfinished()}")
            self.twin.client.release_events()
            time.sleep(POLL_S)

    def _has_ended(self) -> bool:
        """Whether every version has a run that has ended and was told of; a storage that is busy is asked again."""
        try:
            runs = self.ledger.runs(limit=TOLD_AND_DONE_TWICE * self.plan.versions)
        except (ServiceUnavailableError, AzureError):
            return False
        done = {run.dataset_version for run in runs if run.state in SETTLED and run.notified_at}
        return len(done) >= self.plan.versions

    def _unfinished(self) -> str:
        runs = self.ledger.runs(limit=TOLD_AND_DONE_TWICE * self.plan.versions)
        going = [f"{run.run_id} is {run.state}" for run in runs if not run.notified_at]
        without = sorted({*self.plan.datasets} - {run.dataset_version.dataset for run in runs})
        return f"without a run: {', '.join(without) or 'none'}; not at an end: {', '.join(going) or 'none'}"
