"""A name for a run: the same request has the same one, unless that one is spent."""

from __future__ import annotations

from dataclasses import replace

from function_app.errors import LedgerConflictError
from function_app.ledger import Generation, RunRecord, RunState
from function_app.pipelines import Pipeline
from function_app.steps.flights import last_attempt
from function_app.steps.planning import TAG, Plan, plan_run, signed_plan
from function_app.steps.services import Services
from shared.job_arguments import TrainingOptions

FORCED_TAG = TAG + "forced"
MAX_NAMES = 100
"""Of one request: as often the same data may come back, or be suppressed, before somebody has to look."""
WITHOUT_A_MODEL = frozenset({RunState.FAILED, RunState.CANCELED, RunState.LOST})


def unspent_plan(
    pipeline: Pipeline,
    generation: Generation,
    services: Services,
    *,
    options: TrainingOptions | None = None,
    forced_by: str | None = None,
) -> Plan:
    """Return the plan of a request under the first of its names that can still lead to a model, or has.

    ``forced_by`` makes it another request: whatever was trained before, this one has names of its own.
    """
    for number in range(MAX_NAMES):
        again = "/".join([*([f"forced by {forced_by}"] if forced_by else []), *([str(number)] if number else [])])
        plan = plan_run(pipeline, generation, services.workspace, options=options, again=again or None)
        run = last_attempt(plan.run_id, services)
        if run is None or not _is_spent(run, generation):
            return _tagged(plan) if forced_by else plan
    raise LedgerConflictError(
        f"{generation.dataset_version}: the same training was given up {MAX_NAMES} times; ask for it with force"
    )


def _tagged(plan: Plan) -> Plan:
    """Say on the job, too, that it trains again on purpose."""
    return signed_plan(
        plan.logical_run, plan.attempt, replace(plan.spec, tags={**plan.spec.tags, FORCED_TAG: "true"})
    )


def _is_spent(run: RunRecord, generation: Generation) -> bool:
    """Whether a run was never submitted, or ended badly on an earlier generation of the same content."""
    if run.state is RunState.SUPPRESSED:
        return True
    given_up = run.state in WITHOUT_A_MODEL or run.cancel_requested_at is not None
    return given_up and run.generation != generation.number
