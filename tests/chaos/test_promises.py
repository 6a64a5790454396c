"""The judgement of chaos evidence: every way in which a promise may break is found."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from function_app.domain.failures import FailureClass
from function_app.domain.jobs import TAG
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import RunState
from local_azure.azure_ml.faults import AnswerFault, LifeFault
from shared.manifest import Manifest, ManifestShard, fingerprint
from tests.chaos.evidence import Evidence, Model
from tests.chaos.faults import PlannedFault
from tests.chaos.plan import ChaosPlan, crcs_of
from tests.chaos.promises import not_accepted, promises, promises_of_faults, promises_of_requests
from tests.support.ledger_records import NOON, history_entry, run_record

PLAN = ChaosPlan(versions=1, shards=2, changed_fraction=0.0)
VERSION = DatasetVersion(dataset="chaos-000", version="v1")
CONTENTS = PLAN.last_contents()["chaos-000"]
OTHER = {name: PLAN.content(name, 1) for name in CONTENTS}
"""The same sizes with other labels."""


def manifest(contents: dict[str, bytes]) -> Manifest:
    """The manifest of a closing of these shards."""
    shards = tuple(
        ManifestShard(
            split=name.partition("-")[0],
            index=0,
            num_shards=1,
            name=name,
            size_bytes=len(content),
            crc32c=crcs_of(contents)[name],
            num_records=3,
        )
        for name, content in sorted(contents.items())
    )
    members = {"dataset": VERSION.dataset, "version": VERSION.version, "generation": 1, "data_format": "tfrecord"}
    return Manifest(**members, features=(), shards=shards, fingerprint=fingerprint(shards))  # type: ignore[arg-type]


RUN = run_record(
    1,
    state=RunState.REGISTERED,
    dataset_version=VERSION,
    generation=1,
    fingerprint=manifest(CONTENTS).fingerprint,
    trigger="closed",
    submitted_at=NOON,
)


def model(read: dict[str, bytes] = CONTENTS, **tags: str) -> Model:
    """The model of the run, of a training that read these shards."""
    lineage = {
        "run_id": RUN.run_id,
        "dataset_version": str(VERSION),
        "generation": "1",
        "fingerprint": RUN.fingerprint,
    }
    whole = hashlib.sha256(b"".join(read[name] for name in sorted(read)))
    return Model(
        run_id=RUN.run_id,
        tags={TAG + name: value for name, value in (lineage | tags).items()},
        read={"shards": crcs_of(read), "sha256": whole.hexdigest()},
        manifest=manifest(CONTENTS),
    )


FEWER = dict(list(CONTENTS.items())[:1])
GOOD = Evidence(
    runs=[RUN],
    jobs=[RUN.run_id],
    models=[model()],
    accepted={"chaos-000": crcs_of(CONTENTS)},
    closings={"chaos-000": [RUN.fingerprint]},
    commits={"chaos-000": [0, 2]},
    notified=Counter({(RUN.run_id, "topic", "registered"): 1, (RUN.run_id, "webhook", "registered"): 1}),
    deliveries=2,
    suppressed=[],
    dead_letters=0,
    events={},
    failed_calls=Counter(),
    faults=(),
)


def test_good_evidence_keeps_every_promise() -> None:
    """One run, one model, both recipients notified once."""
    assert [] == [finding.name for finding in promises(PLAN, GOOD) if not finding.holds]


@pytest.mark.parametrize("outcome", ["dead_letter", "version_waiting", "version_dropped"])
def test_a_notification_that_is_not_about_an_end_breaks_no_promise(outcome: str) -> None:
    """A message may be killed five times, and a version may wait in line or lose its place to a newer generation."""
    notified = GOOD.notified + Counter({(RUN.run_id, "topic", outcome): 1})
    findings = promises(PLAN, replace(GOOD, notified=notified, dead_letters=1))
    assert [] == [finding.name for finding in findings if not finding.holds]


SECOND = replace(RUN, run_id="landfall-second-a1", logical_run="landfall-second")
BROKEN = {
    "a shard is not accepted": replace(GOOD, accepted={"chaos-000": crcs_of(FEWER)}),
    "an earlier shard is accepted": replace(GOOD, accepted={"chaos-000": crcs_of(OTHER)}),
    "a second run": replace(GOOD, runs=[RUN, SECOND], jobs=[RUN.run_id, SECOND.run_id]),
    "no model": replace(GOOD, runs=[replace(RUN, state=RunState.FAILED)], models=[]),
    "an orphan": replace(GOOD, jobs=[RUN.run_id, "an-orphan"]),
    "no job": replace(GOOD, jobs=[]),
    "two models": replace(GOOD, models=[model(), model()]),
    "a model of other bytes": replace(GOOD, models=[model(OTHER)]),
    "a model of fewer shards": replace(GOOD, models=[model(FEWER)]),
    "a model of bytes in another order": replace(
        GOOD, models=[replace(model(), read={**model().read, "sha256": model(OTHER).read["sha256"]})]
    ),
    "a model of another generation": replace(GOOD, models=[model(generation="2")]),
    "closed twice": replace(GOOD, closings={"chaos-000": [RUN.fingerprint, RUN.fingerprint]}),
    "a commit closed twice": replace(GOOD, commits={"chaos-000": [0, 1, 1]}),
    "a commit closed after a later one": replace(GOOD, commits={"chaos-000": [0, 2, 1]}),
    "never closed": replace(GOOD, closings={"chaos-000": []}),
    "closed with other content": replace(GOOD, closings={"chaos-000": [manifest(OTHER).fingerprint]}),
    "not notified": replace(GOOD, notified=Counter({(RUN.run_id, "topic", "registered"): 1})),
    "notified twice": replace(GOOD, notified=Counter({(RUN.run_id, r, "registered"): 2 for r in ("topic", "w")})),
    "wrong outcome": replace(GOOD, notified=Counter({(RUN.run_id, r, "failed"): 1 for r in ("topic", "w")})),
    "unexplained": replace(GOOD, suppressed=[history_entry(reason="")]),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_each_broken_promise_is_found(broken: Evidence) -> None:
    """A lost shard, a second run, an orphan, a model of other data, a doubled notification: none holds."""
    assert [] != [finding.name for finding in promises(PLAN, broken) if not finding.holds]


PREEMPTED = replace(RUN, state=RunState.FAILED, failure_class=FailureClass.PREEMPTED, next_run_id=SECOND.run_id)
CAPACITY, SLOW = (
    PlannedFault(fault=fault, dataset="chaos-000") for fault in (LifeFault.CAPACITY, LifeFault.SLOW_BUILD)
)
TAKEN_AWAY = (LifeFault.PREEMPTED, RUN.run_id)


def broken_by_faults(runs: list[RunRecord], met: Sequence[tuple[str, str]], *planned: PlannedFault) -> list[str]:
    """The names of the findings about faults that do not hold."""
    findings = promises_of_faults(planned, replace(GOOD, runs=runs, faults=met))
    return [finding.name for finding in findings if not finding.holds]


def test_a_planned_fault_that_nothing_met_breaks_the_storm_s_own_promise() -> None:
    """The fault is named; one that was met once instead of twice counts as not met."""
    twice = PlannedFault(fault=AnswerFault.LOST_BEFORE, dataset="chaos-000", times=2)
    met = [(AnswerFault.LOST_BEFORE, RUN.run_id), (LifeFault.SLOW_BUILD, RUN.run_id)]
    names = broken_by_faults([RUN], met, twice, SLOW, CAPACITY)
    assert ["fault capacity was met", "fault lost_before was met"] == names


@pytest.mark.parametrize(
    "run",
    [
        PREEMPTED,
        replace(PREEMPTED, failure_class=FailureClass.DATA_CHANGED),
        replace(RUN, state=RunState.CANCELED),
    ],
    ids=["as the fault", "data changed", "canceled"],
)
def test_a_run_that_ends_as_its_fault_or_before_it_breaks_nothing(run: RunRecord) -> None:
    """A person or a change of data may end it first."""
    assert [] == broken_by_faults([run], [TAKEN_AWAY], PlannedFault(fault=LifeFault.PREEMPTED, dataset="chaos-000"))


@pytest.mark.parametrize(
    ("run", "met", "name"),
    [
        (RUN, [TAKEN_AWAY], "runs that ended otherwise than their fault"),
        (
            replace(PREEMPTED, failure_class=FailureClass.UNKNOWN),
            [TAKEN_AWAY],
            "runs that ended otherwise than their fault",
        ),
        (PREEMPTED, [], "runs that failed without a cause"),
        (PREEMPTED, [(LifeFault.SLOW_BUILD, RUN.run_id)], "runs that failed without a cause"),
        (replace(RUN, state=RunState.LOST), [], "runs that failed without a cause"),
    ],
)
def test_a_run_that_ends_otherwise_than_its_fault_is_found(
    run: RunRecord, met: list[tuple[str, str]], name: str
) -> None:
    """A fault that is not noticed, one of another class, and a failure that no fault explains."""
    assert name in broken_by_faults([run], met)


def test_a_requested_run_without_a_request_is_found() -> None:
    """A request whose answer was lost counts as one."""
    evidence = replace(GOOD, runs=[RUN, replace(SECOND, trigger="http")])
    holds = [promises_of_requests(Counter({"chaos-000": n}), evidence)[0].holds for n in (0, 1, 2)]
    assert [False, True, True] == holds


def test_what_is_not_accepted_is_named() -> None:
    """A verdict on a file that is no more counts only where the layout asks for the file."""
    last = {"a": "00000001", "b": "00000002"}
    accepted = {"b": "00000003", "c": "00000004"}
    evidence = replace(GOOD, accepted={"chaos-000": accepted, "chaos-004": {**last, "c": "00000004"}})
    assert "chaos-000: missing ['a'], superfluous ['c'], other ['b']" == not_accepted("chaos-000", last, evidence)
    assert not not_accepted("chaos-004", last, evidence)
