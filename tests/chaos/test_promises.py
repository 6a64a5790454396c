"""The judgement of chaos evidence: every way in which a promise may break is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from function_app.domain.run_states import RunState
from tests.chaos.evidence import Evidence
from tests.chaos.plan import ChaosPlan
from tests.chaos.promises import promises
from tests.support.ledger_records import history_entry, run_record

PLAN = ChaosPlan(versions=1, shards=2)
RUN = run_record(1, state=RunState.REGISTERED)
GOOD = Evidence(
    runs=[RUN],
    jobs=[RUN.run_id],
    models=Counter({RUN.run_id: 1}),
    accepted=2,
    generations=Counter({"chaos-000/v1": 1}),
    notified=Counter({(RUN.run_id, "topic", "registered"): 1, (RUN.run_id, "webhook", "registered"): 1}),
    deliveries=2,
    suppressed=[],
    dead_letters=0,
    events={},
    failed_calls=Counter(),
)


def test_good_evidence_keeps_every_promise() -> None:
    """One run, one model, both recipients notified once."""
    assert [] == [finding.name for finding in promises(PLAN, GOOD) if not finding.holds]


def test_a_notification_of_a_dead_letter_breaks_no_promise() -> None:
    """On a busy machine a message may be killed five times; the sweep then completes its work and notifies."""
    notified = GOOD.notified + Counter({(RUN.run_id, "topic", "dead_letter"): 1})
    findings = promises(PLAN, replace(GOOD, notified=notified, dead_letters=1))
    assert [] == [finding.name for finding in findings if not finding.holds]


@pytest.mark.parametrize(
    "broken",
    [
        replace(GOOD, accepted=1),
        replace(GOOD, runs=[RUN, run_record(2, state=RunState.REGISTERED)]),
        replace(GOOD, runs=[run_record(1, state=RunState.FAILED)]),
        replace(GOOD, jobs=[RUN.run_id, "an-orphan"]),
        replace(GOOD, models=Counter({RUN.run_id: 2})),
        replace(GOOD, generations=Counter({"chaos-000/v1": 2})),
        replace(GOOD, notified=Counter({(RUN.run_id, "topic", "registered"): 1})),
        replace(GOOD, notified=Counter({(RUN.run_id, r, "registered"): 2 for r in ("topic", "webhook")})),
        replace(GOOD, notified=Counter({(RUN.run_id, r, "failed"): 1 for r in ("topic", "webhook")})),
        replace(GOOD, suppressed=[history_entry(reason="")]),
    ],
    ids=[
        "shard",
        "runs",
        "failed",
        "orphan",
        "models",
        "closings",
        "not notified",
        "notified twice",
        "wrong outcome",
        "unexplained",
    ],
)
def test_each_broken_promise_is_found(broken: Evidence) -> None:
    """A lost shard, a second run, an orphan, a doubled model or notification: none holds."""
    assert [] != [finding.name for finding in promises(PLAN, broken) if not finding.holds]
