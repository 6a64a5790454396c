"""When a chaos run is over: what keeps it going, and what a person has to request again."""

from __future__ import annotations

from typing import Any

import pytest

from function_app.domain.failures import FailureClass
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import RunState
from function_app.testing.ledger import MemoryLedger
from tests.chaos.ends import Ends
from tests.support.ledger_records import NOON, generation_record, run_record

VERSION = DatasetVersion(dataset="chaos-000", version="v1")
CONTENT = "f" * 64


def ends(own_run: str | None = None, *, is_whole: bool = True) -> Ends:
    """A version that was closed with its last content, and that perhaps has a run."""
    ledger = MemoryLedger()
    ledger.add_generation(generation_record(dataset_version=VERSION, fingerprint=CONTENT, auto_run_id=own_run))
    return Ends(fingerprints={"chaos-000": CONTENT if is_whole else None}, ledger=ledger)


def run(state: RunState, **members: Any) -> RunRecord:
    """The run of that closing, whose end was notified."""
    return run_record(dataset_version=VERSION, state=state, **{"notified_at": NOON, **members})


CHANGED = run(RunState.NOT_REGISTERED, failure_class=FailureClass.DATA_CHANGED)
RUN_ID = CHANGED.run_id


def test_a_registered_run_of_the_last_content_is_an_end() -> None:
    """Nothing is left to do or to request again."""
    runs = [run(RunState.REGISTERED)]
    assert ([], []) == (ends(RUN_ID).unfinished(runs), ends(RUN_ID).to_ask(runs))


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([], "chaos-000 has no run of generation 1 that has ended"),
        ([run(RunState.RUNNING, notified_at=None)], f"{RUN_ID} is running"),
        ([run(RunState.REGISTERED, notified_at=None)], f"{RUN_ID} is registered"),
        ([CHANGED], "chaos-000 is to be requested again"),
    ],
)
def test_what_is_left_to_do_is_no_end(runs: list[RunRecord], problem: str) -> None:
    """The first reason says what."""
    assert problem == ends(RUN_ID).unfinished(runs)[0]


def test_a_version_that_was_not_closed_with_its_last_content_is_no_end() -> None:
    """Its last upload has not been noticed yet."""
    later = Ends(fingerprints={"chaos-000": "e" * 64}, ledger=ends().ledger)
    assert ["chaos-000 is not closed with its last content"] == later.unfinished([run(RunState.REGISTERED)])


def test_a_run_whose_data_changed_is_requested_again() -> None:
    """Its notification says so; no newer generation follows."""
    assert [CHANGED] == ends(RUN_ID).to_ask([CHANGED])


def test_the_run_of_a_newer_generation_is_not_requested_by_hand() -> None:
    """It has to come by itself."""
    assert ([], []) == (ends().to_ask([CHANGED]), ends("landfall-newer-a1").to_ask([CHANGED]))


def test_a_run_that_waits_for_a_deleted_shard_is_an_end() -> None:
    """Nothing else follows while the shard is missing."""
    waiting = [run(RunState.PLANNED, notified_at=None)]
    assert ([], [f"{RUN_ID} is planned"]) == (
        ends(is_whole=False).unfinished(waiting),
        ends(RUN_ID).unfinished(waiting)[:1],
    )
