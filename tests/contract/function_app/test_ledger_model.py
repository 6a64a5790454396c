"""After any sequence of calls both ledgers equal a model of dictionaries, and runs never go back.

The model repeats the rules in the simplest form; it shares no code with either ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from function_app.adapters.connections import StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.domain.errors import IllegalTransitionError, LedgerConflictError
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, RunRecord, ShardRecord, ShardState
from function_app.domain.run_states import SETTLED, TRANSITIONS, RunState
from function_app.ports import Ledger
from function_app.testing.ledger import MemoryLedger
from tests.support.ledger_records import NOON, generation_record, run_record, shard_record

VERSIONS = st.sampled_from([DatasetVersion(dataset="d", version=version) for version in ("1", "1|2", "1/2")])
SPLITS = st.sampled_from(["train", "test"])
INDICES = st.sampled_from([0, 1, 16, 17, 33])
RUN_NUMBERS = st.integers(0, 3)

RANKS = {
    state: rank
    for rank, states in enumerate(
        [
            ["planned"],
            ["submitting"],
            ["submitted"],
            ["queued"],
            ["running"],
            ["completed", "failed", "canceled", "lost"],
            ["registered", "not_registered", "suppressed"],
        ]
    )
    for state in states
}
"""How far a run has come, in the order of the design: a transition may skip states, but never goes back."""


class LedgerModel(RuleBasedStateMachine):
    """Calls a ledger and a model side by side."""

    new_ledger: ClassVar[Callable[[], Ledger]]

    def __init__(self) -> None:
        super().__init__()
        self.ledger = type(self).new_ledger()
        self.shards: dict[tuple[DatasetVersion, str, int], ShardRecord] = {}
        self.sizes: dict[tuple[DatasetVersion, str], int] = {}
        self.closings: dict[DatasetVersion, list[str | None]] = {}
        self.runs: dict[str, RunRecord] = {}
        self.seen: dict[str, list[RunRecord]] = {}

    @rule(version=VERSIONS, split=SPLITS, size=st.integers(1, 3))
    def claim_split_size(self, version: DatasetVersion, split: str, size: int) -> None:
        expected = self.sizes.setdefault((version, split), size)
        assert expected == self.ledger.claim_split_size(version, split, size)

    @rule(
        version=VERSIONS,
        split=SPLITS,
        index=INDICES,
        etag=st.sampled_from(["E1", "E2"]),
        state=st.sampled_from(ShardState),
        num_records=st.integers(0, 1 << 40),
        is_first=st.booleans(),
    )
    def record_shard(
        self, version: DatasetVersion, split: str, index: int, *, is_first: bool, **members: Any
    ) -> None:
        """The caller may mistake any verdict for the first one of its position; that changes nothing."""
        shard = shard_record(index, dataset_version=version, split=split, **members)
        key = (version, split, index)
        stored = self.shards.get(key)
        if stored is None or (stored.etag, stored.state) != (shard.etag, shard.state):
            self.shards[key] = shard
        assert stored == self.ledger.record_shard(shard, is_first=is_first).replaced

    @rule(version=VERSIONS, split=SPLITS, index=INDICES)
    def record_first_verdict(self, version: DatasetVersion, split: str, index: int) -> None:
        """Nothing is written if the position has a verdict."""
        shard, key = shard_record(index, dataset_version=version, split=split), (version, split, index)
        answer = self.ledger.record_first_verdicts([shard])
        assert (answer is None) == (key in self.shards)
        self.shards.setdefault(key, shard)

    @rule(version=VERSIONS, is_next=st.booleans())
    def add_generation(self, version: DatasetVersion, *, is_next: bool) -> None:
        """Closings are sequential: a generation is the next one, or one that exists already."""
        closings = self.closings.setdefault(version, [])
        is_next = is_next or not closings
        if is_next:
            closings.append(None)
        assert is_next == self.ledger.add_generation(generation_record(len(closings), dataset_version=version))

    @precondition(lambda self: self.closings)
    @rule(position=st.integers(0, 2), run_id=st.sampled_from(["run-a", "run-b"]))
    def claim_auto_run(self, position: int, run_id: str) -> None:
        version = sorted(self.closings)[position % len(self.closings)]
        closings = self.closings[version]
        closings[-1] = closings[-1] or run_id
        generation = generation_record(len(closings), dataset_version=version)
        assert closings[-1] == self.ledger.claim_auto_run(generation, run_id)

    @rule(number=RUN_NUMBERS, state=st.sampled_from(RunState))
    def add_run(self, number: int, state: RunState) -> None:
        run = run_record(number, state=state)
        is_new = run.run_id not in self.runs
        assert is_new == self.ledger.add_run(run)
        if is_new:
            stored = self.ledger.run(run.run_id)
            assert stored is not None
            self.runs[run.run_id] = stored
            self.seen[run.run_id] = [stored]

    @rule(number=RUN_NUMBERS, state=st.sampled_from(RunState), notified=st.booleans(), stale=st.integers(0, 2))
    def save_run(self, number: int, state: RunState, *, notified: bool, stale: int) -> None:
        run_id = run_record(number).run_id
        if run_id not in self.runs:
            return
        read = self.seen[run_id][-1 - min(stale, len(self.seen[run_id]) - 1)]
        wanted = replace(read, state=state, notified_at=NOON if notified else None)
        current = self.runs[run_id]
        if read.revision != current.revision:
            with pytest.raises(LedgerConflictError):
                self.ledger.save_run(wanted)
        elif state is not current.state and state not in TRANSITIONS[current.state]:
            with pytest.raises(IllegalTransitionError):
                self.ledger.save_run(wanted)
        else:
            saved = self.ledger.save_run(wanted)
            assert wanted == replace(saved, revision=wanted.revision)
            assert RANKS[current.state] <= RANKS[saved.state]
            self.runs[run_id] = saved
            self.seen[run_id].append(saved)

    @invariant()
    def counters_equal_rows(self) -> None:
        for version, split in {(version, split) for version, split, _ in self.shards}:
            rows = [row for (v, s, _), row in self.shards.items() if (v, s) == (version, split)]
            accepted = [row.index % NUM_BUCKETS for row in rows if row.state is ShardState.ACCEPTED]
            for bucket in (0, 1):  # INDICES belong to no other buckets
                assert accepted.count(bucket) == self.ledger.accepted_in_bucket(version, split, bucket)

    def teardown(self) -> None:
        """Compare everything at the end; after every step it would be too slow."""
        self.check_versions()
        found = [row for version in self.all_versions() for row in self.ledger.shards(version)]
        assert self.shards == {(row.dataset_version, row.split, row.index): row for row in found}
        assert len(self.shards) == len(found)
        newest_first = sorted(self.runs.values(), key=lambda run: run.created_at, reverse=True)
        assert newest_first == self.ledger.runs()
        unfinished = {
            id_
            for id_, run in self.runs.items()
            if run.state not in SETTLED or (run.notified_at is None and run.state != "suppressed")
        }
        assert unfinished == {run.run_id for run in self.ledger.unfinished_runs()}

    def check_versions(self) -> None:
        assert sorted({version for version, _ in self.sizes}) == sorted(self.ledger.versions())
        for version in self.all_versions():
            sizes = {split: size for (owner, split), size in self.sizes.items() if owner == version}
            assert sizes == dict(self.ledger.split_sizes(version))
            latest, closings = self.ledger.latest_generation(version), self.closings.get(version, [])
            assert (len(closings) or None) == (latest and latest.number)
            assert (closings[-1] if closings else None) == (latest and latest.auto_run_id)

    def all_versions(self) -> set[DatasetVersion]:
        return {version for version, *_ in self.shards} | {version for version, _ in self.sizes} | set(self.closings)


def run_model(new_ledger: Callable[[], Ledger], *, max_examples: int) -> None:
    machine = type("BoundLedgerModel", (LedgerModel,), {"new_ledger": staticmethod(new_ledger)})
    limits = settings(
        max_examples=max_examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)


@pytest.mark.parametrize("max_examples", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_the_ledger_in_memory_is_as_the_model_says(max_examples: int) -> None:
    """Counters equal the rows after every call, each claim is granted once, and runs only go forward."""
    run_model(MemoryLedger, max_examples=max_examples)


@pytest.mark.azurite
@pytest.mark.parametrize("max_examples", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_the_ledger_in_tables_is_as_the_model_says(host_storage: StorageConnection, max_examples: int) -> None:
    """There are fewer sequences, because each call is several requests."""
    run_model(lambda: TableLedger(host_storage, prefix=f"m{uuid.uuid4().hex[:12]}"), max_examples=max_examples)
