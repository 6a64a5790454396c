"""The storm: uploads and changes go on while events are lost, calls fail and the dev host is killed.

Then the faults end and all runs must finish; then the late events are delivered, and must change nothing.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from azure.core.exceptions import AzureError

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import RunRecord
from function_app.ports import Ledger
from tests.chaos.changes import DataOwner
from tests.chaos.ends import VERSION, Ends
from tests.chaos.evidence import TOPICS
from tests.chaos.faults import PlannedFault, call_fault, storage_faults
from tests.chaos.layouts import Seal, layout_of
from tests.chaos.patience import Patience
from tests.chaos.people import People
from tests.chaos.plan import RECORDS_PER_SHARD, UPLOADS_AT_ONCE, ChaosPlan
from tests.chaos.report import ChaosError
from tests.chaos.storage_proxy import StorageProxy, no_faults
from tests.support.twin import TwinUnderTest

POLL_S = 0.5
AZURE_ML_S = 120.0
"""How far Azure ML's clock moves between two looks: some jobs wait up to an hour by it."""
CALLS_AT_ONCE = 8
"""How many of the next calls of Azure ML may be about to fail: if it were all of them, no job would ever start."""
RUNS_PER_VERSION = 20
"""Read more runs of each version than there should be, so that a superfluous one is seen."""
SWEEP = "reconcile"
"""The function that begins again every few seconds: on a busy machine one always runs."""
VERSIONS_A_TURN = 5
"""With more versions, turns pass between two looks for the end: a look reads the generation of every version."""
SWEEPS_UNTIL_QUIET = 12
"""How many sweeps may end without progress while late events are left."""


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
    met_in_storm: int = 0
    """Named faults of Azure ML that were met while hosts were killed; the others are met afterwards."""
    storage_faults: int = 0
    """Storage requests that were refused, or lost before or after their effect."""
    changes: Counter[str] = field(default_factory=Counter)
    """Writes and deletions of uploaded shards, by what the version's newest run was doing."""
    asked: dict[str, str] = field(default_factory=dict)
    """Run that ended without a model → its dataset, for which people requested another one."""


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
    tables: Path
    """A folder for the logs of tables."""
    damage: Damage = field(default_factory=Damage)
    files: defaultdict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Dataset → its files."""
    seals: dict[str, Seal] = field(default_factory=dict)
    """Dataset → what ends its version."""
    owner: DataOwner = field(init=False)
    ends: Ends = field(init=False)
    people: People = field(init=False)
    faults: list[PlannedFault] = field(init=False)

    def __post_init__(self) -> None:
        self.owner = DataOwner(
            changes=self.plan.changes(), write=self._write, dice=self.plan.dice("owner"), seal=self._seal
        )
        self.damage.changes = self.owner.made
        self.ends = Ends(fingerprints=self.plan.last_fingerprints(), ledger=self.ledger)
        self.faults = self.plan.job_faults()
        self.people = People(twin=self.twin, ledger=self.ledger, ends=self.ends)
        self.damage.asked = self.people.asked

    def rage(self) -> Damage:
        """Disturb the twin, then wait until every run has ended. Raises ChaosError if one does not."""
        for topic in TOPICS:
            self.twin.client.set_faults(self.plan.event_faults(topic))
        for one in self.faults:
            self.twin.client.fail_jobs(one.fault, job=f"-{one.dataset}-", times=one.times)
        self.proxy.draw = storage_faults(self.plan.dice("storage"), self.plan.storage_fault_share)
        begun = time.monotonic()
        self._disturb(begun + self.plan.calm_after_s)
        self.damage.storm_s = time.monotonic() - begun
        self.proxy.draw = no_faults
        self.damage.storage_faults = self.proxy.done.total()
        self.damage.unspent_faults = self.twin.client.end_call_faults()
        self.damage.met_in_storm = len(self.twin.client.faults_met())
        self.say(
            f"the storm lasted {self.damage.storm_s:.0f} s and killed {len(self.damage.restarts_s)} dev hosts; "
            f"{self.damage.met_in_storm} named faults were met, {self._left_to_meet()} are to be met in the calm"
        )
        calm = time.monotonic()
        self._await_end(self._patience(self.plan.give_up_after_sweeps))
        self.damage.recovery_s = time.monotonic() - calm
        return self.damage

    def deliver_late_events(self) -> None:
        """Deliver the events that were held back, and wait until they have been handled. Raises ChaosError."""
        self.twin.client.end_faults()
        patience = self._patience(SWEEPS_UNTIL_QUIET)
        while any(left := self._under_way()) or any(left := self._under_way()):
            if patience.is_over(sum(left), self._handled()):
                running = self.twin.client.invocations("running")
                raise ChaosError(
                    f"late events are not handled after {patience}: {left[0]} deliveries and {left[1]} messages "
                    f"wait, and these functions run: {', '.join(running)}"
                )
            time.sleep(POLL_S)

    def _under_way(self) -> tuple[int, int, int]:
        """Return how many deliveries and messages wait, and how many functions but the sweep run."""
        client = self.twin.client
        deliveries, messages = client.pending_deliveries(), self.twin.queued_messages()
        return deliveries, messages, sum(n for name, n in client.invocations("running").items() if name != SWEEP)

    def _handled(self) -> int:
        """Return how many functions but the sweep have ended."""
        return sum(n for name, n in self.twin.client.invocations("ended").items() if name != SWEEP)

    def _patience(self, sweeps: int) -> Patience:
        return Patience(ended=lambda: self.twin.client.invocations("ended").get(SWEEP, 0), sweeps=sweeps)

    def _disturb(self, until: float) -> None:
        uploads, dice = iter(self.plan.uploads()), self.plan.dice("storm")
        left = True
        begun = time.monotonic()
        while time.monotonic() < until and (left or self._left_to_meet() or not self._has_ended()):
            longer = 1.0 + (time.monotonic() - begun) / self.plan.live_longer_every_s
            lives_until = min(until, time.monotonic() + longer * dice.uniform(*self.plan.kill_after_s))
            while time.monotonic() < lives_until:
                left = self._upload(uploads)
                runs = self._runs() or []
                self.owner.act(runs)
                self._let_people_act(runs)
                if self.twin.client.pending_call_faults() < CALLS_AT_ONCE:
                    self.twin.client.fail_calls(call_fault(dice))
                    self.damage.call_faults += 1
                self._let_time_pass()
            self._kill()
        while self._upload(uploads):  # the storm may end before the last upload
            continue

    def _left_to_meet(self) -> int:
        return sum(one.times for one in self.faults) - len(self.twin.client.faults_met())

    def _let_people_act(self, runs: list[RunRecord]) -> None:
        self.people.create_clusters_again(runs)
        steady = [dataset for dataset in self.plan.datasets if self.owner.is_done_with(dataset)]
        self.people.request_again(runs, steady)

    def _let_time_pass(self) -> None:
        self.twin.client.release_events()
        self.twin.client.advance_clock(AZURE_ML_S)
        time.sleep(POLL_S)

    def _upload(self, uploads: Iterator[tuple[str, str, bytes]]) -> bool:
        """Upload the next shards; return False if there were none left."""
        some = list(itertools.islice(uploads, UPLOADS_AT_ONCE))
        for dataset, name, content in some:
            self._write(dataset, name, content)
            self.owner.uploaded.add((dataset, name))
        for dataset in dict.fromkeys(dataset for dataset, _, _ in some):
            self._seal(dataset)
        return bool(some)

    def _seal(self, dataset: str) -> None:
        """Write what ends a version, where its layout has that, once all of its files are there."""
        layout, files = layout_of(dataset), self.files[dataset]
        is_begun = all((dataset, name) in self.owner.uploaded for name in self.plan.shard_names(dataset))
        is_whole = is_begun and (layout.may_lose_files or len(files) == self.plan.shards)
        if layout.sealer is None or not is_whole:
            return
        if dataset not in self.seals:
            self.seals[dataset] = layout.sealer(self.tables / dataset)
        if (written := self.seals[dataset](layout.stored(files), RECORDS_PER_SHARD)) is not None:
            self.twin.upload(f"{dataset}/v1", [written])

    def _write(self, dataset: str, name: str, content: bytes | None) -> None:
        layout = layout_of(dataset)
        if content is not None:
            self.twin.upload(f"{dataset}/v1", layout.stored({name: content}))
            self.files[dataset][name] = content
            return
        del self.files[dataset][name]
        if not layout.is_table:  # a commit removes it; the file itself stays until it is vacuumed
            self.twin.blobs.get_blob_client("datasets", f"{dataset}/v1/{name}").delete_blob()

    def _kill(self) -> None:
        killed = time.monotonic()
        self.twin.twin.kill_functions_host()
        self.twin.twin.await_functions_host()
        self.damage.restarts_s.append(time.monotonic() - killed)

    def _await_end(self, patience: Patience) -> None:
        turns_of_a_look = max(1, self.plan.versions // VERSIONS_A_TURN)
        for turn in itertools.count():
            found = self._runs()
            runs = found or []
            if turn % turns_of_a_look == 0:
                unfinished = self.ends.unfinished(runs)
                if self.owner.is_done and found is not None and not unfinished:
                    return
                if patience.is_over(len(unfinished) + sum(map(len, self.owner.left.values()))):
                    raise ChaosError(f"after {patience} in the calm: {'; '.join(self._open_ends())}")
            self.owner.act(runs, is_calm=True)
            self._let_people_act(runs)
            self._let_time_pass()

    def _open_ends(self) -> Iterator[str]:
        """Yield what is unfinished, with what the app says that each version waits for."""
        for end in self.ends.unfinished(self._runs() or ()):
            dataset = end.split()[0]
            said = self.twin.version(f"{dataset}/{VERSION}") if dataset in self.plan.datasets else {}
            missing = {split: facts["missing"] for split, facts in said.get("splits", {}).items()}
            yield f"{end}{f', and waits for {missing}' if missing else ''}"
        for dataset, left in self.owner.left.items():
            if left:
                yield f"{len(left)} changes of {dataset} are to be made"

    def _has_ended(self) -> bool:
        """Whether no change is left and nothing is under way; False while storage is not available."""
        runs = self._runs()
        return self.owner.is_done and runs is not None and not self.ends.unfinished(runs)

    def _runs(self) -> list[RunRecord] | None:
        """Return all runs; None while storage is not available."""
        try:
            return self.ledger.runs(limit=RUNS_PER_VERSION * self.plan.versions)
        except (ServiceUnavailableError, AzureError):
            return None
