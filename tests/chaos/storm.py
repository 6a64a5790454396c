"""The storm: uploads go on while events are lost, calls fail and the dev host is killed.

Then the faults end and all runs must finish; then the late events are delivered, and must change nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from azure.core.exceptions import AzureError

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.run_states import SETTLED
from function_app.ports import Ledger
from local_azure.processes import wait_until
from tests.chaos.evidence import TOPICS
from tests.chaos.faults import call_fault, storage_faults
from tests.chaos.plan import UPLOADS_AT_ONCE, ChaosPlan
from tests.chaos.report import ChaosError
from tests.chaos.storage_proxy import StorageProxy, no_faults
from tests.support.twin import TwinUnderTest

POLL_S = 0.5
RUNS_PER_VERSION = 2
"""Read twice as many runs as there should be, so that a second run of a version is seen."""
QUIET_WITHIN_S = 120.0


@dataclass(kw_only=True)
class Damage:
    """What the storm did, and how long the recovery took."""

    restarts_s: list[float] = field(default_factory=list)
    """Times from each SIGKILL of the dev host to the next host's first answer."""
    storm_s: float = 0.0
    recovery_s: float = 0.0
    """Time from the end of the storm until every run had ended and its recipients were notified."""
    unspent_faults: int = 0
    call_faults: int = 0
    storage_faults: int = 0
    """Storage requests that were refused, or lost before or after their effect."""


@dataclass(kw_only=True)
class Storm:
    """Disturbs one twin according to a plan."""

    plan: ChaosPlan
    twin: TwinUnderTest
    ledger: Ledger
    proxy: StorageProxy
    """Between the app and its storage account; the ledger above does not use it."""
    say: Callable[[str], None]
    """Prints one line of progress."""
    damage: Damage = field(default_factory=Damage)

    def rage(self) -> Damage:
        """Disturb the twin, then wait until every run has ended. Raises ChaosError if one does not."""
        for topic in TOPICS:
            self.twin.client.set_faults(self.plan.event_faults(topic))
        self.proxy.draw = storage_faults(self.plan.dice("storage"), self.plan.storage_fault_share)
        begun = time.monotonic()
        self._disturb(begun + self.plan.calm_after_s)
        self.damage.storm_s = time.monotonic() - begun
        self.proxy.draw = no_faults
        self.damage.storage_faults = self.proxy.done.total()
        self.damage.unspent_faults = self.twin.client.end_call_faults()
        self.say(f"the storm lasted {self.damage.storm_s:.0f} s and killed {len(self.damage.restarts_s)} dev hosts")
        calm = time.monotonic()
        self._await_end(calm + self.plan.give_up_after_s)
        self.damage.recovery_s = time.monotonic() - calm
        return self.damage

    def deliver_late_events(self) -> None:
        """Deliver the events that were held back, and wait until they have been handled."""
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
                self.twin.client.fail_calls(call_fault(dice))
                self.damage.call_faults += 1
                self.twin.client.release_events()
                time.sleep(POLL_S)
            self._kill()
        while self._upload(uploads):  # the storm may end before the last upload
            continue

    def _upload(self, uploads: Iterator[tuple[str, bytes]]) -> bool:
        """Upload the next shards; return False if there were none left."""
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
                raise ChaosError(f"after {self.plan.give_up_after_s:.0f} s of calm: {self._unfinished()}")
            self.twin.client.release_events()
            time.sleep(POLL_S)

    def _has_ended(self) -> bool:
        """Whether every version has a run that has ended and was notified; False while storage is not available."""
        try:
            runs = self.ledger.runs(limit=RUNS_PER_VERSION * self.plan.versions)
        except (ServiceUnavailableError, AzureError):
            return False
        done = {run.dataset_version for run in runs if run.state in SETTLED and run.notified_at}
        return len(done) >= self.plan.versions

    def _unfinished(self) -> str:
        runs = self.ledger.runs(limit=RUNS_PER_VERSION * self.plan.versions)
        unfinished = [f"{run.run_id} is {run.state}" for run in runs if not run.notified_at]
        without = sorted({*self.plan.datasets} - {run.dataset_version.dataset for run in runs})
        return f"without a run: {', '.join(without) or 'none'}; unfinished: {', '.join(unfinished) or 'none'}"
