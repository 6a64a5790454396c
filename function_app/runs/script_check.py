"""A script of the user's own is looked at before a job is made of it: errors are refused unless somebody insists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from function_app.config.pipeline_files import is_own_script
from function_app.config.pipelines import Pipeline
from function_app.domain.errors import ScriptRefusedError
from function_app.domain.failures import FailureClass, Remedy
from function_app.domain.job_plan import TAG, Plan, signed_plan
from function_app.domain.records import RunRecord
from function_app.services import Services
from horovod_lint import ScriptError

if TYPE_CHECKING:
    from horovod_lint import Finding

SCRIPT_ERRORS_TAG = TAG + "script_errors"
"""Of a job that was forced with a script that has some: their codes."""
MAX_TOLD = 20
_MAX_TAG_CHARS = 256


@dataclass(frozen=True, kw_only=True)
class ScriptCheck:
    """What a look at a pipeline's script has found."""

    errors: tuple[str, ...] = ()
    """Each with its place, its code, and what was seen; or why the script cannot be looked at."""
    codes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The errors in one text."""
        more = f"; and {len(self.errors) - MAX_TOLD} more" if len(self.errors) > MAX_TOLD else ""
        return "; ".join(self.errors[:MAX_TOLD]) + more


def check_script(pipeline: Pipeline, services: Services) -> ScriptCheck:
    """Look at a pipeline's script, where it is the user's own."""
    train = pipeline.train
    if not is_own_script(train.script):
        return ScriptCheck()
    from horovod_lint import Machine, Severity, lint_script  # only who brings a script pays for it

    try:
        report = lint_script(
            services.read_script(train.script),
            train.script,
            Machine.of_job(vm_size=train.vm_size, environment=train.environment_variables),
        )
    except ScriptError as error:
        return ScriptCheck(errors=(str(error),), codes=("unreadable",))
    return ScriptCheck(
        errors=tuple(_worded(train.script, finding) for finding in report.errors),
        codes=tuple(dict.fromkeys(str(finding.code) for finding in report.errors)),
        warnings=tuple(_worded(train.script, finding) for finding in report.of(Severity.WARNING)),
    )


def refuse_bad_script(pipeline: Pipeline, check: ScriptCheck) -> None:
    """Raise ScriptRefusedError where a script has errors."""
    if check.errors:
        raise ScriptRefusedError(
            f"pipeline {pipeline.pipeline}: {pipeline.train.script} has {_number(check)}; `landfall lint` says why "
            "they matter and what to write instead; ask with force to train with it as it is",
            findings=check.errors,
        )


def script_refusal(run: RunRecord, services: Services) -> str | None:
    """Say why a run's script keeps it from being submitted, None where nothing does.

    Later attempts continue what was let through once. A job that Azure ML has already, since whoever submitted it
    died before writing that down, is no longer kept from anything.
    """
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None or run.forced_by is not None or run.attempt > 1:
        return None
    check = check_script(pipeline, services)
    if not check.errors or services.jobs.status(run.run_id) is not None:
        return None
    return f"{pipeline.train.script} has {_number(check)}: {check.told}"


def refused_for_its_script() -> Mapping[str, Any]:
    """Return the members of a run that was not submitted for its script."""
    return {
        "failure_class": str(FailureClass.USER_CODE),
        "failure_evidence": "the training script has errors",
        "remedy": str(Remedy.STOP),
        "remedy_reason": "the same script would be refused again; mend it and publish, or submit with --force",
    }


def with_script_errors(plan: Plan, check: ScriptCheck) -> Plan:
    """Say on a job that is forced what is wrong with its script."""
    if not check.codes:
        return plan
    tags = {**plan.spec.tags, SCRIPT_ERRORS_TAG: ",".join(check.codes)[:_MAX_TAG_CHARS]}
    return signed_plan(plan.logical_run, plan.attempt, replace(plan.spec, tags=tags))


def _worded(script: str, finding: Finding) -> str:
    return f"{script}:{finding.line}: {finding.code}: {finding.message}"


def _number(check: ScriptCheck) -> str:
    return f"{len(check.errors)} error{'' if len(check.errors) == 1 else 's'}"
