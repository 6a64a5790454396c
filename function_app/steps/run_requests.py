"""Somebody asks for a run: on a version that is whole or on synthetic data, within what the pipeline offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from function_app.errors import NotFoundError, VersionNotWholeError
from function_app.ledger import DatasetVersion, Generation, RunRecord
from function_app.pipelines import Pipeline
from function_app.ports import TrainingRequest
from function_app.steps.description import missing_shards, refusal_messages
from function_app.steps.naming import unspent_plan
from function_app.steps.overrides import overridden
from function_app.steps.planning import planned_run
from function_app.steps.quarantine import refuse_quarantined
from function_app.steps.script_check import (
    MAX_TOLD,
    ScriptCheck,
    check_script,
    refuse_bad_script,
    with_script_errors,
)
from function_app.steps.services import Services
from function_app.steps.submission import AWAITING_SUBMISSION
from function_app.steps.synthetic import synthetic_closing, version_meant


def asked_version(dataset: str, version: str | None, services: Services) -> DatasetVersion:
    """Return which version a caller means. Raises NotFoundError, VersionNameError."""
    return version_meant(_pipeline(dataset, services), dataset, version)


def request_run(
    version: DatasetVersion,
    overrides: Mapping[str, Any],
    *,
    trigger: str,
    services: Services,
    forced_by: str | None = None,
) -> tuple[RunRecord, bool]:
    """Plan and claim a run and put it into the queue; return it, and whether it is new.

    ``forced_by``, the key of a request, trains again on purpose, whatever was trained before: the same key means the
    same run, so that a repeated call does not double it.

    Raises NotFoundError, VersionNotWholeError, OverrideError, VersionQuarantinedError, ScriptRefusedError.
    """
    pipeline = _pipeline(version.dataset, services)
    options = overridden(pipeline, overrides)
    generation = _closing(pipeline, version, services)
    check = check_script(pipeline, services)
    if forced_by is None:
        refuse_quarantined(generation, services)
        refuse_bad_script(pipeline, check)
    plan = unspent_plan(pipeline, generation, services, options=options, forced_by=forced_by)
    plan = with_script_errors(plan, check)
    now = services.clock()
    planned = planned_run(plan, pipeline, generation, trigger=trigger, now=now, forced_by=forced_by)
    is_new = services.ledger.add_run(planned)
    run = planned if is_new else services.ledger.run(plan.run_id) or planned
    if is_new:
        _tell_story(run, overrides, check, services)
    if run.state in AWAITING_SUBMISSION:
        # also where it exists: whoever claimed it may have died before this line
        request = TrainingRequest(
            dataset_version=version, generation=generation.number, trigger=trigger, run_id=run.run_id
        )
        services.requests.send(request)
    return run, is_new


def _pipeline(dataset: str, services: Services) -> Pipeline:
    pipeline = services.pipelines.get(dataset)
    if pipeline is None:
        raise NotFoundError(f"dataset {dataset} has no pipeline")
    return pipeline


def _closing(pipeline: Pipeline, version: DatasetVersion, services: Services) -> Generation:
    if pipeline.data.is_synthetic:
        return synthetic_closing(pipeline, version, services)
    generation = services.ledger.latest_generation(version)
    if generation is None:
        raise _not_whole(pipeline, version, services)
    return generation


def _not_whole(pipeline: Pipeline, version: DatasetVersion, services: Services) -> VersionNotWholeError:
    missing = missing_shards(pipeline, version, services)
    refusal = () if missing else refusal_messages(version, services)
    problem = f"refused as a set for {len(refusal)} reasons" if refusal else f"not whole: {len(missing)} missing"
    return VersionNotWholeError(f"{version} is {problem}", missing=(*missing, *refusal))


def _tell_story(run: RunRecord, overrides: Mapping[str, Any], check: ScriptCheck, services: Services) -> None:
    version = run.dataset_version
    services.decide(run.run_id, "run_planned", f"for {version}, trigger {run.trigger}", overrides=dict(overrides))
    if run.forced_by is not None:
        reason = f"run {run.run_id} trains again on purpose: asked for with force, request {run.forced_by}"
        services.decide(run.run_id, "run_forced", reason)
        services.decide(str(version), "run_forced", reason)
    if check.errors:
        services.decide(run.run_id, "script_errors_forced", check.told)
    if check.warnings:
        services.decide(run.run_id, "script_warnings", "; ".join(check.warnings[:MAX_TOLD]))
