"""Runs and their transitions: behaviour that both ledgers share."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from function_app.adapters.tables.row_limits import RecordTooLargeError
from function_app.domain.errors import IllegalTransitionError, LedgerConflictError
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import SETTLED, TRANSITIONS, RunState
from function_app.ports import Ledger
from tests.support.ledger_records import NOON, run_record
from tests.support.threads import at_once

EVERY_STEP = [(current, target) for current, targets in TRANSITIONS.items() for target in sorted(targets)]
EVERY_LEAP = [
    (current, target)
    for current, targets in TRANSITIONS.items()
    for target in RunState
    if target is not current and target not in targets
]


def added(ledger: Ledger, run: RunRecord) -> RunRecord:
    """Add a run; return it with its revision."""
    assert ledger.add_run(run)
    stored = ledger.run(run.run_id)
    assert stored is not None
    return stored


def without_revision(run: RunRecord | None) -> RunRecord | None:
    return None if run is None else replace(run, revision="")


def test_an_unknown_run_is_none(ledger: Ledger) -> None:
    """The result is None, not an error."""
    assert ledger.run("landfall-nothing-a1") is None


def test_a_run_is_returned_as_it_was_added(ledger: Ledger) -> None:
    """Every member is kept, including nested, long and empty ones."""
    run = run_record(
        state=RunState.FAILED,
        submitted_at=NOON,
        ended_at=NOON + timedelta(hours=3),
        notified_at=NOON + timedelta(hours=4),
        reason="",
        log_tail="Ünïcode ✓ \x1b[31mred\x1b[0m\r\n" * 2000,
        model_name="digits",
        model_version="1",
        metrics={"accuracy": 0.987654321012345, "loss": 1e-300},
        num_nodes=4,
        world_size=16,
        sweep_id="sweep-digits-v1-0123456789ab",
        sweep_number=2,
        spec={"environment_variables": {"A": "x" * 100_000}, "list": [1, None, True]},
    )
    assert run == without_revision(added(ledger, run))


def test_a_run_is_added_once(ledger: Ledger) -> None:
    """The insert is the claim: a second one returns False and changes nothing, even with another creation time."""
    first = run_record(1)
    later = run_record(2, run_id=first.run_id)
    assert [True, False, False] == [ledger.add_run(run) for run in (first, first, later)]
    assert first == without_revision(ledger.run(first.run_id))


def test_of_twenty_claims_of_a_run_one_wins(ledger: Ledger) -> None:
    """Twenty threads add the same run at once; one becomes its owner, and it is listed once."""
    runs = [run_record(n, run_id="landfall-digits-v1-0123456789ab-a1") for n in range(20)]
    won = at_once([partial(ledger.add_run, run) for run in runs])
    assert (1, [runs[won.index(True)]]) == (won.count(True), [without_revision(run) for run in ledger.runs()])


def test_saving_returns_what_is_on_record(ledger: Ledger) -> None:
    """The returned run has the new revision, so that it can be saved again at once."""
    run = added(ledger, run_record())
    run = ledger.save_run(replace(run, state=RunState.SUBMITTING))
    run = ledger.save_run(replace(run, state=RunState.SUBMITTED, submitted_at=NOON))
    assert run == ledger.run(run.run_id)


def test_every_write_changes_the_revision(ledger: Ledger) -> None:
    """This includes a write that changes nothing else."""
    run = added(ledger, run_record())
    assert run.revision != ledger.save_run(run).revision


def test_members_can_change_without_a_transition(ledger: Ledger) -> None:
    """A settled run can still be marked as notified."""
    run = added(ledger, run_record(state=RunState.FAILED))
    saved = ledger.save_run(replace(run, notified_at=NOON, reason="capacity"))
    assert (NOON, "capacity") == (saved.notified_at, saved.reason)


def test_a_member_can_be_emptied(ledger: Ledger) -> None:
    """Saving replaces the row, so a member that is None is not kept from before."""
    run = added(ledger, run_record(reason="image", log_tail="x" * 40_000))
    ledger.save_run(replace(run, reason=None, log_tail="short"))
    stored = ledger.run(run.run_id)
    assert stored is not None
    assert (None, "short") == (stored.reason, stored.log_tail)


@pytest.mark.parametrize(("current", "target"), EVERY_STEP)
def test_every_transition_of_the_table_is_taken(ledger: Ledger, current: RunState, target: RunState) -> None:
    """All transitions in TRANSITIONS are legal."""
    run = added(ledger, run_record(state=current))
    assert target == ledger.save_run(replace(run, state=target)).state


def test_no_other_transition_is_taken(ledger: Ledger) -> None:
    """Any other transition raises an error with both states, and changes nothing."""
    runs = {state: added(ledger, run_record(number, state=state)) for number, state in enumerate(RunState)}
    for current, target in EVERY_LEAP:
        run = runs[current]
        with pytest.raises(IllegalTransitionError) as caught:
            ledger.save_run(replace(run, state=target, reason="leap"))
        assert (current, target) == (caught.value.current, caught.value.target)
    assert runs == {state: ledger.run(run.run_id) for state, run in runs.items()}


def test_a_stale_revision_is_a_conflict(ledger: Ledger) -> None:
    """After another write, the caller must read and decide again."""
    run = added(ledger, run_record())
    ledger.save_run(replace(run, state=RunState.SUBMITTING))
    with pytest.raises(LedgerConflictError, match="read it again"):
        ledger.save_run(replace(run, state=RunState.CANCELED))


def test_a_stale_revision_is_a_conflict_before_it_is_illegal(ledger: Ledger) -> None:
    """A decision that is based on an old state is not valid for the new one."""
    run = added(ledger, run_record(state=RunState.RUNNING))
    ledger.save_run(replace(run, state=RunState.COMPLETED))
    with pytest.raises(LedgerConflictError, match="read it again"):
        ledger.save_run(replace(run, state=RunState.FAILED))


def test_a_run_that_was_never_added_cannot_be_saved(ledger: Ledger) -> None:
    """A save does not replace the claim."""
    with pytest.raises(LedgerConflictError, match="is not there"):
        ledger.save_run(run_record())
    assert [] == ledger.runs()


def test_of_twenty_writers_of_a_run_one_wins(ledger: Ledger) -> None:
    """Twenty threads end the same run in different ways; one succeeds, the others get a conflict."""
    run = added(ledger, run_record(state=RunState.RUNNING))

    def end(number: int) -> str | None:
        try:
            return ledger.save_run(replace(run, state=RunState.FAILED, reason=f"writer {number}")).reason
        except LedgerConflictError:
            return None

    reasons = [reason for reason in at_once([partial(end, number) for number in range(20)]) if reason is not None]
    stored = ledger.run(run.run_id)
    assert stored is not None
    assert [stored.reason] == reasons


def test_unfinished_runs_need_care(ledger: Ledger) -> None:
    """A run is unfinished until it is settled and its end notified; COMPLETED alone is not settled.

    The end of a suppressed run is not notified.
    """
    expected: set[str] = set()
    for number, state in enumerate(RunState):
        ledger.add_run(run_record(2 * number, state=state))
        notified = run_record(2 * number + 1, state=state, notified_at=NOON)
        ledger.add_run(notified)
        unnotified = {run_record(2 * number).run_id} if state is not RunState.SUPPRESSED else set()
        expected |= unnotified | ({notified.run_id} if state not in SETTLED else set())
    assert expected == {run.run_id for run in ledger.unfinished_runs()}


def test_a_run_is_unfinished_until_its_recipients_are_notified(ledger: Ledger) -> None:
    """It is listed in all states until then, with its current values."""
    run = added(ledger, run_record())
    way = [RunState.SUBMITTING, RunState.SUBMITTED, RunState.RUNNING, RunState.COMPLETED, RunState.REGISTERED]
    for state in way:
        run = ledger.save_run(replace(run, state=state))
        assert [run] == list(ledger.unfinished_runs())
    ledger.save_run(replace(run, notified_at=NOON))
    assert [] == list(ledger.unfinished_runs())


def test_a_finished_run_can_be_listed_again(ledger: Ledger) -> None:
    """When its mark is removed, it is listed as unfinished again."""
    run = added(ledger, run_record(state=RunState.LOST, notified_at=NOON))
    run = ledger.save_run(replace(run, notified_at=None))
    assert [run] == list(ledger.unfinished_runs())


def test_an_attempt_is_added_with_the_run_that_it_continues(ledger: Ledger) -> None:
    """Both rows change at once; the continued run needs no further handling."""
    run = added(ledger, run_record(state=RunState.FAILED, remedy="resume"))
    second = run_record(2, run_id=f"{run.logical_run}-a2", logical_run=run.logical_run, attempt=2)
    first, stored = ledger.add_attempt(replace(run, next_run_id=second.run_id), second)
    assert (stored, [stored]) == (ledger.run(second.run_id), list(ledger.unfinished_runs()))
    assert first == ledger.run(run.run_id)
    assert (second.run_id, "resume") == (first.next_run_id, first.remedy)


def test_of_eight_that_continue_a_run_one_wins(ledger: Ledger) -> None:
    """The others get a conflict, and there is one more attempt."""
    run = added(ledger, run_record(state=RunState.FAILED))
    second = run_record(2, run_id=f"{run.logical_run}-a2", attempt=2)

    def continue_run() -> bool:
        try:
            ledger.add_attempt(replace(run, next_run_id=second.run_id), second)
        except LedgerConflictError:
            return False
        return True

    assert (1, 2) == (at_once([continue_run] * 8).count(True), len(ledger.runs()))


def test_an_attempt_that_is_there_already_changes_nothing(ledger: Ledger) -> None:
    """The run that it would continue does not change."""
    run = added(ledger, run_record(1, state=RunState.FAILED))
    other = added(ledger, run_record(2))
    with pytest.raises(LedgerConflictError):
        ledger.add_attempt(replace(run, next_run_id=other.run_id), run_record(2))
    assert run == ledger.run(run.run_id)


def test_runs_come_newest_first(ledger: Ledger) -> None:
    """The order of adding does not matter, nor do differences of microseconds."""
    times = {number: NOON + timedelta(microseconds=number) for number in (5, 1, 9, 3)}
    for number, time in times.items():
        ledger.add_run(run_record(number, created_at=time))
    assert [times[n] for n in (9, 5, 3, 1)] == [run.created_at for run in ledger.runs()]


def test_runs_can_be_limited_and_asked_for_by_dataset(ledger: Ledger) -> None:
    """The limit counts the returned runs, not those that were read."""
    faces = DatasetVersion(dataset="it's faces", version="v1")
    for number in range(6):
        ledger.add_run(run_record(number, **({"dataset_version": faces} if number % 2 else {})))
    newest = [run.run_id for run in ledger.runs(limit=2, dataset="it's faces")]
    assert ([run_record(5).run_id, run_record(3).run_id], 4) == (newest, len(ledger.runs(limit=4)))


def test_runs_are_read_page_by_page(ledger: Ledger) -> None:
    """This includes runs of the same time; a state can be requested on any page."""
    states = [RunState.FAILED, RunState.PLANNED]
    for number in range(7):
        ledger.add_run(run_record(number, created_at=NOON + timedelta(seconds=number // 3), state=states[number % 2]))
    pages, last = [], None
    while page := ledger.runs(limit=2, older_than=last):
        pages.append([run.run_id for run in page])
        last = page[-1]
    assert [run.run_id for run in ledger.runs()] == [name for page in pages for name in page]
    failed = ledger.runs(state=RunState.FAILED, older_than=ledger.runs()[0])
    assert [run.run_id for run in ledger.runs()[1:] if run.state is RunState.FAILED] == [run.run_id for run in failed]


def test_a_spec_is_kept_whole_or_refused(ledger: Ledger) -> None:
    """A repetition must send exactly the same job, so a spec is never truncated."""
    with pytest.raises(RecordTooLargeError, match=r"spec has 2000\d\d characters of JSON; at most 131072 can"):
        ledger.add_run(run_record(spec={"command": "x" * 200_000}))


def test_the_end_of_a_long_log_is_kept(ledger: Ledger) -> None:
    """The last lines say why; half a surrogate pair does not break them."""
    run = added(ledger, run_record(log_tail="x" * 100_000 + "\ud83d out of memory"))
    assert run.log_tail is not None
    assert (64 << 10, "? out of memory") == (len(run.log_tail), run.log_tail[-15:])


def test_the_largest_run_fits(ledger: Ledger) -> None:
    """A spec, a log and a reason at their limits, in the characters that need the most space, fit into one row."""
    run = run_record(
        spec={"command": "x" * 131_000}, log_tail="\U0001f600" * (64 << 10), reason="\U0001f600" * (16 << 10)
    )
    assert run == without_revision(added(ledger, run))


def test_changing_a_spec_afterwards_does_not_change_the_ledger(ledger: Ledger) -> None:
    """The ledger keeps a copy of the dictionary."""
    spec = {"num_nodes": 2}
    run = run_record(spec=spec)
    ledger.add_run(run)
    spec["num_nodes"] = 100
    stored = ledger.run(run.run_id)
    assert stored is not None
    assert {"num_nodes": 2} == stored.spec
