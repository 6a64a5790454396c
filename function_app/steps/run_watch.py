"""Runs that take longer than they should: people are told what to ask for, and a run without its cluster is lost."""

from __future__ import annotations

import re
from datetime import timedelta

from function_app.ledger import RunRecord, RunState
from function_app.pipelines import Pipeline
from function_app.run_states import Actor
from function_app.steps.reconciliation import FOLLOWED, reconcile_run
from function_app.steps.run_changes import move_run
from function_app.steps.services import Services
from function_app.steps.warnings import held_since, in_words, warn_once
from shared.vm_sizes import vm_size

WAITING = frozenset({RunState.SUBMITTED, RunState.QUEUED})
NOT_RESPONDING = "NotResponding"
"""Azure ML's word; a run may come back from it to any earlier one."""
CLUSTER_GONE_AFTER = timedelta(minutes=10)
"""So long a cluster must be missing before its runs are given up: one that is made again takes less."""


def watch_run(run: RunRecord, services: Services) -> None:
    """Tell people of what takes longer than the pipeline allows; end a run whose cluster is gone."""
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None or run.state not in FOLLOWED:
        return
    if run.state in WAITING:
        _watch_queue(run, pipeline, services)
        _watch_cluster(run, services)
    elif _stopped_responding(run, pipeline, services):
        _watch_cluster(run, services)


def _watch_queue(run: RunRecord, pipeline: Pipeline, services: Services) -> None:
    since = run.submitted_at or run.state_since
    waited_s = (services.clock() - since).total_seconds()
    if waited_s < pipeline.watch.queued_after_s:
        return
    text = (
        f"Run {run.run_id} of {run.dataset_version} has waited {in_words(waited_s)} for {run.num_nodes} nodes of "
        f"{pipeline.train.vm_size} on cluster {run.spec.get('compute')}. {what_to_ask_for(run, pipeline)}"
    )
    content = {
        "text": text,
        "run_id": run.run_id,
        "compute": run.spec.get("compute"),
        "vm_size": pipeline.train.vm_size,
        "num_nodes": run.num_nodes,
        "waiting_since": since.isoformat(timespec="seconds"),
    }
    warn_once(pipeline, subject=run.run_id, outcome="run_waiting", content=content, services=services)


def what_to_ask_for(run: RunRecord, pipeline: Pipeline) -> str:
    """Say what quota the run needs, and what is known of its VM size."""
    size = pipeline.train.vm_size
    match = re.match(r"Standard_[A-Za-z]+(\d+)", size)
    vcpus = f", {int(match[1]) * run.num_nodes} vCPUs in all" if match else ""
    words = (
        f"Ask for quota of the VM family of {size} in the workspace's region: {run.num_nodes} nodes{vcpus}; and see "
        f"that the cluster's maximum is at least {run.num_nodes} nodes. With quota at hand the region may be out of "
        "capacity: another size or region helps then."
    )
    known = vm_size(size)
    if known is not None and known.retired:
        return f"{words} {size} is {known.retired}; its successor is {known.successor}."
    return words


def _stopped_responding(run: RunRecord, pipeline: Pipeline, services: Services) -> bool:
    status = services.jobs.status(run.run_id)
    silent = status is not None and status.status == NOT_RESPONDING
    since = held_since(
        run.run_id,
        "run_not_responding",
        services,
        holds=silent,
        reason=f"Azure ML says: {status.status if status else 'no such job'}",
    )
    if since is None:
        return False
    silent_s = (services.clock() - since).total_seconds()
    if silent_s >= pipeline.watch.not_responding_after_s:
        text = (
            f"Run {run.run_id} of {run.dataset_version} has not responded for {in_words(silent_s)}: its nodes may be "
            "gone, and cost money if they are not. Look at it in the studio; landfall cancel ends it."
        )
        warn_once(
            pipeline,
            subject=run.run_id,
            outcome="run_silent",
            occasion=since.isoformat(),
            content={"text": text, "run_id": run.run_id, "since": since.isoformat(timespec="seconds")},
            services=services,
        )
    return True


def _watch_cluster(run: RunRecord, services: Services) -> None:
    compute = str(run.spec.get("compute"))
    missing = not services.jobs.has_compute(compute)
    reason = f"cluster {compute} {'is missing in' if missing else 'is back in'} the workspace"
    since = held_since(run.run_id, "cluster_missing", services, holds=missing, reason=reason)
    if since is None or services.clock() - since < CLUSTER_GONE_AFTER:
        return
    reason = (
        f"cluster {compute} is gone from the workspace since {since.isoformat(timespec='seconds')}: nothing can run "
        f"the job any more, and it was canceled. Make the cluster again, then: landfall submit "
        f"{run.dataset_version} --force"
    )
    now = services.clock()
    run, moved = move_run(
        services.ledger, run.run_id, RunState.LOST, by=Actor.SWEEP, now=now, ended_at=now, reason=reason
    )
    if moved:
        services.decide(run.run_id, "run_lost", reason, by=Actor.SWEEP)
    reconcile_run(run.run_id, services, by=Actor.SWEEP)
