"""The check of a user's own training script before its job is submitted: errors are refused unless forced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from function_app.config.pipeline_files import no_modules
from function_app.config.pipelines import Pipeline, is_own_script
from function_app.domain.errors import ScriptRefusedError
from function_app.domain.jobs import TAG, Plan, with_tags
from function_app.domain.records import RunRecord
from function_app.services import ReadModules, ReadScript, RunServices
from horovod_lint import ScriptError

if TYPE_CHECKING:
    from horovod_lint import Finding

SCRIPT_ERRORS_TAG = TAG + "script_errors"
"""The tag with the codes of the errors that a forced job was submitted with."""
MAX_LISTED = 20
_MAX_TAG_CHARS = 256


@dataclass(frozen=True, kw_only=True)
class ScriptCheck:
    """Findings in a pipeline's script."""

    errors: tuple[str, ...] = ()
    """Each with place, code and message; or why the script cannot be read."""
    codes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The errors in one line."""
        more = f"; and {len(self.errors) - MAX_LISTED} more" if len(self.errors) > MAX_LISTED else ""
        return "; ".join(self.errors[:MAX_LISTED]) + more


def check_script(
    pipeline: Pipeline,
    read_script: ReadScript,
    read_modules: ReadModules = no_modules,
    arguments_of_runs: Sequence[Sequence[str]] = (),
) -> ScriptCheck:
    """Check the user's own script, with the modules that it imports.

    It must accept the arguments of each run of an option sweep or, without a sweep, the pipeline's.
    """
    train = pipeline.train
    if not is_own_script(train.script):
        return ScriptCheck()
    from horovod_lint import Machine, Severity, lint_script  # imported only for the user's own script

    try:
        report = lint_script(
            read_script(train.script),
            train.script,
            Machine.of_job(
                vm_size=pipeline.machines.vm_size,
                environment=train.environment_variables,
                arguments=arguments_of_runs or (train.arguments,),
                paths=train.paths_passed,
                registers=pipeline.register_ is not None,
                distribution=train.distribution,
            ),
            path=PurePath("/", train.script),
            files=read_modules(train.files),
        )
    except ScriptError as error:
        return ScriptCheck(errors=(str(error),), codes=("unreadable",))
    return ScriptCheck(
        errors=tuple(_worded(train.script, finding) for finding in report.errors),
        codes=tuple(dict.fromkeys(str(finding.code) for finding in report.errors)),
        warnings=tuple(_worded(train.script, finding) for finding in report.of(Severity.WARNING)),
    )


def refuse_bad_script(pipeline: Pipeline, check: ScriptCheck) -> None:
    """Raise ScriptRefusedError if a script has errors."""
    if check.errors:
        raise ScriptRefusedError(
            f"pipeline {pipeline.pipeline}: {pipeline.train.script} has {_number(check)}; `landfall lint` explains "
            "them and the fixes; to train with the script as it is, request the run with force",
            findings=check.errors,
        )


def script_refusal(run: RunRecord, services: RunServices) -> str | None:
    """Return why a run's script keeps it from being submitted; None if it does not.

    Later attempts continue a script that has passed. A job that Azure ML already has passes too: the handler that
    submitted it died before recording that.
    """
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None or run.forced_by is not None or run.attempt > 1:
        return None
    check = check_script(pipeline, services.read_script, services.read_modules)
    if not check.errors or services.jobs.status(run.run_id) is not None:
        return None
    return f"{pipeline.train.script} has {_number(check)}: {check.summary}"


def with_script_errors(plan: Plan, check: ScriptCheck) -> Plan:
    """Tag a forced job with the errors of its script."""
    if not check.codes:
        return plan
    return with_tags(plan, {SCRIPT_ERRORS_TAG: ",".join(check.codes)[:_MAX_TAG_CHARS]})


def _worded(script: str, finding: Finding) -> str:
    return f"{finding.file or script}:{finding.line}: {finding.code}: {finding.message}"


def _number(check: ScriptCheck) -> str:
    return f"{len(check.errors)} error{'' if len(check.errors) == 1 else 's'}"
