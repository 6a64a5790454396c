"""The promises of the chain, checked against everything that the doubles contain.

Earlier checks are remembered, to find changes of what must stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from crc32c import crc32c

from function_app.config.layouts import Layout
from function_app.domain.jobs import spec_from_json
from function_app.domain.records import (
    NUM_BUCKETS,
    PERSON,
    DatasetVersion,
    Generation,
    NotificationState,
    RunRecord,
    ShardState,
    manifest_path,
)
from function_app.domain.run_queue import QueueEntry, RunQueue
from function_app.domain.run_states import SETTLED, TRANSITIONS, RunState
from shared.manifest import Manifest
from tests.crash.faulty_ports import Fate
from tests.crash.port_calls import PortCall
from tests.support.world import ALL_SHARDS, WEBHOOK, World

ENDED = ("Completed", "Failed", "Canceled")
"""Azure ML's states of jobs that have ended."""
ACTIVE = frozenset({RunState.SUBMITTING, RunState.SUBMITTED, RunState.QUEUED, RunState.RUNNING})
TRAINED = frozenset({RunState.REGISTERED, RunState.NOT_REGISTERED})
WITH_A_MODEL = frozenset({RunState.COMPLETED, RunState.REGISTERED})
RECIPIENTS = ("topic", WEBHOOK)
SENDING = ("send", "save_notification")
"""Calls after which a death or a lost answer leaves open whether the recipient was notified."""
NO_SHARD = b"no records"


class Promises:
    """Checks a world repeatedly."""

    def __init__(self, world: World, met: Mapping[tuple[Fate, str], int]) -> None:
        self.world = world
        self.met = met
        """The faults so far, by fate and method."""
        self.states: dict[str, RunState] = {}
        self.closings: dict[tuple[DatasetVersion, int], Generation] = {}
        self.confirmed_cancellations: set[str] = set()
        """Runs whose cancellation was confirmed to a person."""
        self.read: dict[str, list[dict[str, str]]] = {}
        """What each job may have read while it ran: shard → CRC32C, once for every change in storage."""
        self.broken: list[AssertionError] = []
        self.dropped: set[str] = set()
        """Logical runs that waited for a run which a person canceled: they do not start by themselves."""

    def around(self, call: PortCall, make: Callable[[], Any]) -> Any:
        """See port_calls.Around: checks right after each effect, even in the middle of a step."""
        answer = make()
        try:
            self._check_effect(call.method, answer)
        except AssertionError as broken:
            self.broken.append(broken)
            raise
        return answer

    def _check_effect(self, method: str, answer: Any) -> None:
        if method == "change_run_queue":
            self.the_oldest_place_is_first(*answer)
        if method in ("save_run", "add_attempt", "submit"):
            self.runs_go_forward_only()
            self.one_job_goes_at_a_time()
        elif method in ("add_generation", "claim_auto_run"):
            self.a_closing_is_never_rewritten()

    def none_was_broken(self) -> None:
        """Raise the first AssertionError of an effect again: the sweep handles any exception and goes on."""
        if self.broken:
            raise self.broken[0]

    def check(self) -> None:
        """Raise AssertionError if a promise does not hold at this moment, or did not right after an effect."""
        self.none_was_broken()
        self.counters_equal_rows()
        self.a_content_closes_once()
        self.a_closing_is_never_rewritten()
        self.a_closing_starts_one_run()
        self.runs_go_forward_only()
        self.one_job_goes_at_a_time()
        self.every_job_is_on_record_under_its_own_spec()
        self.a_run_has_one_model_at_most()
        self.a_model_was_trained_on_what_was_accepted()
        self.what_a_person_cancels_leads_to_nothing()
        self.attempts_are_bounded()
        self.a_run_has_one_end()

    def counters_equal_rows(self) -> None:
        rows = Counter(
            (row.dataset_version, row.split, row.index % NUM_BUCKETS)
            for row in self.world.ledger.shard_rows.values()
            if row.state is ShardState.ACCEPTED
        )
        assert rows == Counter({key: count for key, count in self.world.ledger.counters.items() if count})

    def a_content_closes_once(self) -> None:
        by_version: dict[DatasetVersion, list[str]] = {}
        for (version, number), row in sorted(self.world.ledger.generation_rows.items()):
            prints = by_version.setdefault(version, [])
            prints.append(row.fingerprint)
            assert (number, True) == (len(prints), prints[-2:-1] != [row.fingerprint])

    def a_closing_is_never_rewritten(self) -> None:
        for key, row in self.world.ledger.generation_rows.items():
            before = self.closings.setdefault(key, row)
            same = (before.fingerprint, before.closed_at) == (row.fingerprint, row.closed_at)
            named_once = before.auto_run_id in (None, row.auto_run_id)
            assert (True, True) == (same, named_once), f"{before} became {row}"
            self.closings[key] = row
        recorded = Counter(
            line.subject
            for lines in self.world.ledger.history_rows.values()
            for line in lines
            if line.action in ("version_closed", "version_changed")
        )
        assert recorded <= Counter(str(version) for version, _ in self.world.ledger.generation_rows)

    def a_closing_starts_one_run(self) -> None:
        started = {
            (run.dataset_version, run.generation, run.logical_run)
            for run in self.world.ledger.runs()
            if run.trigger == "closed"
        }
        twice = [key for key, count in Counter((v, g) for v, g, _ in started).items() if count > 1]
        assert [] == twice

    def runs_go_forward_only(self) -> None:
        for run in self.world.ledger.runs():
            before = self.states.get(run.run_id, run.state)
            assert run.state in reachable(before), f"{run.run_id} went from {before} to {run.state}"
            self.states[run.run_id] = run.state

    def one_job_goes_at_a_time(self) -> None:
        going = [status.name for status in self.world.jobs.statuses.values() if status.status not in ENDED]
        active = [run.run_id for run in self.world.ledger.runs() if run.state in ACTIVE]
        assert (True, True) == (len(going) <= 1, len(active) <= 1), f"going: {going}; active: {active}"

    def the_oldest_place_is_first(self, before: RunQueue, after: RunQueue) -> None:
        """An admitted run comes before all waiting ones; with `latest`, only one run waits."""
        for entry in after.running:
            if not before.is_running(entry.logical_run):
                assert [] == [other for other in after.queued if other.place < entry.place]
                assert self.met or [] == self.passed_over(entry, after), f"{entry} goes first"
        versions = [entry.version for entry in after.queued if not entry.continues]
        assert len(set(versions)) == len(versions)
        assert len(versions) <= 1 or self.world.services.pipelines["digits"].when_busy == "queue"

    def passed_over(self, entry: QueueEntry, queue: RunQueue) -> list[str]:
        """Return the versions that closed before an admitted one, could be trained, and are not in line."""
        ledger = self.world.ledger
        admitted = next(run for run in ledger.runs() if run.logical_run == entry.logical_run)
        earlier = [each for each in ledger.latest_generations("digits") if each.closed_at < entry.asked_at]
        passed = []
        for closing in earlier if admitted.trigger == "closed" and admitted.attempt == 1 else ():
            run = ledger.run(closing.auto_run_id or "")
            owed = closing.number == 1 or self.world.services.pipelines["digits"].on_change != "notify"
            if run is None and owed:
                passed.append(f"{closing.dataset_version} has no run")
            if run is not None and run.state is RunState.PLANNED and not queue.knows(run.logical_run):
                is_ready = not self.waits_for_its_data(run) and self.is_judged(run.dataset_version)
                passed += [f"{run.run_id} is not in line"] if is_ready else []
        return passed

    def is_judged(self, version: DatasetVersion) -> bool:
        """Whether the ledger has a verdict on each shard's current content; equal content may have been rewritten."""
        judged = {(f"{version}/{shard.name}", shard.etag) for shard in self.world.ledger.shards(version)}
        paths = {f"{version}/{name}" for name in ALL_SHARDS}
        there = {(path, facts.etag) for path, (facts, _) in self.world.shards.blobs.items() if path in paths}
        return there <= judged

    def every_job_is_on_record_under_its_own_spec(self) -> None:
        rows = self.world.ledger.run_rows
        strange = [
            name
            for name, spec in self.world.jobs.submitted.items()
            if name not in rows or spec_from_json(rows[name].spec) != spec
        ]
        assert [] == strange

    def a_run_has_one_model_at_most(self) -> None:
        made = Counter(model.path.split("/")[3] for model in self.world.models.registered.values())
        rows = self.world.ledger.run_rows
        assert ([], []) == (
            [name for name, count in made.items() if count > 1],
            [name for name in made if rows[name].state not in WITH_A_MODEL],
        )

    def jobs_read(self, *ending: str) -> None:
        """Every job that is running, or about to end, may read the current content of the shards.

        Where files may have any names, those of the next generation lie beside its own: it reads by the manifest.
        """
        for name, status in self.world.jobs.statuses.items():
            run = self.world.ledger.run_rows.get(name)
            if run is not None and (status.status == "Running" or name in ending):
                shards, layout = self.in_storage(run.dataset_version), self._layout(run)
                if layout.has_any_names:
                    shards = {shard: crc for shard, crc in shards.items() if shard in self.accepted_for(run)}
                self.read.setdefault(name, []).append(shards)

    def _layout(self, run: RunRecord) -> Layout:
        return self.world.services.pipelines[run.dataset_version.dataset].data.layout

    def shard_is_back(self, version: DatasetVersion, name: str) -> None:
        """A job that could not find the shard has failed by itself, so no model comes from that reading."""
        for run_id, read in self.read.items():
            if self.world.ledger.run_rows[run_id].dataset_version == version:
                read[:] = [shards for shards in read if name in shards]

    def in_storage(self, version: DatasetVersion) -> dict[str, str]:
        prefix = f"{version}/"
        blobs = self.world.shards.blobs.items()
        return {
            path.removeprefix(prefix): f"{crc32c(content):08x}"
            for path, (_, content) in blobs
            if path.startswith(prefix) and path.removeprefix(prefix) in ALL_SHARDS
        }

    def accepted_for(self, run: RunRecord) -> dict[str, str]:
        path = manifest_path(run.dataset_version, run.generation, run.fingerprint)
        manifest = Manifest.from_json(self.world.documents.documents[path])
        return {shard.name: shard.crc32c for shard in manifest.shards}

    def a_model_was_trained_on_what_was_accepted(self) -> None:
        for model in self.world.models.registered.values():
            run = self.world.ledger.run_rows[model.path.split("/")[3]]
            accepted = self.accepted_for(run)
            assert [accepted] * len(self.read[run.run_id]) == self.read[run.run_id], f"{run.run_id} read other data"

    def what_a_person_cancels_leads_to_nothing(self) -> None:
        runs = self.world.ledger.runs()
        marked = [run for run in runs if run.canceled_by == PERSON or run.run_id in self.confirmed_cancellations]
        assert [] == [run.run_id for run in marked if run.state in WITH_A_MODEL or run.next_run_id is not None]
        assert set() == self.dropped & {name.rpartition("-a")[0] for name in self.world.jobs.submitted}

    def canceled(self) -> set[str]:
        """Return the logical runs that a person has canceled."""
        return {run.logical_run for run in self.world.ledger.runs() if run.canceled_by == PERSON}

    def attempts_are_bounded(self) -> None:
        limit = self.world.services.pipelines["digits"].attempts.max
        runs = self.world.ledger.runs()
        follow = {run.next_run_id for run in runs if run.next_run_id is not None}
        assert (True, follow) == (
            all(run.attempt <= limit for run in runs),
            {run.run_id for run in runs if run.attempt > 1},
        )

    def a_run_has_one_end(self) -> None:
        for run in self.world.ledger.runs():
            rows = [row for row in self.world.ledger.notifications(run.run_id) if row.outcome in set(RunState)]
            notified = Counter(row.recipient for row in rows)
            expected = {str(run.state)} if run.next_run_id is None else set()
            assert (True, True) == (set(notified.values()) <= {1}, {row.outcome for row in rows} <= expected)

    def check_end(self, blobs: Mapping[tuple[str, str], bytes]) -> None:
        """Raise AssertionError if something is left to do, or has another result than it should.

        ``blobs`` is the content of storage, by version and name.
        """
        self.check()
        self.nothing_is_left_to_do()
        self.each_end_is_notified_once()
        self.no_version_is_dropped_without_a_word()
        for version in sorted({version for version, _ in blobs}):
            self.what_is_whole_is_closed(version, [blobs.get((version, name), NO_SHARD) for name in ALL_SHARDS])

    def waits_for_its_data(self, run: RunRecord) -> bool:
        """Whether a run waits because the shards in storage are not those that were accepted for it."""
        return run.state is RunState.PLANNED and self.in_storage(run.dataset_version) != self.accepted_for(run)

    def nothing_is_left_to_do(self) -> None:
        ledger, queue = self.world.ledger, self.world.ledger.queue
        unfinished = [run.run_id for run in ledger.unfinished_runs() if not self.waits_for_its_data(run)]
        assert ([], []) == (unfinished, list(ledger.unsent_notifications()))
        assert ((), (), ()) == (queue.running, queue.queued, queue.dropped)
        assert {run.run_id for run in ledger.runs() if run.state is RunState.REGISTERED} == {
            model.path.split("/")[3] for model in self.world.models.registered.values()
        }

    def each_end_is_notified_once(self) -> None:
        ledger = self.world.ledger
        ends = {
            (run.run_id, str(run.state), to) for run in ledger.runs() if has_notification(run) for to in RECIPIENTS
        }
        rows = ledger.notification_rows.values()
        assert ends == {(r.subject, r.outcome, r.recipient) for r in rows if r.outcome in set(RunState)}
        expected = Counter(row.key for row in rows if row.state is NotificationState.SENT)
        got = Counter(one.key for recipient in (self.world.topic, self.world.people) for one in recipient.received)
        assert expected.keys() == got.keys()
        doubtful = sum(count for (_, method), count in self.met.items() if method in SENDING)
        assert got.total() - expected.total() <= doubtful

    def no_version_is_dropped_without_a_word(self) -> None:
        """A closing's run is suppressed only for newer data, a hold or a cancellation, or because of `latest`."""
        for run in self.world.ledger.runs():
            if run.state is not RunState.SUPPRESSED:
                continue
            rows = self.world.ledger.notifications(str(run.dataset_version))
            about = [row for row in rows if row.content.get("run_id") == run.run_id]
            notified = {row.recipient for row in about if row.outcome == "version_dropped"}
            for_newer_version = "when_busy" in str(run.reason)
            canceled = str(run.reason).startswith("a person canceled")
            assert not for_newer_version or self.world.services.pipelines["digits"].when_busy == "latest"
            assert (set(RECIPIENTS) if for_newer_version or canceled else set()) == notified, run.reason

    def what_is_whole_is_closed(self, version: str, contents: list[bytes]) -> None:
        if NO_SHARD in contents:
            return
        latest = self.world.ledger.latest_generation(DatasetVersion(dataset="digits", version=version))
        assert latest is not None, f"{version} is whole and was never closed"
        manifest = Manifest.from_json(self.world.documents.documents[latest.manifest_path].decode())
        listed = {shard.name: shard.crc32c for shard in manifest.shards}
        assert {n: f"{crc32c(content):08x}" for n, content in zip(ALL_SHARDS, contents, strict=True)} == listed
        trains = latest.number == 1 or self.world.services.pipelines["digits"].on_change != "notify"
        assert not trains or latest.auto_run_id in self.world.ledger.run_rows
        run = self.world.ledger.run_rows.get(latest.auto_run_id or "")
        can_have_a_model = run is None or run.generation == latest.number or run.state in TRAINED
        assert can_have_a_model, f"{run} can lead to no model of {latest}"


def has_notification(run: RunRecord) -> bool:
    """Return whether there is a notification about the end of a run."""
    return run.state in SETTLED and run.state is not RunState.SUPPRESSED and run.next_run_id is None


def reachable(state: RunState) -> set[RunState]:
    """Return the states that a run may reach after any number of transitions."""
    found, new = {state}, {state}
    while new:
        new = {target for one in new for target in TRANSITIONS[one]} - found
        found |= new
    return found
