"""May a run be submitted now? Its data must not be on hold, and the run queue must admit it.

Waiting runs are admitted when the runs before them end. Each change of the queue is one compare-and-swap. Its
consequences (messages, rows of runs that lost their place) can be repeated, so the next handler or the sweep finishes
the work of a handler that died.
"""

from __future__ import annotations

from datetime import datetime

from function_app.domain import run_queue
from function_app.domain.errors import VersionQuarantinedError
from function_app.domain.events import TrainingRequest
from function_app.domain.failures import RETRYING
from function_app.domain.records import PERSON, DatasetVersion, Generation, RunRecord
from function_app.domain.run_queue import Dropped, QueueEntry, QueueRules, RunQueue
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.notify.messages import warn_once
from function_app.notify.outbox import deliver
from function_app.ports import IngestLedger, RunLedger, RunsLedger
from function_app.runs.transitions import move_run, run_on_record
from function_app.services import History, RunServices

QUEUED = "armed"
"""The trigger, as stored, of a message that starts a run which was queued."""


def admit(run: RunRecord, services: RunServices, *, by: Actor) -> bool:
    """Ask for a run to be admitted; False if it waits in line, or lost its place to a newer one."""
    rules = _rules(services)
    before, after = services.ledger.change_run_queue(
        lambda queue: run_queue.enqueue(queue, QueueEntry.of(run), rules)
    )
    name = run.logical_run
    if not after.is_running(name) and not after.is_dropped(name):
        _record_waiting(run, after, services, is_new=after.is_queued(name) and not before.is_queued(name), by=by)
    _carry_out(before, after, services, by=by, own=name)
    return after.is_running(name)


def release(run: RunRecord, services: RunServices, *, by: Actor) -> None:
    """Release the place of a run that has ended, and start the next runs.

    If a person canceled the run, runs that waited for it by then are dropped instead.
    """
    canceled, rules = run.canceled_by == PERSON, _rules(services)  # also if a failed run's next attempt was
    before, after = services.ledger.change_run_queue(
        lambda queue: run_queue.release(
            queue,
            run.logical_run,
            rules,
            drop_queued_before=run.cancel_requested_at if canceled else None,
            reason=f"a person canceled the run that it waited for: {run.run_id}",
        )
    )
    _carry_out(before, after, services, by=by)


def sweep_run_queue(services: RunServices) -> None:
    """Finish the work of handlers that died: ended runs that hold a place, places that no run has taken."""
    rules = _rules(services)
    before, after = services.ledger.change_run_queue(lambda queue: run_queue.admit(queue, rules))
    _carry_out(before, after, services, by=Actor.SWEEP)
    for entry in (*after.running, *after.queued):
        run = last_attempt(entry.first_run_id, services.ledger)
        if run is not None and run.state in SETTLED and not awaits_attempt(run):
            release(run, services, by=Actor.SWEEP)


def last_attempt(run_id: str, ledger: RunLedger) -> RunRecord | None:
    """Return the last attempt that continues a run, or the run itself; None if it is not on record."""
    run = ledger.run(run_id)
    while run is not None and run.next_run_id is not None:
        run = ledger.run(run.next_run_id)
    return run


def awaits_attempt(run: RunRecord) -> bool:
    """Whether a run has ended and its next attempt, which is due, is not on record yet."""
    return run.state in SETTLED and run.next_run_id is None and run.remedy in RETRYING


def _rules(services: RunServices) -> QueueRules:
    latest = (each.pipeline for each in services.pipelines.values() if each.when_busy == "latest")
    return QueueRules(limit=services.max_concurrent_runs, latest=frozenset(latest))


def place_in_line(run: RunRecord, queue: RunQueue) -> str | None:
    """Return what a run in the run queue waits for, and how many others go before it; None if it does not wait."""
    entry = queue.waiting(run.logical_run)
    if entry is None:
        return None
    active, num_before = queue.running_of(run.pipeline), queue.num_before(entry)
    limit = f"runs of other pipelines: active runs are limited to {len(queue.running)}"
    behind = limit if active is None else f"run {active.first_run_id}"
    before = f"{num_before} version{'s' if num_before > 1 else ''} before it" if num_before else "it is next"
    return f"waits for {behind}; {before}"


def _record_waiting(run: RunRecord, queue: RunQueue, services: RunServices, *, is_new: bool, by: Actor) -> None:
    """Record what a run waits for, and notify people once for each place in the queue."""
    reason = place_in_line(run, queue) or f"waits behind the {len(queue.queued)} runs that are in line"
    if is_new:
        services.history.record(run.run_id, "run_armed", reason)
    elif by is Actor.SUBMISSION:  # the sweep looks at it every few minutes
        services.history.record(run.run_id, "request_suppressed", f"it {reason}")
    text = f"{run.dataset_version} {reason}. Run {run.run_id} starts by itself"
    since = (queue.waiting(run.logical_run) or QueueEntry.of(run)).waiting_since
    _notify_version(run, text, services, outcome="version_waiting", occasion=since.isoformat())


def _notify_version(run: RunRecord, text: str, services: RunServices, *, outcome: str, occasion: str) -> None:
    """Notify people once of what happened to a version instead of its run's submission."""
    version, pipeline = run.dataset_version, services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None:
        return
    content = {
        "text": f"{text}.",
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "dataset": version.dataset,
        "version": version.version,
        "generation": run.generation,
    }
    subject = str(version)
    if warn_once(
        pipeline.notify, subject=subject, outcome=outcome, occasion=occasion, content=content, services=services
    ):
        deliver(subject, services)


def _carry_out(
    before: RunQueue, after: RunQueue, services: RunServices, *, by: Actor, own: str | None = None
) -> None:
    """Start the admitted runs, except the caller's own, and record which runs lost their place."""
    for entry in after.running:
        if entry.logical_run != own and not before.is_running(entry.logical_run):
            services.requests.send(_request(entry, services.ledger))
            services.history.record(entry.first_run_id, "run_launched", "its turn has come")
    for lost in after.dropped:
        _drop(lost, services, by=by)
    if after.dropped:
        names = [lost.logical_run for lost in after.dropped]
        services.ledger.change_run_queue(lambda queue: run_queue.forget_dropped(queue, names))


def _request(entry: QueueEntry, ledger: RunLedger) -> TrainingRequest:
    version = DatasetVersion(dataset=entry.dataset, version=entry.version)
    run = last_attempt(entry.first_run_id, ledger) if entry.continues else None
    return TrainingRequest(
        dataset_version=version,
        generation=entry.generation,
        trigger=QUEUED,
        run_id=entry.first_run_id if run is None else run.run_id,
    )


def _drop(lost: Dropped, services: RunServices, *, by: Actor) -> None:
    """End a run that lost its place, and notify people if its version is not trained on."""
    now, run = services.clock(), run_on_record(services.ledger, f"{lost.logical_run}-a1")
    target, reason = RunState.SUPPRESSED, lost.reason
    run, moved = move_run(services.ledger, run, target, by=by, now=now, ended_at=now, reason=reason)
    if moved:
        services.history.record(run.run_id, "run_suppressed", reason, by=by)
        services.history.record(str(run.dataset_version), "run_suppressed", f"run {run.run_id}: {reason}", by=by)
    if lost.gives_up_version and run.state is RunState.SUPPRESSED:
        version = run.dataset_version
        text = f"{version} is not trained on: {reason}. To train on it: landfall submit {version}"
        _notify_version(run, text, services, outcome="version_dropped", occasion=run.logical_run)


# -- holds ----------------------------------------------------------------------------------------------------
RELEASED = "released: "
"""Prefix of the mark of a lifted hold; the rest is the original hold."""


def hold_data(run: RunRecord, ledger: RunsLedger, history: History, now: datetime) -> None:
    """Hold the generation that a run failed on. A later generation has other data and is not held."""
    version, name = run.dataset_version, _hold_mark(run.dataset_version, run.generation)
    known = ledger.mark(name)
    if known is None or run.run_id not in known:  # a hold that was lifted is not renewed for the same run
        reason = f"run {run.run_id} failed on its data: {run.failure_evidence}"
        ledger.set_mark(name, f"{now.isoformat()} {reason}")
        text = f"{reason}; {what_lifts(version)}"
        history.record(str(version), "version_quarantined", text, generation=run.generation)


def submit_again(run: RunRecord) -> str:
    """Return the command that repeats a run's training.

    After a forced run it has ``--force``; without it, an earlier request would be returned.
    """
    return f"landfall submit {run.dataset_version}" + (" --force" if run.forced_by is not None else "")


def what_lifts(version: DatasetVersion) -> str:
    """Return what lifts a hold, for messages."""
    return f"the hold ends when a shard is uploaded again, or with: landfall release {version}"


def refuse_held(generation: Generation, ledger: RunsLedger) -> None:
    """Raise VersionQuarantinedError if a generation is held."""
    version = generation.dataset_version
    reason = why_held(version, generation.number, ledger)
    if reason is not None:
        raise VersionQuarantinedError(
            f"{version}, generation {generation.number}, is on hold: {reason}; {what_lifts(version)}"
        )


def why_held(version: DatasetVersion, generation: int, ledger: IngestLedger | RunsLedger) -> str | None:
    """Return why a generation is held: which run failed on it. None if it is not held.

    A shard that was uploaded since then lifts the hold, even with the same content: the stored file may have been
    damaged.
    """
    mark = ledger.mark(_hold_mark(version, generation))
    if mark is None or mark.startswith(RELEASED):
        return None
    since, reason = _read_hold(mark)
    if since is not None and any(shard.validated_at > since for shard in ledger.shards(version)):
        return None
    return reason


def release_data(version: DatasetVersion, services: RunServices) -> str | None:
    """Lift the hold of a version's latest generation; return why it was held, None if it was not."""
    generation = services.ledger.latest_generation(version)
    reason = None if generation is None else why_held(version, generation.number, services.ledger)
    if generation is None or reason is None:
        return None
    name = _hold_mark(version, generation.number)
    services.ledger.set_mark(name, f"{RELEASED}{services.ledger.mark(name)}")
    text = f"a person released generation {generation.number}, which was on hold: {reason}"
    services.history.record(str(version), "version_released", text, generation=generation.number)
    return reason


def _read_hold(mark: str) -> tuple[datetime | None, str]:
    """Return since when and why a generation is held; marks of earlier releases have no time."""
    time, _, reason = mark.partition(" ")
    try:
        return datetime.fromisoformat(time), reason
    except ValueError:
        return None, mark


def _hold_mark(version: DatasetVersion, generation: int) -> str:
    return f"quarantine/{version}/g{generation}"
