"""What the evidence is judged by: each way in which a promise may break is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bench.chaos.evidence import Evidence
from bench.chaos.plan import ChaosPlan
from bench.chaos.promises import promises
from function_app.domain.run_states import RunState
from tests.support.ledger_records import decision_record, run_record

PLAN = ChaosPlan(versions=1, shards=2)
RUN = run_record(1, state=RunState.REGISTERED)
GOOD = Evidence(
    runs=[RUN],
    jobs=[RUN.run_id],
    models=Counter({RUN.run_id: 1}),
    accepted=2,
    generations=Counter({"chaos-000/v1": 1}),
    told=Counter({(RUN.run_id, "topic", "registered"): 1, (RUN.run_id, "webhook", "registered"): 1}),
    deliveries=2,
    suppressed=[],
    dead_letters=0,
    events={},
    bad_answers=Counter(),
)


def test_good_evidence_keeps_every_promise() -> None:
    """One run, one model, both recipients told once."""
    assert [] == [figure.name for figure in promises(PLAN, GOOD) if not figure.holds]


@pytest.mark.parametrize(
    "broken",
    [
        replace(GOOD, accepted=1),
        replace(GOOD, runs=[RUN, run_record(2, state=RunState.REGISTERED)]),
        replace(GOOD, runs=[run_record(1, state=RunState.FAILED)]),
        replace(GOOD, jobs=[RUN.run_id, "an-orphan"]),
        replace(GOOD, models=Counter({RUN.run_id: 2})),
        replace(GOOD, generations=Counter({"chaos-000/v1": 2})),
        replace(GOOD, told=Counter({(RUN.run_id, "topic", "registered"): 1})),
        replace(GOOD, told=Counter({(RUN.run_id, r, "registered"): 2 for r in ("topic", "webhook")})),
        replace(GOOD, told=Counter({(RUN.run_id, r, "failed"): 1 for r in ("topic", "webhook")})),
        replace(GOOD, suppressed=[decision_record(reason="")]),
    ],
    ids=["shard", "runs", "failed", "orphan", "models", "closings", "untold", "twice", "untrue", "unexplained"],
)
def test_each_broken_promise_is_seen(broken: Evidence) -> None:
    """A lost shard, a second run, an orphan, a doubled model or notification: none holds."""
    assert [] != [figure.name for figure in promises(PLAN, broken) if not figure.holds]
