"""Azure ML jobs: the job for a pipeline and a closing, with its name, status and model."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from function_app.config.environments import NAME as OWN_ENVIRONMENT
from function_app.config.fields import Distribution
from function_app.config.own_files import NAME as OWN_FILES
from function_app.config.pipelines import Pipeline, is_own_script, processes_under
from function_app.domain.records import Generation, RunRecord
from shared.job_arguments import JobArguments, ScriptArguments, TrainingOptions
from shared.traces import TRACEPARENT, TRACEPARENT_VARIABLE, place_of_run
from shared.training_report import FILE_NAME as REPORT_NAME
from shared.vm_sizes import device_of, network_environment

PREFIX = "landfall-"
"""Prefix of the names of Landfall's jobs."""
TAG = "landfall."
TRACEPARENT_TAG = TAG + TRACEPARENT
"""The tag with the trace context of a job."""
SPEC_HASH_TAG = "landfall.spec_hash"
"""The tag with the spec's hash, which tells whether an existing job with the same name is the submitted one."""

MPI_ENVIRONMENT = {
    # Otherwise Open MPI's polling occupies the computing core: scaling efficiency on two cores is 0.60, not 0.95.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Microsoft's documents disagree on the default. Without it a mount downloads whole files.
    "DATASET_MOUNT_BLOCK_BASED_CACHE_ENABLED": "true",
}

SCRIPT_ENVIRONMENT = {
    # `python scripts/mine.py` searches only scripts/ for imports, but the job starts in the code asset's root.
    "PYTHONPATH": ".",
}


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The workspace in which jobs run, and the assets that a deployment registered there."""

    subscription_id: str
    resource_group: str
    name: str
    environment_id: str
    """Full ARM id with version, like ``code_id``."""
    code_id: str
    data_datastore: str
    state_datastore: str
    runs_datastore: str

    @property
    def arm_id(self) -> str:
        """The workspace's full ARM id."""
        where = f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
        return f"{where}/providers/Microsoft.MachineLearningServices/workspaces/{self.name}"

    def datastore_uri(self, datastore: str, path: str) -> str:
        """Return the full ``azureml://`` uri of a path in a datastore, valid from any workspace."""
        where = f"subscriptions/{self.subscription_id}/resourcegroups/{self.resource_group}/workspaces/{self.name}"
        return f"azureml://{where}/datastores/{datastore}/paths/{path}"


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One Azure ML command job, fully resolved; every id is a full ARM id, every uri a full datastore uri."""

    name: str
    display_name: str
    experiment: str
    command: str
    environment_id: str
    code_id: str
    compute: str
    num_nodes: int
    processes_per_node: int
    shm_size: str
    timeout_s: int
    inputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_file | uri_folder, uri}; read-only mounts. The uri of ``files`` is an asset's ARM id."""
    outputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_folder | custom_model, uri}; read-write mounts."""
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    distribution: Distribution = "mpi"


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as Azure ML sees it."""

    name: str
    status: str
    """Azure ML's status: ``Queued``, ``Running``, ``Completed`` …"""
    tags: Mapping[str, str] = field(default_factory=dict)
    studio_url: str | None = None
    error: str | None = None
    """The service's message for a failed job, if there is one."""
    error_code: str | None = None
    """The service's error codes, outermost first: ``UserError/ExecutionFailed``."""
    ran_s: float | None = None
    """For a failed or canceled job, the time from its start to its end by Azure ML's clock; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class JobAssets:
    """Facts about a job's environment and code, from Azure ML."""

    image: str | None = None
    """The image of the environment, by digest if Landfall published it; None if unknown."""
    commit: str | None = None
    """The commit from which the code was published, with ``-dirty`` if files had been changed; None if unknown."""
    why_no_commit: str | None = None
    """Why the commit is unknown; None if it is known."""


COMMIT_TAG = TAG + "commit"
"""The tag of a code asset with the commit from which it was first published."""
NO_COMMIT = (
    f"the code asset has no tag {COMMIT_TAG}: an earlier release published it, or its folder was not a git clone"
)


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """Some bytes of a rank's log."""

    content: bytes
    start: int
    """Offset of the first byte in the log."""
    size: int
    """Number of bytes that the log has so far."""


MAX_LOGGED_METRICS = 100
_MAX_METRIC_NAME_CHARS = 250
"""MLflow's limit."""


def finite_metrics(logged: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that a job logged: finite numbers under names of a valid length, the first ones by name."""
    found = {
        name: float(value)
        for name, value in sorted(logged.items())
        if len(name) <= _MAX_METRIC_NAME_CHARS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    }
    return dict(list(found.items())[:MAX_LOGGED_METRICS])


@dataclass(frozen=True, kw_only=True)
class ModelRegistration:
    """A model version to register. The version is explicit, so repeating the call changes nothing."""

    name: str
    version: str
    path: str
    """``azureml://jobs/<run_id>/outputs/model``."""
    description: str
    tags: Mapping[str, str]
    """Lineage: run, dataset version, fingerprint, code and metrics."""


# -- from a pipeline and a closing to a job: pure functions --------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that may be submitted."""

    logical_run: str
    attempt: int
    spec: JobSpec
    spec_hash: str

    @property
    def run_id(self) -> str:
        """The run's id, which is the job's name."""
        return self.spec.name


def plan_run(
    pipeline: Pipeline,
    generation: Generation,
    workspace: Workspace,
    *,
    options: TrainingOptions | None = None,
    logical_run: str | None = None,
    again: str | None = None,
) -> Plan:
    """Return the resolved job. ``logical_run`` is an already claimed name, which replaces the computed one.

    ``again`` gives a training another name if it is repeated on purpose.
    """
    options = options or pipeline.options
    logical_run = logical_run or _logical_run(pipeline, generation, workspace, options, again)
    spec = _spec(pipeline, generation, workspace, options=options, logical_run=logical_run)
    return signed_plan(logical_run, 1, spec)


def signed_plan(logical_run: str, attempt: int, unsigned: JobSpec) -> Plan:
    """Return a plan whose job is tagged with the hash of its spec."""
    unsigned = replace(unsigned, tags={k: v for k, v in unsigned.tags.items() if k != SPEC_HASH_TAG})
    spec_hash = digest(spec_to_json(unsigned))
    signed = replace(unsigned, tags={**unsigned.tags, SPEC_HASH_TAG: spec_hash})
    return Plan(logical_run=logical_run, attempt=attempt, spec=signed, spec_hash=spec_hash)


def with_tags(plan: Plan, tags: Mapping[str, str]) -> Plan:
    """Return the plan with more tags in its job."""
    return signed_plan(plan.logical_run, plan.attempt, replace(plan.spec, tags={**plan.spec.tags, **tags}))


def planned_run(
    plan: Plan,
    pipeline: Pipeline,
    generation: Generation,
    *,
    trigger: str,
    now: datetime,
    asked_at: datetime | None = None,
    forced_by: str | None = None,
) -> RunRecord:
    """Return the ledger's row of a plan; ``asked_at`` is its place in line if older than the plan."""
    return RunRecord(
        run_id=plan.run_id,
        logical_run=plan.logical_run,
        attempt=plan.attempt,
        dataset_version=generation.dataset_version,
        generation=generation.number,
        fingerprint=generation.fingerprint,
        pipeline=pipeline.pipeline,
        trigger=trigger,
        spec=spec_to_json(plan.spec),
        spec_hash=plan.spec_hash,
        created_at=now,
        asked_at=asked_at or now,
        state_since=now,
        forced_by=forced_by,
        num_nodes=plan.spec.num_nodes,
        world_size=plan.spec.num_nodes * plan.spec.processes_per_node,
    )


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Return JSON-ready members. The default distribution, MPI, is left out, as in rows of earlier releases."""
    members = asdict(spec)
    return members if members["distribution"] != "mpi" else {k: v for k, v in members.items() if k != "distribution"}


def spec_from_json(members: Mapping[str, Any]) -> JobSpec:
    """Read what `spec_to_json` wrote."""
    return JobSpec(**members)


def report_path(spec: JobSpec) -> str:
    """Return the path in the runs container at which the job writes its training report."""
    folder = spec.outputs["report"]["uri"].partition("/paths/")[2]
    return f"{folder.rstrip('/')}/{REPORT_NAME}"


def model_folder(spec: JobSpec) -> str:
    """Return the folder in the runs container to which the job writes its model."""
    return spec.outputs["model"]["uri"].partition("/paths/")[2].rstrip("/")


def digest(members: Any) -> str:
    """Return the SHA-256 of canonical JSON."""
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _logical_run(
    pipeline: Pipeline, generation: Generation, workspace: Workspace, options: TrainingOptions, again: str | None
) -> str:
    """Return a name derived from the data and the training, so the same request always has the same name."""
    version = generation.dataset_version
    left_out = {"overrides", "options", "options_by_gpu", "cluster"}
    if not is_own_script(pipeline.train.script):
        left_out |= {"arguments", "pass_paths"}
    if pipeline.train.distribution == "mpi":  # keeps the names from releases that only had MPI
        left_out |= {"distribution"}
    if pipeline.train.environment is None:
        left_out |= {"environment"}
    if pipeline.files is None:
        left_out |= {"files"}
    train = pipeline.train.model_dump(mode="json", exclude=left_out)
    machines = {
        "compute": pipeline.machines.cluster,
        "vm_size": pipeline.machines.vm_size,
        "processes_per_node": pipeline.machines.processes_per_node,
        "price_per_node_hour": pipeline.machines.price_per_node_hour,
    }
    request = {
        "dataset": version.dataset,
        "version": version.version,
        "fingerprint": generation.fingerprint,
        "train": {**train, **machines, "options": asdict(options)},
        "environment": _environment_id(pipeline, workspace),
        "code": workspace.code_id,
        **({"files": pipeline.files.version} if pipeline.files is not None else {}),
        **({"again": again} if again is not None else {}),
    }
    readable = re.sub(r"[^a-zA-Z0-9_-]", "-", f"{version.dataset}-{version.version}")
    return f"{PREFIX}{readable}-{digest(request)[:12]}"


def _spec(
    pipeline: Pipeline,
    generation: Generation,
    workspace: Workspace,
    *,
    options: TrainingOptions,
    logical_run: str,
) -> JobSpec:
    train, machines, version = pipeline.train, pipeline.machines, generation.dataset_version
    run_id = f"{logical_run}-a1"
    traceparent = place_of_run(version, run_id).traceparent
    tags = {"dataset_version": str(version), "fingerprint": generation.fingerprint, "run_id": run_id}
    return JobSpec(
        name=run_id,
        display_name=f"{version} (generation {generation.number}, attempt 1)",
        experiment=f"{PREFIX}{version.dataset}",
        command=_command(pipeline, options),
        environment_id=_environment_id(pipeline, workspace),
        code_id=workspace.code_id,
        compute=machines.cluster,
        num_nodes=train.num_nodes,
        processes_per_node=processes_under(train.distribution, machines),
        shm_size=train.shm_size,
        timeout_s=train.timeout_s,
        inputs=_inputs(pipeline, generation, workspace),
        outputs=_outputs(f"{version}/{logical_run}", workspace),
        environment_variables={
            **MPI_ENVIRONMENT,
            **network_environment(machines.vm_size),
            **(SCRIPT_ENVIRONMENT if is_own_script(train.script) else {}),
            **train.environment_variables,
            TRACEPARENT_VARIABLE: traceparent,
        },
        tags={TAG + name: value for name, value in {**tags, "pipeline": pipeline.pipeline}.items()}
        | {TRACEPARENT_TAG: traceparent},
        distribution=train.distribution,
    )


def _environment_id(pipeline: Pipeline, workspace: Workspace) -> str:
    """Return the id of the pipeline's own environment as `landfall publish` registers it, or of Landfall's."""
    if pipeline.environment is None:
        return workspace.environment_id
    environments, _, base = workspace.environment_id.partition("/environments/")
    version = pipeline.environment.version(base.rpartition("/")[2])
    return f"{environments}/environments/{OWN_ENVIRONMENT}/versions/{version}"


def _command(pipeline: Pipeline, options: TrainingOptions) -> str:
    train, machines = pipeline.train, pipeline.machines
    common: dict[str, Any] = {
        "data": "" if pipeline.data.is_synthetic else "${{inputs.data}}",
        "manifest": "${{inputs.manifest}}",
        "expected_world_size": train.num_nodes * processes_under(train.distribution, machines),
        "expected_nodes": train.num_nodes,
        "expected_device": device_of(machines.vm_size),
    }
    model, report, checkpoints = "${{outputs.model}}", "${{outputs.report}}", "${{outputs.checkpoints}}"
    if is_own_script(train.script):
        return ScriptArguments(
            **common,
            files="${{inputs.files}}" if pipeline.files is not None else "",
            output=model,
            checkpoint=checkpoints,
            report=f"{report}/{REPORT_NAME}",
            arguments=train.arguments,
            pass_paths=train.pass_paths,
        ).to_command(train.script)
    options = _with_own_files(pipeline, options)
    return JobArguments(**asdict(options), **common, model=model, report=report, checkpoints=checkpoints).to_command(
        f"python -m {train.script}"
    )


def _with_own_files(pipeline: Pipeline, options: TrainingOptions) -> TrainingOptions:
    """Return the options with the paths of the pipeline's files replaced by their paths in the job."""
    names = pipeline.files.names if pipeline.files is not None else frozenset[str]()

    def placed(name: str) -> str:
        return f"${{{{inputs.files}}}}/{name}" if name in names else name

    return replace(
        options,
        model_module=placed(options.model_module),
        pretrained_weights=placed(options.pretrained_weights),
    )


def runs_own_script(command: str) -> bool:
    """Whether a job's command runs a user's script. Jobs of older deployments start it without the machine check."""
    return any(is_own_script(word) for word in command.split()[1:4])


_EXPECTED = re.compile(r"--expected-world-size \d+ (--expected-nodes \d+) --expected-device (\w+)$")
"""The end of a command, where no option's value can be mistaken for it."""


def expected_device(command: str) -> str | None:
    """Return the expected device of each rank; None for jobs of older deployments, whose commands lack it."""
    found = _EXPECTED.search(command)
    return found[2] if found else None


def with_expected_machines(command: str, *, world_size: int, vm_size: str) -> str:
    """Return the command with other expected machines; commands of older deployments stay as they are."""
    return _EXPECTED.sub(rf"--expected-world-size {world_size} \1 --expected-device {device_of(vm_size)}", command)


def _inputs(pipeline: Pipeline, generation: Generation, workspace: Workspace) -> dict[str, dict[str, str]]:
    """Return the inputs. Without shards there is no data folder, because Azure ML cannot mount a missing folder."""
    manifest = workspace.datastore_uri(workspace.state_datastore, generation.manifest_path)
    inputs = {"manifest": {"type": "uri_file", "uri": manifest}}
    if not pipeline.data.is_synthetic:
        data = workspace.datastore_uri(workspace.data_datastore, f"{generation.dataset_version}/")
        inputs["data"] = {"type": "uri_folder", "uri": data}
    if pipeline.files is not None:
        root = workspace.environment_id.partition("/environments/")[0]
        asset = f"{root}/data/{OWN_FILES}/versions/{pipeline.files.version}"
        inputs["files"] = {"type": "uri_folder", "uri": asset}
    return inputs


_ASSETS = {
    "data": "the data asset {} with the files of train.files; run landfall publish to upload it",
    "environments": "the environment {}; run landfall publish to register it",
    "codes": "the code asset {}; run landfall publish to upload it",
}
"""The assets of a job, by the type in the ARM id."""


def files_asset(spec: JobSpec) -> str | None:
    """Return the ARM id of the asset with the files of a job; None if the job has no files."""
    return spec.inputs["files"]["uri"] if "files" in spec.inputs else None


def named_asset(asset_id: str) -> tuple[str, str, str]:
    """Return kind (``data``, ``environments`` or ``codes``), name and version of an asset from its ARM id."""
    _, kind, name, _, version = asset_id.rsplit("/", 4)
    return kind, name, version


def not_published(spec: JobSpec, asset_id: str) -> str:
    """Return the reason for refusing a job if the workspace lacks an asset that the job needs."""
    kind, name, version = named_asset(asset_id)
    return f"submit job {spec.name}: the workspace has no version {version} of {_ASSETS[kind].format(name)}"


def _outputs(folder: str, workspace: Workspace) -> dict[str, dict[str, str]]:
    """Return the outputs. Checkpoints belong to the logical run, so that a later attempt finds them."""
    kinds = {
        "report": ("uri_folder", f"{folder}/a1/report"),
        "model": ("custom_model", f"{folder}/a1/model"),
        "checkpoints": ("uri_folder", f"{folder}/checkpoints"),
    }
    return {
        name: {"type": kind, "uri": workspace.datastore_uri(workspace.runs_datastore, path)}
        for name, (kind, path) in kinds.items()
    }
