"""Compute estimates for a pipeline and a closing, from the manifest, the ledger and the deployment's files."""

from __future__ import annotations

import contextlib
import io
import logging
import shlex
from collections.abc import Iterator
from typing import Any

from function_app.config.clusters import Machines
from function_app.config.pipelines import Pipeline, is_own_script
from function_app.config.prices import PlanFacts
from function_app.domain.records import RunRecord, manifest_path
from function_app.ingest.stored_shards import read_manifest
from function_app.planning.estimates import Site, Work, estimate
from function_app.planning.predictions import kind_of, observations, prediction_of
from function_app.services import RunServices
from shared.job_arguments import JobArguments, TrainingOptions
from shared.manifest import Manifest
from shared.vm_sizes import retirement

logger = logging.getLogger(__name__)

MAX_RUNS = 50
"""Maximum number of a dataset's earlier runs from which a plan learns."""
_PROGRAM_WORDS = 3
"""``python -m training_job.train``."""


def sites(pipeline: Pipeline, facts: PlanFacts) -> Iterator[Site]:
    """Yield the clusters with their machines, the pipeline's own first. Clusters of unknown size are left out."""
    own = pipeline.train.cluster
    for name in [own, *(name for name in facts.clusters.clusters if name != own)]:
        with contextlib.suppress(ValueError):
            yield site(facts.clusters.machines(name), facts)


def site(machines: Machines, facts: PlanFacts) -> Site:
    """Return a cluster with its price."""
    cluster = facts.clusters.clusters[machines.cluster]
    return Site(
        cluster=cluster,
        machines=machines,
        price=facts.price(machines),
        retired="the size is retired" if retirement(machines.vm_size) else None,
    )


def work_of(pipeline: Pipeline, options: TrainingOptions, manifest: Manifest | None) -> Work:
    """Return the training to estimate; synthetic data have no manifest of shards."""
    synthetic = options.synthetic_records
    if synthetic or manifest is None:
        train, validation = synthetic, 0
    elif is_own_script(pipeline.train.script):
        train, validation = sum(shard.num_records for shard in manifest.shards), 0
    else:
        train, validation = manifest.num_records(options.train_split), manifest.num_records(options.validation_split)
    return Work(
        pipeline=pipeline,
        options=options,
        train_records=train,
        validation_records=validation,
        pixels=_pixels(options, manifest),
    )


def _pixels(options: TrainingOptions, manifest: Manifest | None) -> int:
    """Return height times width of an image, from the options or, without them, from the data; 0 if unknown."""
    if options.image_height and options.image_width:
        return options.image_height * options.image_width
    shapes = [one.shape for one in manifest.features if one.name == options.image_feature] if manifest else []
    for height, width, *_ in (shape for shape in shapes if len(shape) > 1):
        return (height or 0) * (width or 0)
    return 0


def earlier_runs(dataset: str, services: RunServices) -> list[RunRecord]:
    """Return the runs from which a plan learns, newest first."""
    return services.ledger.runs(dataset=dataset, limit=MAX_RUNS)


def prediction(run: RunRecord, services: RunServices) -> dict[str, Any]:
    """Return the prediction for a run that was just submitted; empty if there is none.

    Errors are only logged, because the run has been submitted and its row must be written.
    """
    try:
        return _prediction(run, services)
    except Exception:
        logger.exception(f"run {run.run_id}: no prediction", extra={"action": "not_predicted"})
        return {}


def _prediction(run: RunRecord, services: RunServices) -> dict[str, Any]:
    facts, pipeline = services.plan_facts, services.pipelines.get(run.dataset_version.dataset)
    compute, command = str(run.spec["compute"]), str(run.spec["command"])
    machines = pipeline.machines_on(compute) if pipeline else None
    if pipeline is None or machines is None or compute not in facts.clusters.clusters:
        return {}
    options = _options(command, pipeline)
    path = manifest_path(run.dataset_version, run.generation, run.fingerprint)
    manifest = None if pipeline.data.is_synthetic else read_manifest(path, services.documents)
    work = work_of(pipeline, options, manifest)
    known = observations(earlier_runs(pipeline.dataset, services), kind_of(command))
    found = estimate(work, site(machines, facts), run.num_nodes, facts.prices, known)
    as_of = facts.prices.as_of.isoformat() if facts.prices else None
    return prediction_of(found, records=work.train_records, as_of=as_of)


def _options(command: str, pipeline: Pipeline) -> TrainingOptions:
    """Return the options with which a job was submitted, if its command can still be parsed."""
    if not is_own_script(pipeline.train.script):
        with contextlib.suppress(SystemExit, ValueError), contextlib.redirect_stderr(io.StringIO()):
            return JobArguments.from_argv(shlex.split(command)[_PROGRAM_WORDS:])
    return pipeline.options
