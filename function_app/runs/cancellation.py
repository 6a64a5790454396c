"""Cancel runs: immediately if Azure ML has no job, otherwise by canceling the job and waiting for its end."""

from __future__ import annotations

from contextlib import suppress

from function_app.domain.errors import NotFoundError, RunEndedError
from function_app.domain.option_sweeps import OptionSweep, SweepVerdict
from function_app.domain.records import GENERATION, PERSON, RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.runs.admission import last_attempt
from function_app.runs.ending import ask_cancel, end_run, mark_canceled
from function_app.runs.following import FOLLOWED, follow_run
from function_app.runs.option_sweeps import claim_verdict, go_on, has_ended, read_sweep, runs_of
from function_app.services import RunServices


def cancel_run(run_id: str, *, canceled_by: str, reason: str, services: RunServices) -> RunRecord:
    """Cancel the last attempt of a run; repeating it changes nothing.

    Raises NotFoundError, and RunEndedError if the run has ended otherwise.
    """
    attempt = last_attempt(run_id, services.ledger)
    if attempt is None:
        raise NotFoundError(f"run {run_id} is not on record")
    run = mark_canceled(attempt, canceled_by, reason, services)
    ended = run.state is RunState.COMPLETED or (run.state in SETTLED and run.state is not RunState.CANCELED)
    if ended and run.canceled_by is None:
        raise RunEndedError(f"run {run.run_id} cannot be canceled: it is {run.state}")
    by = Actor.PERSON if canceled_by == PERSON else Actor.SUBMISSION
    if run.state in FOLLOWED:
        ask_cancel(run, services.jobs)
        return follow_run(run, services)
    return end_run(run, services, by=by)


def cancel_sweep(sweep_id: str, *, reason: str, services: RunServices) -> OptionSweep:
    """Cancel an option sweep and its runs; repeating it changes nothing.

    Raises NotFoundError, and RunEndedError where it has ended otherwise.
    """
    sweep = read_sweep(sweep_id, services.documents)
    verdict = claim_verdict(sweep, SweepVerdict(reason=reason, is_canceled=True), services)
    if not verdict.is_canceled:
        raise RunEndedError(f"option sweep {sweep_id} cannot be canceled: it has ended: {verdict.reason}")
    for run in runs_of(sweep, services.ledger):
        if not has_ended(run):
            with suppress(RunEndedError):  # it has ended in the meantime
                cancel_run(run.run_id, canceled_by=PERSON, reason=verdict.reason, services=services)
    go_on(sweep_id, services)
    return sweep


def cancel_superseded(run: RunRecord, services: RunServices) -> None:
    """Cancel the active run on an older generation of the same version, so that this run can be admitted."""
    active = services.ledger.run_queue().running_of(run.pipeline)
    version = run.dataset_version
    if active is None or (active.dataset, active.version) != (version.dataset, version.version):
        return
    if active.generation < run.generation:
        reason = f"superseded by generation {run.generation}"
        try:
            cancel_run(active.first_run_id, canceled_by=GENERATION, reason=reason, services=services)
        except RunEndedError as error:
            services.history.record(active.first_run_id, "cancel_suppressed", str(error))
