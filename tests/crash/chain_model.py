"""A model of everything that may happen around the chain, for hypothesis and for random walks.

Events are duplicated, late, lost and reordered; handlers run concurrently; services do not answer, or their answers
are lost; processes die. Data change, jobs fail and disappear, people cancel runs and request more, and the app is
deployed again. The model records what happens outside in the simplest way.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from crc32c import crc32c
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from function_app.config.layouts import Layout
from function_app.config.pipelines import Data
from function_app.domain.events import TrainingRequest
from function_app.domain.records import PERSON, BlobFacts, DatasetVersion
from function_app.runs.cancellation import cancel_run
from function_app.runs.following import handle_run_event
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import sweep
from shared.errors import LandfallError
from shared.manifest import Manifest
from tests.crash.chain_promises import ENDED, NO_SHARD, Promises
from tests.crash.faulty_ports import Fate, Fates, ProcessDiedError
from tests.crash.port_calls import watched
from tests.support.interleaving import Turns
from tests.support.world import ALL_SHARDS, VERSION, World, pipeline, shard_content

POLICIES = ("notify", "train", "cancel_and_train")
BUSY = ("queue", "latest")
VERSIONS = ("v1", "v2", "v3")
VARIANTS = (1, 2, 0)
"""Two valid contents of each shard, and one that is not a shard."""
JOB_ERRORS = (None, "The job was preempted", "exited with status code 10.")
"""Why a job fails: unknown, an error that is retried, and one that puts a hold on its data."""
EVENTS_AND_MESSAGES = 16
"""All events and messages of three versions, and some more."""
ROUNDS = 24
"""Hours until nothing is in progress: versions wait for each other, and failed runs are retried with pauses."""
STEPS_OF_A_WALK = 20

versions, names, variants = st.sampled_from(VERSIONS), st.sampled_from(ALL_SHARDS), st.sampled_from(VARIANTS)
yes_or_no = st.sampled_from([True, False])
policies, busy, errors = st.sampled_from(POLICIES), st.sampled_from(BUSY), st.sampled_from(JOB_ERRORS)
numbers = st.integers(0, 30)
several_fates = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(Fate)), max_size=2)
orders = st.integers(0, 9999)
"""Seeds of the order of handlers; hypothesis itself would draw lists too short to let handlers overlap."""

Handler = Callable[[], object]


class ChainModel(RuleBasedStateMachine):
    """Simulates what may happen outside, and checks the promises of the chain."""

    layout = Layout()

    def __init__(self) -> None:
        super().__init__()
        self.world, self.fates, self.turns = World(), Fates(), Turns()
        self.promises = Promises(self.world, self.fates.met)
        self.uploads: list[str] = []
        self.run_events: list[str] = []
        self.delivered: list[str] = []
        """Requests that were delivered before."""
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.deleted: dict[tuple[str, str], tuple[BlobFacts, bytes]] = {}
        """The deleted shards that storage keeps for a while."""

    @initialize(on_change=policies, when_busy=busy, going=yes_or_no, at_once=yes_or_no)
    def deploy(self, on_change: str, when_busy: str, *, going: bool, at_once: bool) -> None:
        """Start; half of the sequences begin with all versions uploaded, so that late events are tried as often.

        In half of them closings start their runs themselves, and a message that is hidden meanwhile may come.
        """
        start = handle_request if at_once else None
        self.world.services = replace(self.world.services, start=start)
        self.on_change, self.when_busy, self.epochs = on_change, when_busy, 3
        self.world.change_pipeline(on_change=on_change, when_busy=when_busy, data=self.data())
        services = watched(self.world.services, self.promises.around)
        self.world.services = watched(watched(services, self.fates.around), self.turns.around)
        if going:
            self.get_going(1)

    # -- outside -------------------------------------------------------------------------------------------
    @rule(version=versions, name=names, variant=variants)
    def upload(self, version: str, name: str, variant: int) -> None:
        labels = [ALL_SHARDS.index(name)] * variant
        content = shard_content(*labels) or NO_SHARD
        self.uploads.append(self.world.put(name, content, version))
        self.blobs[version, name] = content
        self.uploaded(version, name, content)
        self.deleted.pop((version, name), None)
        self.promises.jobs_read()

    @rule(version=versions, name=names)
    def relabel(self, version: str, name: str) -> None:
        """Replace a shard by one of the same size with the next labels; the third one has the first content again."""
        content = self.blobs.get((version, name), NO_SHARD)
        if content != NO_SHARD:
            own = [ALL_SHARDS.index(name) + len(ALL_SHARDS) * number for number in range(3)]
            records = len(content) // len(shard_content(0))
            now = next(i for i, label in enumerate(own) if content == shard_content(*[label] * records))
            labels = [own[(now + 1) % 3]] * records
            self.uploads.append(self.world.put(name, shard_content(*labels), version))
            self.blobs[version, name] = shard_content(*labels)
            self.uploaded(version, name, shard_content(*labels))
            self.promises.jobs_read()

    @rule(version=versions, name=names)
    def delete(self, version: str, name: str) -> None:
        """The data owner deletes a shard; no event reports it."""
        path = f"digits/{version}/{name}"
        if path in self.world.shards.blobs:
            self.deleted[version, name] = self.world.shards.blobs[path]
        self.world.remove(path)
        self.blobs.pop((version, name), None)
        self.promises.jobs_read()

    @rule(version=versions, name=names)
    def undelete(self, version: str, name: str) -> None:
        """The data owner undeletes a shard: content and ETag are the same, and no event is sent."""
        if (version, name) in self.deleted:
            facts, content = self.deleted.pop((version, name))
            self.world.shards.blobs[facts.path] = (facts, content)
            self.blobs[version, name] = content
            self.promises.shard_is_back(DatasetVersion(dataset="digits", version=version), name)

    @rule(version=versions, name=names, fates=several_fates)
    def delete_for_a_while(self, version: str, name: str, fates: list[tuple[int, Fate]]) -> None:
        """A shard is missing while everything that is waiting is handled."""
        self.delete(version, name)
        self.deliver_everything(fates)
        self.undelete(version, name)

    @rule(version=versions)
    def upload_all(self, version: str) -> None:
        for name in ALL_SHARDS:
            self.upload(version, name, 1)

    @rule(end=st.sampled_from(["Running", *ENDED]), error=errors)
    def move_jobs(self, end: str, error: str | None) -> None:
        for run in self.world.ledger.runs():
            status = self.world.jobs.statuses.get(run.run_id)
            if status is not None and status.status not in ENDED:
                self.promises.jobs_read(run.run_id)
                self.world.end_job(run, end)
                self.world.jobs.become(run.run_id, end, error=error if end == "Failed" else None)
                self.run_events.append(run.run_id)

    @rule(number=numbers)
    def forget_job(self, number: int) -> None:
        """Azure ML loses a job."""
        names = sorted(self.world.jobs.statuses)
        if names:
            self.world.jobs.forget(names[number % len(names)])

    @rule(minutes=st.sampled_from([1, 5, 60]))
    def wait(self, minutes: int) -> None:
        self.world.clock.move(minutes=minutes)

    @rule()
    def deploy_again(self) -> None:
        """Deploy another version of the pipeline, which resolves the same request to another spec."""
        self.epochs = 7 - self.epochs
        train = pipeline().train
        train = train.model_copy(update={"options": replace(train.options, epochs=self.epochs)})
        self.world.change_pipeline(on_change=self.on_change, when_busy=self.when_busy, train=train, data=self.data())

    def data(self) -> Data:
        """The data section of the pipeline."""
        return pipeline().data.model_copy(update={"layout": self.layout})

    def write_marker(self, version: str) -> None:
        """The writer of a version writes its marker, if the layout has one."""
        if self.layout.has_any_names:
            self.wait(1)
            self.uploads.append(self.world.put(self.layout.marker, b"", version))

    # -- people --------------------------------------------------------------------------------------------
    @rule(number=numbers, end=st.sampled_from([None, *ENDED]), error=errors, fates=several_fates, order=orders)
    def cancel(
        self, number: int, end: str | None, error: str | None, fates: list[tuple[int, Fate]], order: int
    ) -> None:
        """A person cancels a run, whose job may end meanwhile; a run that waited for it must not start by itself."""
        runs = sorted(self.world.ledger.run_rows)
        if not runs:
            return
        queue, before = self.world.ledger.queue, self.promises.canceled()
        active = queue.running_of("digits")
        run_id = active.first_run_id if active is not None and number % 3 else runs[number % len(runs)]
        before_end = len(self.run_events)
        if end is not None:
            self.move_jobs(end, error)
        handlers = [self.handler(event) for event in self.run_events[before_end:]]
        self.handle([lambda: self.cancel_as_person(run_id), *handlers], fates, order)
        if active is not None and active.logical_run in self.promises.canceled() - before:
            self.promises.dropped |= {
                entry.logical_run
                for entry in queue.queued
                if not entry.continues and (self.when_busy == "latest" or entry.version == active.version)
            }

    def cancel_as_person(self, run_id: str) -> None:
        run = cancel_run(run_id, canceled_by=PERSON, reason="enough", services=self.world.services)
        self.promises.confirmed_cancellations.add(run.run_id)

    @rule(epochs=st.integers(5, 6), key=st.sampled_from([None, "k1"]), fates=several_fates)
    def ask(self, epochs: int, key: str | None, fates: list[tuple[int, Fate]]) -> None:
        """A person requests a run, perhaps with force, and perhaps repeatedly."""
        asked = {"overrides": {"epochs": epochs}, "trigger": "http", "forced_by": key}
        self.handle([lambda: request_run(VERSION, **asked, services=self.world.services)], fates)  # type: ignore[arg-type]

    # -- deliveries ----------------------------------------------------------------------------------------
    @rule(number=numbers, keep=st.booleans(), fates=several_fates)
    def deliver(self, number: int, *, keep: bool, fates: list[tuple[int, Fate]]) -> None:
        """Deliver any event or message; if it is kept, it is delivered again."""
        for handler in self.pick(number, keep=keep):
            self.handle([handler], fates)

    @rule(fates=several_fates)
    def deliver_everything(self, fates: list[tuple[int, Fate]]) -> None:
        """Deliver all waiting events and what follows from them, oldest first; the first handlers meet the faults."""
        for _ in range(EVENTS_AND_MESSAGES):
            self.handle(self.pick(0, keep=False), fates)
            fates = []

    @rule(numbers=st.lists(numbers, min_size=2, max_size=3), fates=several_fates, order=orders)
    def deliver_at_once(self, numbers: list[int], fates: list[tuple[int, Fate]], order: int) -> None:
        self.handle([handler for number in numbers for handler in self.pick(number, keep=True)], fates, order)

    @rule(version=versions, variant=st.sampled_from([1, 2]), fates=several_fates, order=orders)
    def upload_at_once(self, version: str, variant: int, fates: list[tuple[int, Fate]], order: int) -> None:
        """All shards of a version are uploaded and validated concurrently: any of them may be the last one."""
        before = len(self.uploads)
        for name in ALL_SHARDS:
            self.upload(version, name, variant)
        self.write_marker(version)
        self.handle([self.handler(event) for event in self.uploads[before:]], fates, order)

    @rule(variant=st.sampled_from([1, 2]))
    def get_going(self, variant: int) -> None:
        """All versions are uploaded and their requests handled in reverse order: one run is active, others wait."""
        for version in VERSIONS:
            self.upload_at_once(version, variant, [], 0)
        for _ in range(len(self.world.requests.messages)):
            self.handle([self.handler(self.world.requests.messages.pop())], [])

    @rule(end=st.sampled_from(ENDED), error=errors, fates=several_fates, order=orders)
    def end_at_once(self, end: str, error: str | None, fates: list[tuple[int, Fate]], order: int) -> None:
        """A job ends; its event is delivered twice, and the timer fires meanwhile."""
        before = len(self.run_events)
        self.move_jobs(end, error)
        once = [self.handler(event) for event in self.run_events[before:]]
        self.handle([*once, *once, lambda: sweep(self.world.services)], fates, order)

    @rule(number=numbers, fates=several_fates, order=orders)
    def deliver_late(self, number: int, fates: list[tuple[int, Fate]], order: int) -> None:
        """A request is delivered again, long after it was handled, together with a waiting event."""
        late = self.delivered[number % len(self.delivered) :][:1] if self.delivered else []
        self.handle([*map(self.handler, late), *self.pick(number, keep=False)], fates, order)

    @rule(number=numbers)
    def lose(self, number: int) -> None:
        """An event is lost, or is not delivered again."""
        self.pick(number, keep=False)

    @rule(fates=several_fates)
    def fire_timer(self, fates: list[tuple[int, Fate]]) -> None:
        self.handle([lambda: sweep(self.world.services)], fates)

    @rule(number=numbers, order=orders)
    def fire_timer_meanwhile(self, number: int, order: int) -> None:
        timer = [lambda: sweep(self.world.services)]
        self.handle([*timer, *self.pick(number, keep=False)], [], order)

    def pick(self, number: int, *, keep: bool) -> list[Handler]:
        """Return the handler of one of the waiting events or messages, or no handler."""
        self.world.requests.reappear()
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
            self.delivered.append(event)
            return lambda: handle_request(TrainingRequest.from_json(event), self.world.services)
        if event.startswith("landfall-"):
            return lambda: handle_run_event(event, self.world.services)
        return lambda: self.world.deliver(event)

    def handle(self, handlers: list[Handler], fates: list[tuple[int, Fate]], order: int = 0) -> None:
        """Run handlers concurrently; they may raise errors after which the host delivers again."""
        self.fates.waiting = sorted(fates)
        raised = self.turns.run(handlers, in_bursts(order))
        self.fates.waiting = []
        for error in raised:
            if not isinstance(error, LandfallError | ProcessDiedError):
                raise error

    # -- promises ------------------------------------------------------------------------------------------
    @invariant()
    def promises_hold(self) -> None:
        self.promises.check()

    def uploaded(self, version: str, name: str, content: bytes) -> None:
        """Record an upload."""

    def nothing_closes_before_its_marker(self) -> None:
        """See MarkedChainModel."""

    def teardown(self) -> None:
        """Let the timer alone find everything that was lost, after the services work again."""
        if not hasattr(self, "on_change"):
            return
        for version in VERSIONS:
            self.write_marker(version)
        for _ in range(ROUNDS):
            self.world.clock.move(hours=1)
            self.world.serve_requests()
            self.move_jobs("Completed", None)
            sweep(self.world.services)
        self.promises.check_end(self.blobs)


def in_bursts(seed: int) -> Iterator[int]:
    """Yield which handler is next: some calls of one, then some of another, so that one overtakes another."""
    dice = random.Random(seed)  # noqa: S311 (turns, not secrets)
    while True:
        yield from itertools.repeat(dice.randrange(4), dice.choice((1, 2, 5, 20)))


class MarkedChainModel(ChainModel):
    """The same model where a marker says that a version is complete."""

    layout = Layout(kind="marker", patterns={"train": "train-*", "validation": "validation-*"})

    def __init__(self) -> None:
        super().__init__()
        self.marked: set[tuple[str, str, str]] = set()
        """Version, name and CRC32C of everything that was uploaded before a marker."""
        self.unmarked: set[tuple[str, str, str]] = set()

    def uploaded(self, version: str, name: str, content: bytes) -> None:
        """See ChainModel."""
        self.unmarked.add((version, name, f"{crc32c(content):08x}"))

    def write_marker(self, version: str) -> None:
        """See ChainModel."""
        super().write_marker(version)
        self.marked |= {one for one in self.unmarked if one[0] == version}

    @invariant()
    def nothing_closes_before_its_marker(self) -> None:
        for path, document in self.world.documents.documents.items():
            if path.startswith("manifests/"):
                manifest = Manifest.from_json(document)
                assert {(manifest.version, one.name, one.crc32c) for one in manifest.shards} <= self.marked

    @rule(version=versions)
    def mark(self, version: str) -> None:
        self.write_marker(version)


class ListedChainModel(ChainModel):
    """The same model where a list with checksums names the files of a version."""

    layout = Layout(kind="manifest", patterns=MarkedChainModel.layout.patterns)

    def __init__(self) -> None:
        super().__init__()
        self.lists: set[frozenset[tuple[str, str, str]]] = set()
        """The files that each written list named: version, name and CRC32C."""

    def write_marker(self, version: str) -> None:
        """See ChainModel. The list names the files that exist."""
        there = {name: content for (of, name), content in sorted(self.blobs.items()) if of == version}
        self.lists.add(frozenset((version, name, f"{crc32c(content):08x}") for name, content in there.items()))
        lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in there.items())
        self.wait(1)
        self.uploads.append(self.world.put(self.layout.manifest, "".join(lines).encode(), version))

    @invariant()
    def nothing_closes_before_its_marker(self) -> None:
        """Each closing has exactly the files of one list."""
        for path, document in self.world.documents.documents.items():
            if path.startswith("manifests/"):
                manifest = Manifest.from_json(document)
                assert frozenset((manifest.version, one.name, one.crc32c) for one in manifest.shards) in self.lists

    @rule(version=versions)
    def mark(self, version: str) -> None:
        self.write_marker(version)


class QuietChainModel(ChainModel):
    """The same model where a version counts as complete once nothing has changed for a while."""

    layout = Layout(kind="quiet", quiet_s=600, patterns=MarkedChainModel.layout.patterns)

    def write_marker(self, version: str) -> None:
        """See ChainModel. This layout has no marker."""


def walk(seed: int, kind: type[ChainModel] = ChainModel) -> None:
    """Drive a model by drawing its rules uniformly. Raises AssertionError if a promise is broken.

    Hypothesis prefers short and simple sequences, because it must explain failures; uniform draws reach rare
    interactions sooner.
    """
    dice, model = random.Random(seed), kind()  # noqa: S311 (a walk, not secrets)
    model.deploy(dice.choice(POLICIES), dice.choice(BUSY), going=dice.random() < 0.7, at_once=seed % 2 == 1)
    rules = (*RULES, mark, mark, mark) if hasattr(kind, "mark") else RULES
    for _ in range(STEPS_OF_A_WALK):
        dice.choice(rules)(model, dice)
        model.promises_hold()
        model.nothing_closes_before_its_marker()
    model.teardown()


def fates(dice: random.Random) -> list[tuple[int, Fate]]:
    """Draw at most two faults, most often one."""
    return [(dice.randrange(20), dice.choice(list(Fate))) for _ in range(dice.choice((0, 1, 1, 2)))]


def number(dice: random.Random) -> int:
    """Draw the number of an event or a run."""
    return dice.randrange(30)


def version(dice: random.Random) -> str:
    """Draw a version."""
    return dice.choice(VERSIONS)


def mark(model: ChainModel, dice: random.Random) -> None:
    """Write the marker of a version."""
    model.write_marker(version(dice))


def order(dice: random.Random) -> int:
    """Draw the seed of an order."""
    return dice.randrange(10_000)


RULES: tuple[Callable[[ChainModel, random.Random], object], ...] = (
    lambda m, d: m.upload(version(d), d.choice(ALL_SHARDS), d.choice(VARIANTS)),
    lambda m, d: d.choice((m.delete, m.undelete, m.relabel, m.relabel))(version(d), d.choice(ALL_SHARDS)),
    lambda m, d: m.delete_for_a_while(version(d), d.choice(ALL_SHARDS), fates(d)),
    lambda m, d: m.move_jobs(d.choice(("Running", *ENDED)), d.choice(JOB_ERRORS)),
    lambda m, d: m.forget_job(number(d)),
    lambda m, d: m.wait(d.choice((1, 5, 60))),
    lambda m, _: m.deploy_again(),
    lambda m, d: m.cancel(number(d), d.choice((None, *ENDED)), d.choice(JOB_ERRORS), fates(d), order(d)),
    lambda m, d: m.ask(d.choice((5, 6)), d.choice((None, "k1")), fates(d)),
    lambda m, d: m.deliver_everything(fates(d)),
    lambda m, d: m.deliver_at_once([number(d), number(d), number(d)], fates(d), order(d)),
    lambda m, d: m.upload_at_once(version(d), d.choice((1, 2)), fates(d), order(d)),
    lambda m, d: m.get_going(d.choice((1, 2))),
    lambda m, d: m.end_at_once(d.choice(ENDED), d.choice(JOB_ERRORS), fates(d), order(d)),
    lambda m, d: m.deliver_late(number(d), fates(d), order(d)),
    lambda m, d: m.lose(number(d)),
    lambda m, d: m.fire_timer(fates(d)),
    lambda m, d: m.fire_timer_meanwhile(number(d), order(d)),
)
