"""Jobs with Landfall's tags that the ledger does not know: after a restored table, a lost row or a copied job.

A run is claimed before it is submitted, so no crash leads here. If planning the run again gives the spec whose
hash is on the job, the run is adopted. For every other job people are notified: with only half of the record, a model
would be registered without its lineage.
"""

from __future__ import annotations

import re
from dataclasses import replace

from function_app.config.pipelines import Pipeline
from function_app.domain.jobs import PREFIX, SPEC_HASH_TAG, TAG, JobStatus, plan_run, planned_run
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_states import RunState
from function_app.ingest.stored_shards import data_in_storage
from function_app.notify.messages import warn_once
from function_app.services import RunServices

ADOPTED = "adopted"
"""The trigger of a run that was found in Azure ML."""
MAX_KNOWN = 1000

_FIRST_ATTEMPT = re.compile(r"(?P<logical_run>.+)-a1")
"""Only first attempts: a later one is planned from the one before it, whose row is missing as well."""
_ENDED = frozenset({"Completed", "Failed", "Canceled"})


def care_for_unknown_jobs(services: RunServices) -> int:
    """Adopt the unknown jobs that one call lists, or notify people of them; return how many there were."""
    jobs = [job for job in services.jobs.ours() if job.name.startswith(PREFIX)]
    if not jobs:
        return 0
    known = {run.run_id for run in services.ledger.runs(limit=MAX_KNOWN)}
    unknown = [job for job in jobs if job.name not in known and services.ledger.run(job.name) is None]
    for job in unknown:
        _care_for(job, services)
    return len(unknown)


def _care_for(job: JobStatus, services: RunServices) -> None:
    dataset, _, version_name = str(job.tags.get(TAG + "dataset_version", "")).partition("/")
    pipeline = services.pipelines.get(dataset)
    if pipeline is None:
        return  # the job of another deployment in the same workspace
    version = DatasetVersion(dataset=dataset, version=version_name)
    run = _replanned(job, pipeline, version, services)
    if run is None:
        _notify(job, pipeline, version, services)
    elif services.ledger.add_run(run):
        services.history.record(
            run.run_id, "run_adopted", f"found in Azure ML ({job.status}); planning it again gives the same spec"
        )


def _replanned(
    job: JobStatus, pipeline: Pipeline, version: DatasetVersion, services: RunServices
) -> RunRecord | None:
    """Return the run's row as its submission wrote it; None if planning it again gives another job."""
    generation, name = services.ledger.latest_generation(version), _FIRST_ATTEMPT.fullmatch(job.name)
    if generation is None or name is None or generation.fingerprint != job.tags.get(TAG + "fingerprint"):
        return None
    plan = plan_run(pipeline, generation, services.workspace, logical_run=name["logical_run"])
    if plan.spec_hash != job.tags.get(SPEC_HASH_TAG):
        return None
    now = services.clock()
    planned = planned_run(plan, pipeline, generation, trigger=ADOPTED, now=now)
    etags = _etags_since_closing(planned, generation, services)
    return replace(planned, state=RunState.SUBMITTED, submitted_at=now, data_etags=etags)


def _etags_since_closing(run: RunRecord, generation: Generation, services: RunServices) -> str | None:
    """Return the digest of a run's shards where all are as they were at the closing, and so at the submission.

    A verdict of that time is on the ETag that a shard has now. Without this the model is not registered.
    """
    stored, rows = data_in_storage(run, services), services.ledger.shards(run.dataset_version)
    if stored.problem is not None or any(row.validated_at > generation.closed_at for row in rows):
        return None
    return stored.etags or None


def _notify(job: JobStatus, pipeline: Pipeline, version: DatasetVersion, services: RunServices) -> None:
    text = (
        f"Azure ML has a job {job.name} of {version} ({job.status}) with Landfall's tags that the ledger does not "
        "know. It is not followed and its model is not registered. To train again: "
        f"landfall submit {version}. If the job is not needed, cancel it in the studio."
    )
    if job.status in _ENDED:
        lines = services.ledger.history(job.name)
        if not any(line.action == "unknown_job" for line in lines):
            services.history.record(job.name, "unknown_job", text, occasion="")
        return
    content = {"text": text, "job": job.name, "status": job.status, "studio_url": job.studio_url}
    warn_once(pipeline.notify, subject=job.name, outcome="unknown_job", content=content, services=services)
