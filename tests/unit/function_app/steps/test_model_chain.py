"""The whole chain against what was promised of it, whatever may come.

Events come twice, late, never and in any order; handlers run at the same time; services do not answer, or their
answers are lost; processes die.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from function_app.errors import LandfallError
from function_app.ledger import NUM_BUCKETS, TRANSITIONS, DatasetVersion, NotificationState, RunState, ShardState
from function_app.ports import TrainingRequest
from function_app.steps.run_events import handle_run_event
from function_app.steps.submission import handle_request
from function_app.steps.sweep import sweep
from shared.manifest import Manifest
from tests.support.faulty_ports import Fate, Fates, ProcessDiedError
from tests.support.interleaving import Turns
from tests.support.port_calls import watched
from tests.support.world import ALL_SHARDS, World, shard_content

VERSIONS = st.sampled_from(["v1", "v2"])
NAMES = st.sampled_from(ALL_SHARDS)
VARIANTS = st.sampled_from([1, 2, 0])
"""Two good contents of each shard, and one that is none."""
FATES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(Fate)), max_size=2)
ORDER = st.lists(st.integers(0, 3), max_size=60)
ENDED = ("Completed", "Failed", "Canceled")
ROUNDS = 14
"""Hours until all is quiet: a failed run may be tried again several times, with pauses."""

EVERYTHING = 12
"""Two versions' events and messages, and some more."""

Handler = Callable[[], object]


class ChainModel(RuleBasedStateMachine):
    """What happens outside is remembered here in the simplest way; the chain must agree with it."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.fates, self.turns = World(), Fates(), Turns()
        self.uploads: list[str] = []
        self.run_events: list[str] = []
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.seen: dict[str, RunState] = {}

    @initialize(on_change=st.sampled_from(["notify", "train"]))
    def deploy(self, on_change: str) -> None:
        self.world.change_pipeline(on_change=on_change)
        self.plain = self.world.services
        doubly = watched(self.plain, self.fates.around)
        self.world.services = watched(doubly, self.turns.around)

    # -- outside -------------------------------------------------------------------------------------------
    @rule(version=VERSIONS, name=NAMES, variant=VARIANTS)
    def upload(self, version: str, name: str, variant: int) -> None:
        labels = [ALL_SHARDS.index(name)] * variant
        content = shard_content(*labels) or b"no records"
        self.uploads.append(self.world.put(name, content, version))
        self.blobs[version, name] = content

    @rule(version=VERSIONS)
    def upload_all(self, version: str) -> None:
        for name in ALL_SHARDS:
            self.upload(version, name, 1)

    @rule(end=st.sampled_from(["Running", *ENDED]))
    def move_jobs(self, end: str) -> None:
        for run in self.world.ledger.runs():
            status = self.world.jobs.statuses.get(run.run_id)
            if status is not None and status.status not in ENDED:
                self.world.end_job(run, end)
                self.run_events.append(run.run_id)

    @rule(minutes=st.sampled_from([1, 5, 60]))
    def wait(self, minutes: int) -> None:
        self.world.clock.move(minutes=minutes)

    # -- deliveries ----------------------------------------------------------------------------------------
    @rule(number=st.integers(0, 30), keep=st.booleans(), fates=FATES)
    def deliver(self, number: int, *, keep: bool, fates: list[tuple[int, Fate]]) -> None:
        """Deliver an event in any order; kept, it comes again."""
        for handler in self.pick(number, keep=keep):
            self.handle([handler], fates, [])

    @rule(fates=FATES)
    def deliver_everything(self, fates: list[tuple[int, Fate]]) -> None:
        """Deliver what waits and what follows from it, the oldest first; the first handlers meet the fates."""
        for _ in range(EVERYTHING):
            self.handle(self.pick(0, keep=False), fates, [])
            fates = []

    @rule(numbers=st.lists(st.integers(0, 30), min_size=2, max_size=3), fates=FATES, order=ORDER)
    def deliver_at_once(self, numbers: list[int], fates: list[tuple[int, Fate]], order: list[int]) -> None:
        self.handle([handler for number in numbers for handler in self.pick(number, keep=True)], fates, order)

    @rule(number=st.integers(0, 30))
    def lose(self, number: int) -> None:
        """An event is never delivered (again)."""
        self.pick(number, keep=False)

    @rule(fates=FATES)
    def fire_timer(self, fates: list[tuple[int, Fate]]) -> None:
        self.handle([lambda: sweep(self.world.services)], fates, [])

    @rule(number=st.integers(0, 30), order=ORDER)
    def fire_timer_meanwhile(self, number: int, order: list[int]) -> None:
        timer = [lambda: sweep(self.world.services)]
        self.handle([*timer, *self.pick(number, keep=False)], [], order)

    def pick(self, number: int, *, keep: bool) -> list[Handler]:
        """Return what handles one of the waiting events or messages; none where nothing waits."""
        waiting = [*self.uploads, *self.run_events, *self.world.requests.messages]
        if not waiting:
            return []
        event = waiting[number % len(waiting)]
        source = next(s for s in (self.uploads, self.run_events, self.world.requests.messages) if event in s)
        if not keep:
            source.remove(event)
        return [self.handler(event)]

    def handler(self, event: str) -> Handler:
        if event.startswith("{"):
            return lambda: handle_request(TrainingRequest.from_json(event), self.world.services)
        if event.startswith("landfall-"):
            return lambda: handle_run_event(event, self.world.services)
        return lambda: self.world.deliver(event)

    def handle(self, handlers: list[Handler], fates: list[tuple[int, Fate]], order: list[int]) -> None:
        """Run handlers at the same time; what they may raise is what the host would repeat."""
        self.fates.waiting = sorted(fates)
        for error in self.turns.run(handlers, order):
            if not isinstance(error, LandfallError | ProcessDiedError):
                raise error
        self.fates.waiting = []

    # -- promises ------------------------------------------------------------------------------------------
    @invariant()
    def counters_equal_rows(self) -> None:
        rows = Counter(
            (row.dataset_version, row.split, row.index % NUM_BUCKETS)
            for row in self.world.ledger.shard_rows.values()
            if row.state is ShardState.ACCEPTED
        )
        assert rows == Counter({key: count for key, count in self.world.ledger.counters.items() if count})

    @invariant()
    def a_content_closes_once(self) -> None:
        by_version: dict[DatasetVersion, list[str]] = {}
        for (version, number), row in sorted(self.world.ledger.generation_rows.items()):
            prints = by_version.setdefault(version, [])
            prints.append(row.fingerprint)
            assert (number, True) == (len(prints), prints[-2:-1] != [row.fingerprint])

    @invariant()
    def runs_go_forward_only(self) -> None:
        for run in self.world.ledger.runs():
            before = self.seen.get(run.run_id, run.state)
            assert run.state in reachable(before), f"{run.run_id} went from {before} to {run.state}"
            self.seen[run.run_id] = run.state

    @invariant()
    def one_job_goes_at_a_time(self) -> None:
        going = [status for status in self.world.jobs.statuses.values() if status.status not in ENDED]
        assert len(going) <= 1

    @invariant()
    def every_job_is_on_record_under_its_own_spec(self) -> None:
        assert self.world.jobs.submitted.keys() <= self.world.ledger.run_rows.keys()

    @invariant()
    def a_run_has_one_end(self) -> None:
        for run in self.world.ledger.runs():
            rows = self.world.ledger.notifications(run.run_id)
            ends = Counter(row.recipient for row in rows if row.outcome in set(RunState))
            assert set(ends.values()) <= {1}

    def teardown(self) -> None:
        """All that was lost is found by the timer alone, once the services answer again."""
        if not hasattr(self, "plain"):
            return
        self.world.services = self.plain
        for _ in range(ROUNDS):
            self.world.clock.move(hours=1)
            self.world.serve_requests()
            self.move_jobs("Completed")
            sweep(self.plain)
        self.check_ends()
        self.check_closings()

    def check_ends(self) -> None:
        ledger = self.world.ledger
        assert ([], []) == (list(ledger.unfinished_runs()), list(ledger.unsent_notifications()))
        rows = ledger.notification_rows.values()
        expected = Counter(row.key for row in rows if row.state is NotificationState.SENT)
        got = Counter(one.key for recipient in (self.world.topic, self.world.people) for one in recipient.received)
        assert expected.keys() == got.keys()
        doubtful = sum(count for (_, method), count in self.fates.met.items() if method in SENDING)
        assert got.total() - expected.total() <= doubtful

    def check_closings(self) -> None:
        for version in ("v1", "v2"):
            contents = [self.blobs.get((version, name), b"no records") for name in ALL_SHARDS]
            if b"no records" in contents:
                continue
            latest = self.world.ledger.latest_generation(DatasetVersion(dataset="digits", version=version))
            assert latest is not None, f"{version} is whole and was never closed"
            manifest = Manifest.from_json(self.world.documents.documents[latest.manifest_path].decode())
            assert [len(content) for content in contents] == [
                next(shard.size_bytes for shard in manifest.shards if shard.name == name) for name in ALL_SHARDS
            ]
            assert latest.number > 1 or latest.auto_run_id in self.world.ledger.run_rows


SENDING = ("send", "save_notification")
"""Where a process that dies, or an answer that is lost, leaves open whether somebody was told."""


def reachable(state: RunState) -> set[RunState]:
    """Return where a run may be, some moves later."""
    found, new = {state}, {state}
    while new:
        new = {target for one in new for target in TRANSITIONS[one]} - found
        found |= new
    return found


def test_the_chain_keeps_its_promises_whatever_comes() -> None:
    """Counters, closings, transitions, single flight and notifications hold after every step, and in the end."""
    limits = settings(
        max_examples=150,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ChainModel, settings=limits)
