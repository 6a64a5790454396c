"""Option sweeps: runs of one dataset version with different options, of which the best one is registered."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from function_app.domain.errors import OptionSweepError
from function_app.domain.jobs import SPEC_HASH_TAG
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import SETTLED, RunState

MAX_RUNS = 32
"""Maximum number of runs of one sweep, because a decision reads all of them."""
SWEEP_PREFIX = "sweep-"
"""Prefix of the ids of option sweeps; no run's id begins with it."""
ENDED = frozenset({*SETTLED, RunState.COMPLETED})
"""States of a run that does not train any more; a completed run waits for the comparison."""


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """One run of an option sweep, as it was planned."""

    options: Mapping[str, Any]
    """The run's values of the options that differ."""
    spec: Mapping[str, Any]
    """The job of the first attempt."""

    @property
    def run_id(self) -> str:
        """The first attempt's run id."""
        return str(self.spec["name"])


@dataclass(frozen=True, kw_only=True)
class OptionSweep:
    """The request for a sweep, written once. Its progress is in the rows of its runs and in its verdict."""

    sweep_id: str
    dataset: str
    version: str
    generation: int
    fingerprint: str
    pipeline: str
    trigger: str
    asked_at: datetime
    forced_by: str | None
    """Idempotency key of the request that forced it; None if it was not forced."""
    max_node_hours: float
    """The limit in the request, which the sum of the runs' time limits does not exceed."""
    metric: str | None
    """The metric to compare runs by: the first one that the registration requires; None if there is none."""
    higher_is_better: bool
    runs: tuple[SweepRun, ...]

    @property
    def dataset_version(self) -> DatasetVersion:
        """What the runs train on."""
        return DatasetVersion(dataset=self.dataset, version=self.version)

    @property
    def num_nodes(self) -> int:
        """Nodes of each run."""
        return int(self.runs[0].spec["num_nodes"])

    @property
    def node_hours(self) -> float:
        """Maximum node-hours of all runs: the sum of nodes times time limit."""
        return sum(int(run.spec["num_nodes"]) * int(run.spec["timeout_s"]) for run in self.runs) / 3600

    def row(self, number: int, now: datetime) -> RunRecord:
        """Return the ledger's row of a run, numbered from 1."""
        spec = self.runs[number - 1].spec
        run_id, num_nodes = str(spec["name"]), int(spec["num_nodes"])
        return RunRecord(
            run_id=run_id,
            logical_run=run_id.rpartition("-a")[0],
            attempt=1,
            dataset_version=self.dataset_version,
            generation=self.generation,
            fingerprint=self.fingerprint,
            pipeline=self.pipeline,
            trigger=self.trigger,
            spec=spec,
            spec_hash=str(spec["tags"][SPEC_HASH_TAG]),
            created_at=now,
            asked_at=self.asked_at,
            state_since=now,
            forced_by=self.forced_by,
            num_nodes=num_nodes,
            world_size=num_nodes * int(spec["processes_per_node"]),
            sweep_id=self.sweep_id,
            sweep_number=number,
        )

    def to_json(self) -> bytes:
        """Return the content of its document."""
        return json.dumps({**asdict(self), "asked_at": self.asked_at.isoformat()}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read what `to_json` wrote."""
        members = json.loads(text)
        runs = tuple(SweepRun(**run) for run in members["runs"])
        return cls(**{**members, "asked_at": datetime.fromisoformat(members["asked_at"]), "runs": runs})


@dataclass(frozen=True, kw_only=True)
class SweepVerdict:
    """The result of an option sweep; the first verdict is final."""

    reason: str
    best: str | None = None
    """The run whose model is registered; None if no model is."""
    is_canceled: bool = False
    is_spent: bool = False
    """Whether repeating the request starts another sweep."""

    def to_text(self) -> str:
        """Return the text of its mark."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))


def verdict_on(sweep: OptionSweep, passing: Mapping[str, float]) -> SweepVerdict:
    """Return the verdict; ``passing`` is run → metric, in order, for the runs whose models may be registered.

    If several runs are equally good, the first one is the best.
    """
    if not passing:
        return SweepVerdict(reason="no run of the sweep meets the requirements of the registration")
    best = (max if sweep.higher_is_better else min)(passing, key=lambda run_id: passing[run_id])
    of = "the only run" if len(passing) == 1 else f"the best of {len(passing)} runs"
    reason = f"{of} that may be registered: {sweep.metric} {passing[best]:.6g}"
    return SweepVerdict(best=best, reason=reason)


def option_sets(values: Mapping[str, Sequence[Any]], listed: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the options of each run: the listed ones, or all combinations of values, the last name varying fastest.

    Raises OptionSweepError if the request has neither or both, or if there are too many runs.
    """
    if bool(values) == bool(listed):
        raise OptionSweepError("state either a grid of values or a list of runs")
    num_runs = math.prod(map(len, values.values())) if values else len(listed)
    _check_number(num_runs)
    return list(listed) or [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def _check_number(num_runs: int) -> None:
    if not 1 < num_runs <= MAX_RUNS:
        raise OptionSweepError(f"a sweep has 2 to {MAX_RUNS} runs; this one has {num_runs}")


def check_bound(num_runs: int, num_nodes: int, timeout_s: int, max_node_hours: float) -> None:
    """Raise OptionSweepError if a sweep is too large, or may take more node-hours than its request allows."""
    _check_number(num_runs)
    node_hours = num_runs * num_nodes * timeout_s / 3600
    if node_hours > max_node_hours:
        raise OptionSweepError(
            f"{num_runs} runs of {num_nodes} {'node' if num_nodes == 1 else 'nodes'} with a time limit of "
            f"{timeout_s / 3600:.4g} h may take {node_hours:.4g} node-hours, but {max_node_hours:.4g} are allowed: "
            "allow more, request fewer runs, or lower train.timeout_s of the pipeline"
        )
