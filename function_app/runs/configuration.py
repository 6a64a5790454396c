"""Check a pipeline's options against the data before a job is submitted, and refuse mismatches.

After a mistake in a pipeline file the data are not held: once the file is corrected, the same version can be
requested again without force.
"""

from __future__ import annotations

from function_app.config.pipelines import Pipeline, is_own_script
from function_app.domain.errors import ConfigurationError
from function_app.domain.records import Generation, RunRecord
from function_app.ingest.closing import CLOSED
from function_app.ingest.stored_shards import read_manifest
from function_app.ports import DocumentStore
from function_app.services import RunServices
from shared import mismatch
from shared.configuration import misfits, unreported_metrics
from shared.job_arguments import TrainingOptions
from shared.manifest import Manifest, ManifestError


def refuse_misfit(
    pipeline: Pipeline, options: TrainingOptions, generation: Generation, documents: DocumentStore
) -> None:
    """Raise ConfigurationError if the training cannot work on these data; each problem names its option."""
    problems = _problems(pipeline, options, generation, documents)
    if problems:
        raise ConfigurationError(f"pipeline {pipeline.pipeline}: {'; '.join(problems)}", problems=problems)


def other_contract(run: RunRecord, services: RunServices) -> str | None:
    """Return why the code of a run, which was planned before an upgrade, would not understand the app's job.

    None if it does, or where Azure ML already has the job. With the code that the settings name, the pipeline
    would be out of service.
    """
    if run.spec["code_id"] == services.workspace.code_id:
        return None
    problem = mismatch(str(run.spec["code_id"]))
    return problem if problem and services.jobs.status(run.run_id) is None else None


def misfit(run: RunRecord, services: RunServices) -> str | None:
    """Return why a run that its data's closing has started cannot work; None if it may.

    Other runs were checked when they were requested. A job that Azure ML already has passes: the handler that
    submitted it died before recording that.
    """
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    generation = services.ledger.latest_generation(run.dataset_version)
    if pipeline is None or generation is None or run.trigger != CLOSED or run.attempt > 1:
        return None
    problems = _problems(pipeline, pipeline.options, generation, services.documents)
    if not problems or services.jobs.status(run.run_id) is not None:
        return None
    return "; ".join(problems)


def _problems(
    pipeline: Pipeline, options: TrainingOptions, generation: Generation, documents: DocumentStore
) -> tuple[str, ...]:
    """Return what does not fit. The user's own script defines its options."""
    if is_own_script(pipeline.train.script):
        return ()
    required = pipeline.register_.require if pipeline.register_ else ()
    problems = unreported_metrics(options, [one.metric for one in required])
    manifest = None if pipeline.data.is_synthetic else _manifest(generation, documents)
    if manifest is not None:
        world_size = pipeline.train.num_nodes * pipeline.machines.processes_per_node
        problems += misfits(options, manifest, world_size=world_size)
    return tuple(problems)


def _manifest(generation: Generation, documents: DocumentStore) -> Manifest | None:
    """Return the manifest; None if it cannot be read, which the training then reports."""
    try:
        return read_manifest(generation.manifest_path, documents)
    except ManifestError:
        return None
