"""From a training request to one Azure ML job: claim, act under a deterministic name, record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import (
    LedgerConflictError,
    NotFoundError,
    ServiceUnavailableError,
    SubmissionRefusedError,
)
from function_app.domain.events import TrainingRequest
from function_app.domain.failures import CORRECTABLE, Remedy
from function_app.domain.jobs import TAG, Plan, plan_run, planned_run, spec_from_json, with_tags
from function_app.domain.records import Generation, RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.ingest.closing import CLOSED, starts_run
from function_app.ingest.drift import is_blocked_by_drift
from function_app.ingest.stored_shards import StoredShards, data_in_storage, reject_gone
from function_app.notify.messages import notify_of_progress
from function_app.notify.outbox import deliver
from function_app.planning.planner import prediction
from function_app.ports import RunsLedger
from function_app.runs.admission import admit, last_attempt, release, why_held
from function_app.runs.attempts import record_remedy, refusal_members
from function_app.runs.cancellation import cancel_superseded
from function_app.runs.ending import ask_cancel, end_run, obey_sweep
from function_app.runs.mistakes import mistake
from function_app.runs.transitions import change_run, move_run
from function_app.services import RunServices
from shared.errors import LandfallError
from shared.job_arguments import TrainingOptions
from shared.safe_text import counted
from shared.traces import place_of_run

logger = logging.getLogger(__name__)

FORCED_TAG = TAG + "forced"
MAX_NAMES = 100
"""Maximum names of one request: how often the same training may be given up before force is needed."""
MAX_EARLIER = 50
"""Maximum versions that one request puts in line before its own; each takes as long as a request."""
MAX_RUNS = 1000
"""Runs of a dataset that are searched for those that are not in line."""
TRAINED = frozenset({RunState.COMPLETED, RunState.REGISTERED, RunState.NOT_REGISTERED})
"""States of runs whose training would give the same result again."""


def handle_request(request: TrainingRequest, services: RunServices) -> None:
    """Handle one training request up to its job. Raises ServiceUnavailableError if it should be delivered again."""
    run = _claimed_run(request, services) if request.run_id is None else services.ledger.run(request.run_id)
    if run is None and request.run_id is not None:
        raise NotFoundError(f"training request names run {request.run_id}, which is not on record")
    if run is not None:
        submit_run(run, services)


def submit_run(run: RunRecord, services: RunServices, *, by: Actor = Actor.SUBMISSION) -> RunRecord:
    """Submit a planned run, or submit a run of a dead handler again under the same name.

    Raises ServiceUnavailableError if Azure ML did not answer: the claim is given back, and another delivery or the
    sweep tries again.
    """
    if run.sweep_id is not None:
        run = obey_sweep(run, services)
    etags, written_at = run.data_etags, None
    if run.state is RunState.PLANNED:
        stored = _to_submit(run, services, by)
        if stored is None:
            return run
        etags, written_at = stored.etags, stored.written_at
    run, claimed = _claim_submission(run, etags, services)
    if not claimed:
        until = run.claimed_until if run.state is RunState.SUBMITTING else None
        claim = f": another handler submits it, until {until:%Y-%m-%d %H:%M:%S} UTC at the latest" if until else ""
        services.history.record(run.run_id, "request_suppressed", f"the run is already {run.state}{claim}")
        return end_run(run, services, by=by)
    try:
        if run.cancel_requested_at is not None and services.jobs.status(run.run_id) is None:
            return _never_submitted(run, services, by)
        if found := mistake(run, services):
            return _refused(run, *found, services, by)
        with services.telemetry.span("submitted", place_of_run(run.dataset_version, run.run_id), run_id=run.run_id):
            services.jobs.submit(spec_from_json(run.spec))
        _measure_delay(run, written_at, services)
    except SubmissionRefusedError as error:
        return _refused(run, str(error), refusal_members(run, error, services), services, by)
    except Exception as error:
        change_run(services.ledger, run, _without_claim)
        if by is Actor.SUBMISSION and isinstance(error, ServiceUnavailableError):  # the sweep reports its own
            services.history.record(run.run_id, "submission_delayed", f"{error}; it is submitted again")
        raise
    return _submitted(run, services, by)


def _measure_delay(run: RunRecord, written_at: datetime | None, services: RunServices) -> None:
    """Measure the time from the last upload to the submission of the run that the closing started by itself."""
    if written_at is not None and run.trigger == CLOSED and run.attempt == 1:
        delay_s = (services.clock() - written_at).total_seconds()
        services.telemetry.measure("landfall.submission.delay", delay_s, dataset=run.dataset_version.dataset)


def _to_submit(run: RunRecord, services: RunServices, by: Actor) -> StoredShards | None:
    """Return a planned run's data if it may be submitted now: it is due and admitted, and its data are unchanged."""
    if outage := services.outage(run.dataset_version.dataset):
        _wait(run, outage, services, by)
        return None
    if run.not_before is not None and services.clock() < run.not_before:
        if by is Actor.SUBMISSION:  # the sweep looks at it every few minutes
            reason = f"it is not submitted before {run.not_before:%Y-%m-%d %H:%M:%S} UTC"
            services.history.record(run.run_id, "request_suppressed", reason)
        return None
    if untrainable := _why_untrainable(run, services):
        _give_up(run, f"{untrainable} before it was submitted", services, by)
        return None
    stored = data_in_storage(run, services)
    if stored.problem is not None:  # until the data are as they were accepted, or a newer generation takes its place
        reject_gone(stored.gone, services)
        _wait(run, f"its data differ from those that were accepted: {stored.problem}", services, by)
    elif run.data_etags not in (None, stored.etags):
        _give_up(run, "its shards were written again since its first attempt", services, by)
    elif admit(run, services, by=by):
        return stored
    return None


def _wait(run: RunRecord, reason: str, services: RunServices, by: Actor) -> None:
    """Let a planned run wait: others may take its place, and the sweep tries it again."""
    if by is Actor.SUBMISSION:  # the sweep looks at it every few minutes
        services.history.record(run.run_id, "request_suppressed", f"it waits: {reason}")
    release(run, services, by=by)


def _why_untrainable(run: RunRecord, services: RunServices) -> str | None:
    """Return why a run's data can no longer be trained on; None if they can."""
    latest = services.ledger.latest_generation(run.dataset_version)
    if latest is not None and latest.number > run.generation:
        return f"superseded by generation {latest.number}"
    if run.forced_by is not None:
        return None
    held = why_held(run.dataset_version, run.generation, services.ledger)
    return None if held is None else f"its data were put on hold ({held})"


def _give_up(run: RunRecord, reason: str, services: RunServices, by: Actor) -> None:
    """End a run before its submission. For a later attempt people are notified of the logical run's end."""
    target = RunState.SUPPRESSED if run.attempt == 1 else RunState.CANCELED
    now = services.clock()
    run, moved = move_run(services.ledger, run, target, by=by, now=now, ended_at=now, reason=reason)
    if moved:
        services.history.record(run.run_id, f"run_{run.state}", reason, by=by)
    end_run(run, services, by=by)


def _claim_submission(run: RunRecord, etags: str | None, services: RunServices) -> tuple[RunRecord, bool]:
    """Claim the submission of a run; return the run, and whether this caller is to submit it."""
    claimed, now = False, services.clock()

    def change(run: RunRecord) -> RunRecord | None:
        nonlocal claimed
        abandoned = run.state is RunState.SUBMITTING and (run.claimed_until is None or run.claimed_until <= now)
        claimed = run.state is RunState.PLANNED or abandoned
        if not claimed:
            return None
        since = run.state_since if abandoned else now
        until = now + services.claim_lease
        return replace(
            run, state=RunState.SUBMITTING, state_since=since, claimed_until=until, data_etags=etags or run.data_etags
        )

    return change_run(services.ledger, run, change), claimed


def _without_claim(run: RunRecord) -> RunRecord | None:
    return replace(run, claimed_until=None) if run.state is RunState.SUBMITTING else None


def _never_submitted(run: RunRecord, services: RunServices, by: Actor) -> RunRecord:
    """End a run that was canceled after its first handler had died and before Azure ML had the job."""
    now, reason = services.clock(), run.cancel_reason
    run, moved = move_run(services.ledger, run, RunState.CANCELED, by=by, now=now, ended_at=now, reason=reason)
    if moved:
        services.history.record(run.run_id, "run_canceled", reason or "", by=by)
    return end_run(run, services, by=by)


def _submitted(run: RunRecord, services: RunServices, by: Actor) -> RunRecord:
    now = services.clock()
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    # Before the transition, so that it is repeated after a crash in between.
    is_fresh = bool(pipeline and pipeline.has_own_outcomes) and notify_of_progress(run, "run_submitted", services)
    predicted = prediction(run, services)
    run, moved = move_run(
        services.ledger, run, RunState.SUBMITTED, by=by, now=now, submitted_at=now, prediction=predicted
    )
    if run.cancel_requested_at is not None:
        ask_cancel(run, services.jobs)  # it was requested while the job was being submitted
    if moved:
        ranks = f"{counted(run.num_nodes, 'node')}, {counted(run.world_size or 0, 'process', 'processes')}"
        reason = f"submitted to {run.spec['compute']}: {ranks}"
        services.history.record(run.run_id, "run_submitted", reason, spec_hash=run.spec_hash)
        services.history.record(str(run.dataset_version), "run_submitted", f"run {run.run_id}", trigger=run.trigger)
    if is_fresh:
        deliver(run.run_id, services)
    return run


def _refused(run: RunRecord, problem: str, found: Mapping[str, Any], services: RunServices, by: Actor) -> RunRecord:
    now = services.clock()
    run, moved = move_run(
        services.ledger, run, RunState.FAILED, by=by, now=now, ended_at=now, reason=problem, **found
    )
    if moved:
        services.history.record(run.run_id, "submission_refused", problem, by=by)
        record_remedy(run, services.history)
    return end_run(run, services, by=by)


def _claimed_run(request: TrainingRequest, services: RunServices) -> RunRecord | None:
    """Return the run that a closing starts, claimed now or before; None if there is nothing to do."""
    version = request.dataset_version
    generation = services.ledger.latest_generation(version)
    if generation is None:
        raise NotFoundError(f"training request for {version}, which has never been complete")
    if generation.number != request.generation:
        reason = f"generation {request.generation} is superseded by {generation.number}"
        services.history.record(str(version), "request_suppressed", reason)
        return None
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is None:
        reason = services.outage(version.dataset) or f"dataset {version.dataset} no longer has a pipeline"
        services.history.record(str(version), "request_suppressed", reason)
        return None
    if generation.auto_run_id is None and not _line_up_earlier(pipeline, generation, services):
        reason = f"more than {MAX_EARLIER} versions that closed earlier have to be put in line; the sweep asks again"
        services.history.record(str(version), "request_suppressed", reason)
        return None
    return _closings_run(pipeline, generation, request.trigger, services)


def _closings_run(pipeline: Pipeline, generation: Generation, trigger: str, services: RunServices) -> RunRecord:
    run = claim_run(pipeline, generation, trigger=trigger, services=services)
    if pipeline.on_change == "cancel_and_train":
        cancel_superseded(run, services)
    return run


def _line_up_earlier(pipeline: Pipeline, generation: Generation, services: RunServices) -> bool:
    """Put versions in line that closed earlier and whose requests are late or whose handlers died.

    Return whether these were all of them.
    """
    dataset, queue = generation.dataset_version.dataset, services.ledger.run_queue()
    known = {run.run_id: run for run in services.ledger.runs(dataset=dataset, limit=MAX_RUNS)}
    closings = [each for each in services.ledger.latest_generations(dataset) if each.closed_at < generation.closed_at]
    num_put = 0
    for earlier in sorted(closings, key=lambda each: each.closed_at):
        run = known.get(earlier.auto_run_id or "")
        if run is not None and (run.state is not RunState.PLANNED or queue.knows(run.logical_run)):
            continue
        if run is None and earlier.auto_run_id is not None and len(known) == MAX_RUNS:
            continue  # its row is older than those that were read
        if num_put == MAX_EARLIER:
            return False
        try:
            if run is not None or _owes_run(pipeline, earlier, services):
                submit_run(_closings_run(pipeline, earlier, CLOSED, services), services)
                num_put += 1
        except LandfallError:  # a version that cannot be trained does not block others; the sweep tries it again
            logger.exception(f"{earlier.dataset_version} is not in line", extra={"action": "earlier_not_in_line"})
    return True


def _owes_run(pipeline: Pipeline, closing: Generation, services: RunServices) -> bool:
    return starts_run(pipeline, closing, services.ledger) and not is_blocked_by_drift(pipeline, closing, services)


def claim_run(pipeline: Pipeline, generation: Generation, *, trigger: str, services: RunServices) -> RunRecord:
    """Claim the name of the closing's run and add its row; return the run on record."""
    plan = unspent_plan(pipeline, generation, services)
    run_id = services.ledger.claim_auto_run(generation, plan.run_id)
    if run_id != plan.run_id:
        # Claimed before a deployment changed the plan. The name stays; its row may be missing if the claimer died in
        # between.
        logical_run = run_id.rpartition("-a")[0]
        plan = plan_run(pipeline, generation, services.workspace, logical_run=logical_run)
    planned = planned_run(
        plan, pipeline, generation, trigger=trigger, now=services.clock(), asked_at=generation.closed_at
    )
    if services.ledger.add_run(planned):
        services.history.record(run_id, "run_planned", f"for {generation.dataset_version}, trigger {trigger}")
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} was written and is not on record; the ledger is inconsistent")
    return run


def unspent_plan(
    pipeline: Pipeline,
    generation: Generation,
    services: RunServices,
    *,
    options: TrainingOptions | None = None,
    forced_by: str | None = None,
) -> Plan:
    """Return the plan of a request under its first name that has led, or can still lead, to a model.

    ``forced_by`` makes it another request, with other names.
    """
    for number in range(MAX_NAMES):
        again = "/".join([*([f"forced by {forced_by}"] if forced_by else []), *([str(number)] if number else [])])
        plan = plan_run(pipeline, generation, services.workspace, options=options, again=again or None)
        run = last_attempt(plan.run_id, services.ledger)
        if run is None or not _is_spent(run, generation, services.ledger):
            return with_tags(plan, {FORCED_TAG: "true"}) if forced_by else plan
    raise LedgerConflictError(
        f"{generation.dataset_version}: the same training was given up {MAX_NAMES} times; request it with force"
    )


def _is_spent(run: RunRecord, generation: Generation, ledger: RunsLedger) -> bool:
    """Whether a run was never submitted, ended badly on an earlier generation, or its cause can be corrected.

    A pipeline's mistake is corrected in its file, what a script lacks in its image or files, missing ranks or GPUs on
    the cluster, changed shards by the next look at them, and data that broke the run where their hold was lifted.
    An unfinished run of an earlier generation cannot lead to a model: the same content was written again since, so it
    will be given up, or its model not registered.
    """
    if run.state is RunState.SUPPRESSED or run.failure_class in CORRECTABLE:
        return True
    if run.remedy == Remedy.QUARANTINE and why_held(run.dataset_version, run.generation, ledger) is None:
        return True
    undelivered = run.state not in TRAINED or run.cancel_requested_at is not None
    return undelivered and run.generation != generation.number
