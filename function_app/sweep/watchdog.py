"""Runs and versions that take too long, and pipelines that cannot be used: people get a warning that says what to do.

A run whose cluster is gone ends as lost.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta

from function_app.config.pipelines import Pipeline
from function_app.domain.jobs import JobStatus
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.ingest.completeness import missing_shards
from function_app.notify.messages import held_since, in_words, warn_once
from function_app.runs.following import FOLLOWED, STATES, follow_run
from function_app.runs.transitions import move_run
from function_app.services import IngestServices, RunServices
from function_app.sweep.inventory import Look
from shared.safe_text import counted, one_line
from shared.vm_sizes import vm_size

WAITING = frozenset({RunState.SUBMITTED, RunState.QUEUED})
NOT_RESPONDING = "NotResponding"
"""Azure ML's word; a run may return from it to any earlier state."""
PREPARING = "Preparing"
"""Azure ML's word for a job whose image is built or pulled; it waits for no nodes yet."""
UNREMARKABLE = frozenset({*STATES, "NotStarted", "Starting", "CancelRequested"})
"""Statuses that a job passes through; it may stay in any other one, also in one that no document names."""
CLUSTER_GONE_AFTER = timedelta(minutes=10)
"""How long a cluster must be missing before its runs end as lost: re-creating one takes less time."""

MAX_NAMED = 20
OUTAGES = "pipelines"
"""The mark with the pipelines that are out of service and since when; also the subject of those without a dataset."""
MAX_OUTAGES = 100
"""Pipelines that one mark has room for."""
MAX_STATUS_CHARS = 100


def watch_pipelines(services: IngestServices) -> None:
    """Warn once of each pipeline that has gone out of service, as long as it is."""
    text = services.ledger.mark(OUTAGES)
    known: dict[str, str] = json.loads(text) if text else {}
    names = sorted(services.out_of_service)[:MAX_OUTAGES]
    outages = {name: known.get(name) or services.clock().isoformat(timespec="seconds") for name in names}
    if outages != known:
        services.ledger.set_mark(OUTAGES, json.dumps(outages))
    for dataset, since in outages.items():
        recipients, problems = services.outage_recipients.get(dataset, ()), services.out_of_service[dataset]
        if not recipients:
            continue  # they may be readable once the file is half corrected
        whose = f"the pipeline of dataset {dataset}" if dataset else "a pipeline whose file does not tell its dataset"
        listed = "; ".join(problems[:MAX_NAMED])
        content = {
            "text": (
                f"Out of service: {whose}. Its shards are validated and its runs started once its file is corrected: "
                f"{listed}. To check the file yourself: landfall check FILE"
            ),
            "dataset": dataset or None,
            "problems": list(problems[:MAX_NAMED]),
            "since": since,
        }
        warn_once(
            recipients,
            subject=dataset or OUTAGES,
            outcome="pipeline_out_of_service",
            occasion=since,
            content=content,
            services=services,
        )


def watch_run(run: RunRecord, services: RunServices) -> None:
    """Warn of what takes longer than the pipeline allows; end a run whose cluster is gone."""
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None or run.state not in FOLLOWED:
        return
    if run.state in WAITING:
        _watch_queue(run, pipeline, services)
        _watch_cluster(run, services)
    elif _stopped_responding(run, pipeline, services):
        _watch_cluster(run, services)


def _watch_queue(run: RunRecord, pipeline: Pipeline, services: RunServices) -> None:
    since = run.submitted_at or run.state_since
    waited_s = (services.clock() - since).total_seconds()
    if waited_s >= pipeline.watch.preparing_after_s and _warned_of_preparing(run, pipeline, waited_s, services):
        return
    if waited_s < pipeline.watch.queued_after_s:
        return
    size = size_of_attempt(run, pipeline)
    text = (
        f"Run {run.run_id} of {run.dataset_version} has waited {in_words(waited_s)} for "
        f"{counted(run.num_nodes, 'node')} of {size} on cluster {run.spec.get('compute')}. "
        f"{quota_advice(run, pipeline)}"
    )
    content = {
        "text": text,
        "run_id": run.run_id,
        "compute": run.spec.get("compute"),
        "vm_size": size,
        "num_nodes": run.num_nodes,
        "waiting_since": since.isoformat(timespec="seconds"),
    }
    warn_once(pipeline.notify, subject=run.run_id, outcome="run_waiting", content=content, services=services)


def _warned_of_preparing(run: RunRecord, pipeline: Pipeline, waited_s: float, services: RunServices) -> bool:
    """Warn of a job that is still prepared; return whether it is."""
    status = services.jobs.status(run.run_id)
    if status is None or status.status != PREPARING:
        return False
    text = (
        f"Run {run.run_id} of {run.dataset_version} has been in preparation for {in_words(waited_s)}: Azure ML "
        "builds or pulls the image of its environment. The log of the build is in the studio, under the job's "
        "outputs. Use an image from a registry to avoid the build: landfall publish --image. To end the run: "
        f"landfall cancel {run.run_id}"
    )
    content = {"text": text, "run_id": run.run_id, "environment_id": run.spec.get("environment_id")}
    warn_once(
        pipeline.notify,
        subject=run.run_id,
        outcome="run_waiting",
        occasion="preparing",
        content=content,
        services=services,
    )
    return True


def size_of_attempt(run: RunRecord, pipeline: Pipeline) -> str:
    """Return the VM size of the cluster that this attempt was submitted to; it may be one of ``other_clusters``."""
    return (pipeline.machines_on(str(run.spec.get("compute"))) or pipeline.machines).vm_size


def quota_advice(run: RunRecord, pipeline: Pipeline) -> str:
    """Return what quota the run needs, and what is known about its VM size."""
    size = size_of_attempt(run, pipeline)
    match = re.match(r"Standard_[A-Za-z]+(\d+)", size)
    vcpus = f", {int(match[1]) * run.num_nodes} vCPUs in all" if match else ""
    nodes = counted(run.num_nodes, "node")
    words = (
        f"Check the quota of the VM family of {size} in the workspace's region: the run needs {nodes}{vcpus}. "
        f"Check that the cluster's maximum is at least {nodes}. If both are sufficient, "
        "the region may be out of capacity: use another size or region."
    )
    known = vm_size(size)
    if known is not None and known.retired:
        return f"{words} {size} is {known.retired}; its successor is {known.successor}."
    return words


def _stopped_responding(run: RunRecord, pipeline: Pipeline, services: RunServices) -> bool:
    status = services.jobs.status(run.run_id)
    silent = status is not None and status.status not in UNREMARKABLE
    since = held_since(
        run.run_id,
        "run_not_responding",
        services,
        holds=silent,
        reason=f"Azure ML says: {one_line(status.status)[:MAX_STATUS_CHARS] if status else 'no such job'}",
    )
    if since is None:
        return False
    silent_s = (services.clock() - since).total_seconds()
    if silent_s >= pipeline.watch.not_responding_after_s:
        text = (
            f"Run {run.run_id} of {run.dataset_version} {_condition(status)} for {in_words(silent_s)}: its nodes may "
            f"be gone, or still cost money. Check it in the studio, or end it: landfall cancel {run.run_id}"
        )
        warn_once(
            pipeline.notify,
            subject=run.run_id,
            outcome="run_silent",
            occasion=since.isoformat(),
            content={"text": text, "run_id": run.run_id, "since": since.isoformat(timespec="seconds")},
            services=services,
        )
    return True


def _condition(status: JobStatus | None) -> str:
    if status is None or status.status == NOT_RESPONDING:
        return "has not responded"
    return f"has been {one_line(status.status)[:MAX_STATUS_CHARS]}, a state that Landfall does not know,"


def _watch_cluster(run: RunRecord, services: RunServices) -> None:
    compute = str(run.spec.get("compute"))
    missing = not services.jobs.has_compute(compute)
    reason = f"cluster {compute} {'is missing in' if missing else 'is back in'} the workspace"
    since = held_since(run.run_id, "cluster_missing", services, holds=missing, reason=reason)
    if since is None or services.clock() - since < CLUSTER_GONE_AFTER:
        return
    reason = (
        f"cluster {compute} has been missing from the workspace since {since.isoformat(timespec='seconds')}, so the "
        f"job was canceled. Create the cluster again, then: landfall submit {run.dataset_version} --force"
    )
    now = services.clock()
    run, moved = move_run(services.ledger, run, RunState.LOST, by=Actor.SWEEP, now=now, ended_at=now, reason=reason)
    if moved:
        services.history.record(run.run_id, "run_lost", reason, by=Actor.SWEEP)
    follow_run(run, services, by=Actor.SWEEP)


def warn_if_stalled(pipeline: Pipeline, version: DatasetVersion, look: Look, services: IngestServices) -> None:
    """Warn where a version is not whole and no shard has arrived for longer than the pipeline allows."""
    if look.last_verdict_at is None:
        return  # no shard has been judged yet
    idle_s = (services.clock() - look.last_verdict_at).total_seconds()
    if idle_s < pipeline.watch.stalled_after_s:
        return
    missing = missing_shards(pipeline, version, services)
    if not missing:
        return  # refused as a set: its owners have been notified
    named = ", ".join(missing[:MAX_NAMED])
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    content = {
        "text": f"{version} is incomplete, and no shard has arrived for {in_words(idle_s)}. Missing: {named}{more}.",
        "dataset": version.dataset,
        "version": version.version,
        "num_missing": len(missing),
        "missing": missing[:MAX_NAMED],
        "num_rejected": look.num_rejected,
        "last_shard_at": look.last_verdict_at.isoformat(timespec="seconds"),
    }
    warn_once(
        pipeline.notify,
        subject=str(version),
        outcome="version_stalled",
        occasion=look.last_verdict_at.isoformat(),
        content=content,
        services=services,
    )
