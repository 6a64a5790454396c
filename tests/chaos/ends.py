"""When a chaos run is over: nothing is under way, and each version that is whole has a model of its last content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from function_app.domain.failures import FailureClass
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import SETTLED, RunState
from function_app.ports import Ledger

VERSION = "v1"


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Compares the ledger with what lies in storage in the end."""

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
        elif self.is_to_be_asked(dataset, runs):
            yield f"{dataset} is to be requested again"

    def is_to_be_asked(self, dataset: str, runs: Iterable[RunRecord]) -> bool:
        """Whether the last run on a dataset's last content ended because its shards were written meanwhile.

        No newer generation follows then; the notification says what to do.
        """
        content = self.fingerprints[dataset]
        own = [run for run in runs if (run.dataset_version.dataset, run.fingerprint) == (dataset, content)]
        newest = max(own, key=lambda run: run.created_at, default=None)
        has_model = any(run.state is RunState.REGISTERED for run in own)
        return (
            newest is not None
            and newest.notified_at is not None
            and not has_model
            and newest.failure_class == FailureClass.DATA_CHANGED
        )

    def to_ask(self, runs: list[RunRecord]) -> list[str]:
        """Return the datasets that a person requests again; the run of the last generation has to come by itself."""
        ready = []
        for dataset, content in self.fingerprints.items():
            latest = self.ledger.latest_generation(DatasetVersion(dataset=dataset, version=VERSION))
            own_run = latest is not None and latest.fingerprint == content and latest.auto_run_id
            if own_run in {run.run_id for run in runs} and self.is_to_be_asked(dataset, runs):
                ready.append(dataset)
        return ready
