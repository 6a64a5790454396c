"""Jobs of ours that the ledger does not know: a restored table, a lost row, a job that somebody copied.

Whoever submits has claimed first, so no crash leads here. Where planning the run again gives the very spec whose hash
is on the job, the run is adopted. Everything else is told: half a record would register a model without its lineage.
"""

from __future__ import annotations

import re
from dataclasses import replace

from function_app.config.pipelines import Pipeline
from function_app.domain.job_plan import PREFIX, TAG, plan_run, planned_run
from function_app.domain.jobs import SPEC_HASH_TAG, JobStatus
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import RunState
from function_app.notify.messages import warn_once
from function_app.services import Services

ADOPTED = "adopted"
"""The trigger of a run that was found in Azure ML."""
MAX_KNOWN = 1000

_FIRST_ATTEMPT = re.compile(r"(?P<logical_run>.+)-a1")
"""A later attempt is planned from the one before it, whose row is missing as well."""
_ENDED = frozenset({"Completed", "Failed", "Canceled"})


def care_for_unknown_jobs(services: Services) -> int:
    """Adopt or tell of what one call lists; return how many the ledger did not know."""
    jobs = [job for job in services.jobs.ours() if job.name.startswith(PREFIX)]
    if not jobs:
        return 0
    known = {run.run_id for run in services.ledger.runs(limit=MAX_KNOWN)}
    unknown = [job for job in jobs if job.name not in known and services.ledger.run(job.name) is None]
    for job in unknown:
        _care_for(job, services)
    return len(unknown)


def _care_for(job: JobStatus, services: Services) -> None:
    dataset, _, version_name = str(job.tags.get(TAG + "dataset_version", "")).partition("/")
    pipeline = services.pipelines.get(dataset)
    if pipeline is None:
        return  # another deployment's, in the same workspace
    version = DatasetVersion(dataset=dataset, version=version_name)
    run = _replanned(job, pipeline, version, services)
    if run is None:
        _tell(job, pipeline, version, services)
    elif services.ledger.add_run(run):
        services.history.record(
            run.run_id, "run_adopted", f"found in Azure ML ({job.status}), and planning it again gives its spec"
        )


def _replanned(job: JobStatus, pipeline: Pipeline, version: DatasetVersion, services: Services) -> RunRecord | None:
    """Return the run as it would have been written, None where that would not be this job."""
    generation, name = services.ledger.latest_generation(version), _FIRST_ATTEMPT.fullmatch(job.name)
    if generation is None or name is None or generation.fingerprint != job.tags.get(TAG + "fingerprint"):
        return None
    plan = plan_run(pipeline, generation, services.workspace, logical_run=name["logical_run"])
    if plan.spec_hash != job.tags.get(SPEC_HASH_TAG):
        return None
    now = services.clock()
    planned = planned_run(plan, pipeline, generation, trigger=ADOPTED, now=now)
    return replace(planned, state=RunState.SUBMITTED, submitted_at=now)


def _tell(job: JobStatus, pipeline: Pipeline, version: DatasetVersion, services: Services) -> None:
    text = (
        f"Azure ML has a job {job.name} of {version} ({job.status}) with Landfall's tags that the ledger does not "
        "know. Its end is not followed and its model is not registered. If it is wanted, ask for the run again: "
        f"landfall submit {version}; if not, cancel it in the studio."
    )
    if job.status in _ENDED:
        lines = services.ledger.history(job.name)
        if not any(line.action == "unknown_job" for line in lines):
            services.history.record(job.name, "unknown_job", text, occasion="")
        return
    content = {"text": text, "job": job.name, "status": job.status, "studio_url": job.studio_url}
    warn_once(pipeline, subject=job.name, outcome="unknown_job", content=content, services=services)
