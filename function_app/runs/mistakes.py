"""What a person has to correct before a job is paid for: its code, its script, or options that do not fit the data.

A mistake says nothing against the data: they are not held, and once it is corrected the same version can be requested
again without force. `mistake` checks a run before its submission; a request is refused before it has a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from function_app.config.pipeline_files import no_modules
from function_app.config.pipelines import Pipeline, is_own_script
from function_app.domain.errors import ConfigurationError, ScriptRefusedError
from function_app.domain.failures import FailureClass
from function_app.domain.jobs import TAG, Plan, with_tags
from function_app.domain.records import Generation, RunRecord
from function_app.ingest.closing import CLOSED
from function_app.ingest.stored_shards import read_manifest
from function_app.ports import DocumentStore
from function_app.runs.attempts import bad_script_members, final_members
from function_app.services import ReadModules, ReadScript, RunServices
from horovod_lint import ScriptError
from shared import mismatch
from shared.configuration import misfits, unreported_metrics
from shared.job_arguments import TrainingOptions
from shared.manifest import Manifest, ManifestError

if TYPE_CHECKING:
    from horovod_lint import Finding, Machine

SCRIPT_ERRORS_TAG = TAG + "script_errors"
"""The tag with the codes of the errors that a forced job was submitted with."""
UNREADABLE = "unreadable"
"""The code of a script, or of a module that it imports, that Python or the lint refuses."""
MAX_LISTED = 20
_MAX_TAG_CHARS = 256


def mistake(run: RunRecord, services: RunServices) -> tuple[str, dict[str, Any]] | None:
    """Return what keeps a run from being submitted until it is corrected, and the members that say so; or None."""
    if problem := _other_contract(run, services):
        return problem, final_members(run, FailureClass.CONFIGURATION, problem, fix="run `azd up`")
    if problem := _script_refusal(run, services):
        return problem, bad_script_members()
    if problem := _misfit(run, services):
        return problem, final_members(run, FailureClass.CONFIGURATION, problem)
    return None


def refuse_misfit(
    pipeline: Pipeline, options: TrainingOptions, generation: Generation, documents: DocumentStore
) -> None:
    """Raise ConfigurationError where the training cannot work on these data; each problem names its option."""
    problems = _problems(pipeline, options, generation, documents)
    if problems:
        raise ConfigurationError(f"pipeline {pipeline.pipeline}: {'; '.join(problems)}", problems=problems)


def _other_contract(run: RunRecord, services: RunServices) -> str | None:
    """Return why the code of a run, which was planned before an upgrade, would not understand the app's job.

    None where it does, or where Azure ML already has the job. With the code that the settings name, the pipeline
    would be out of service.
    """
    if run.spec["code_id"] == services.workspace.code_id:
        return None
    problem = mismatch(str(run.spec["code_id"]))
    return problem if problem and services.jobs.status(run.run_id) is None else None


def _misfit(run: RunRecord, services: RunServices) -> str | None:
    """Return why a run that the closing of its version started cannot work; None if it can.

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
    """Return the manifest; None where it cannot be read, which the training then reports."""
    try:
        return read_manifest(generation.manifest_path, documents)
    except ManifestError:
        return None


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
    from horovod_lint import ScriptFile, Severity, lint_script, refused_modules  # only where a script is one's own

    try:
        path = PurePath("/", train.script)
        script = ScriptFile(path=path, name=train.script, content=read_script(train.script))
        modules = read_modules(train.files)
        report = lint_script(
            script.content,
            train.script,
            _machine(pipeline, arguments_of_runs or (train.arguments,)),
            path=path,
            files=modules,
        )
        refused = tuple(refused_modules(script, modules))
    except ScriptError as error:
        return ScriptCheck(errors=(str(error),), codes=(UNREADABLE,))
    codes = [UNREADABLE for _ in refused] + [str(finding.code) for finding in report.errors]
    return ScriptCheck(
        errors=(*refused, *(_worded(train.script, finding) for finding in report.errors)),
        codes=tuple(dict.fromkeys(codes)),
        warnings=tuple(_worded(train.script, finding) for finding in report.of(Severity.WARNING)),
    )


def _machine(pipeline: Pipeline, arguments: Sequence[Sequence[str]]) -> Machine:
    """Return what is known of the job that the script will be."""
    from horovod_lint import Machine

    train = pipeline.train
    return Machine.of_job(
        vm_size=pipeline.machines.vm_size,
        environment=train.environment_variables,
        arguments=arguments,
        paths=train.paths_passed,
        registers=pipeline.register_ is not None,
        distribution=train.distribution,
    )


def refuse_bad_script(pipeline: Pipeline, check: ScriptCheck) -> None:
    """Raise ScriptRefusedError where a script has errors."""
    if check.errors:
        raise ScriptRefusedError(
            f"pipeline {pipeline.pipeline}: {pipeline.train.script} has {_number(check)}; `landfall lint` explains "
            "them and the fixes; to train with the script as it is, request the run with force",
            findings=check.errors,
        )


def _script_refusal(run: RunRecord, services: RunServices) -> str | None:
    """Return why a run's script keeps it from being submitted; None where it does not.

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
