"""When a chaos run is over: nothing is in progress, and each complete version has a model of its latest content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from function_app.domain.failures import FailureClass
from function_app.domain.records import PERSON, DatasetVersion, RunRecord
from function_app.domain.run_states import SETTLED, RunState
from function_app.ports import Ledger

VERSION = "v1"
LEFT_TO_PEOPLE = frozenset(
    {
        FailureClass.CONFIGURATION,
        FailureClass.DATA_CHANGED,
        FailureClass.IMAGE_BUILD,
        FailureClass.MISSING_RESOURCES,
        FailureClass.PACKAGES,
    }
)
"""Failures that storms cause and no further attempt follows: a person requests the run again."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Compares the ledger with the final content of storage."""

    fingerprints: Mapping[str, str | None]
    """Dataset → the fingerprint of its last content; None where a shard is missing."""
    ledger: Ledger

    def unfinished(self, runs: Iterable[RunRecord]) -> list[str]:
        """Return what is still to be done, in words."""
        of = {dataset: list[RunRecord]() for dataset in self.fingerprints}
        for run in runs:
            of[run.dataset_version.dataset].append(run)
        return [found for dataset, own in of.items() for found in self._unfinished(dataset, own)]

    def _unfinished(self, dataset: str, runs: list[RunRecord]) -> Iterator[str]:
        content = self.fingerprints[dataset]
        for run in runs:
            waits_for_ever = run.state is RunState.PLANNED and content is None
            ended = run.state is RunState.SUPPRESSED or run.next_run_id or run.notified_at
            if not ended and not waits_for_ever:
                yield f"{run.run_id} is {run.state}"
        if content is None:
            return
        trained = [run for run in runs if run.fingerprint == content and run.state in SETTLED]
        latest = self.ledger.latest_generation(DatasetVersion(dataset=dataset, version=VERSION))
        if latest is None or latest.fingerprint != content:
            yield f"{dataset} is not closed with its last content"
        elif not any(run.run_id == latest.auto_run_id for run in trained):
            yield f"{dataset} has no run of generation {latest.number} that has ended"
        elif self._to_be_asked(dataset, runs):
            yield f"{dataset} is to be requested again"

    def _to_be_asked(self, dataset: str, runs: Iterable[RunRecord]) -> RunRecord | None:
        """Return the last run on a dataset's last content where it ended without a model and a person is to go on.

        It failed and its notification says so, its shards were written meanwhile and no newer generation follows, or
        a person had to cancel it.
        """
        content = self.fingerprints[dataset]
        own = [run for run in runs if (run.dataset_version.dataset, run.fingerprint) == (dataset, content)]
        newest = max(own, key=lambda run: run.created_at, default=None)
        if newest is None or newest.notified_at is None or any(run.state is RunState.REGISTERED for run in own):
            return None
        return newest if newest.failure_class in LEFT_TO_PEOPLE or newest.canceled_by == PERSON else None

    def to_ask(self, runs: list[RunRecord]) -> list[RunRecord]:
        """Return the runs that a person requests again; the run of the last generation has to come by itself."""
        ready, known = [], {run.run_id for run in runs}
        for dataset, content in self.fingerprints.items():
            if run := self._to_be_asked(dataset, runs):
                latest = self.ledger.latest_generation(run.dataset_version)
                if latest is not None and latest.fingerprint == content and latest.auto_run_id in known:
                    ready.append(run)
        return ready
