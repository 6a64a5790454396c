"""Jobs and run history: submit, describe and cancel jobs, and locate logs."""

from __future__ import annotations

import re
from typing import Any

from local_azure.azure_ml.api.answers import UNKNOWN_COMPUTE
from local_azure.azure_ml.api.call import PROVIDER, Answer, Call, check_body, not_found, system_data
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.runs import IllegalTransitionError, Run, RunState
from local_azure.azure_ml.service import ServiceError, iso, utcnow
from local_azure.azure_ml.settings import LogAddresses
from local_azure.azure_ml.spec import JobSpec, job_spec
from local_azure.azure_ml.storage import log_location, output_uri
from local_azure.azure_ml.workspace import COMPUTES, Document

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9\-_]{0,254}")  # the service's rule
_UPDATABLE = {"description", "tags", "displayName", "properties", "isArchived"}


def put_job(emulator: Emulator, call: Call) -> Answer:
    """Submit a job. For an existing name, equal content updates the tags and other content is refused."""
    body, name = call.document(), call.parts["name"]
    check_body("jobs", body)
    if not NAME.fullmatch(name):
        raise ServiceError(400, "UserError", f"Job name {name!r} is invalid; it must match {NAME.pattern}.")
    spec = job_spec(body["properties"])
    with emulator.submission_lock:
        existing = emulator.runs.get(call.path)
        if existing is not None:
            return Answer(body=job_resource(_updated(emulator, existing, body["properties"])))
        _check_references(emulator, spec)
        run = _new_run(call, body["properties"])
        emulator.runs.add(run)
    emulator.executions.start(run)
    return Answer(status=201, body=job_resource(emulator.runs.current(run.job_id)))


def take_name(emulator: Emulator, job_id: str) -> None:
    """Use the name of a job that is about to be submitted for another job, which has ended."""
    workspace_id, _, name = job_id.rpartition("/jobs/")
    if emulator.runs.get(job_id) is None:
        properties = {
            "jobType": "Command",
            "command": "python of_another_team.py",
            "computeId": f"{workspace_id}/computes/x",
        }
        run = Run(
            name=name,
            workspace_id=workspace_id,
            properties=properties,
            status=RunState.COMPLETED,
            created_at=iso(utcnow()),
        )
        emulator.runs.add(run)


def get_job(emulator: Emulator, call: Call) -> Answer:
    """Describe a job in its current state."""
    return Answer(body=job_resource(_existing(emulator, call.path)))


def list_jobs(emulator: Emulator, call: Call) -> Answer:
    """List jobs, newest first; `tag` is `name` or `name=value`."""
    runs = emulator.runs.below(call.path.rstrip("/"))[::-1]
    if call.query.get("listViewType") == "ActiveOnly":
        runs = [run for run in runs if not run.properties.get("isArchived")]
    if tag := call.query.get("tag"):
        runs = [run for run in runs if _has_tag(run, tag)]
    return Answer(body={"value": [job_resource(run) for run in runs]})


def cancel_job(emulator: Emulator, call: Call) -> Answer:
    """Request a run to stop. A run that has ended, or is finalizing, stays as it is."""
    run = _existing(emulator, call.path.rpartition("/")[0])
    try:
        emulator.runs.move(run.job_id, RunState.CANCEL_REQUESTED)
    except IllegalTransitionError as error:
        if error.run.status is not RunState.CANCEL_REQUESTED:
            return Answer()
    emulator.executions.cancel(run.job_id)
    return Answer(status=202, headers={"Location": _cancel_result(emulator, call, run), "Retry-After": "1"})


def get_cancel_result(emulator: Emulator, call: Call) -> Answer:
    """Answer 202 while the run is ending, then 200."""
    runs = [run for run in emulator.runs.below("/") if run.name == call.parts["operation"]]
    if any(run.status is RunState.CANCEL_REQUESTED for run in runs):
        return Answer(status=202, headers={"Location": call.base_url + call.path, "Retry-After": "1"})
    return Answer()


def job_resource(run: Run) -> Document:
    """Return a run as the ARM resource of its job."""
    outputs = {
        name: {**definition, "uri": output_uri(run.name, name, definition)}
        for name, definition in (run.properties.get("outputs") or {}).items()
    }
    return {
        "id": run.job_id,
        "name": run.name,
        "type": f"{PROVIDER}/workspaces/jobs",
        "systemData": {**system_data(), "createdAt": run.created_at},
        "properties": {
            **run.properties,
            "displayName": run.properties.get("displayName") or run.name,
            "experimentName": run.experiment_name,
            "outputs": outputs,
            "tags": run.properties.get("tags") or {},
            "status": run.shown_as or str(run.status),
            "services": _services(run),
        },
    }


def _services(run: Run) -> dict[str, Any]:
    studio = f"https://ml.azure.com/runs/{run.name}?wsid={run.workspace_id}"
    tracking = f"azureml://localhost/mlflow/v1.0{run.workspace_id}"
    nothing = {"port": None, "status": None, "errorMessage": None, "properties": None}
    return {
        "Tracking": {"jobServiceType": "Tracking", "endpoint": tracking, **nothing},
        "Studio": {"jobServiceType": "Studio", "endpoint": studio, **nothing},
    }


def _cancel_result(emulator: Emulator, call: Call, run: Run) -> str:
    subscription = call.path.split("/")[2]
    return (
        f"{call.base_url}/subscriptions/{subscription}/providers/{PROVIDER}/locations/{emulator.settings.location}"
        f"/mfeOperationResults/jc:{run.name}?api-version={call.query.get('api-version', '')}"
    )


def _existing(emulator: Emulator, job_id: str) -> Run:
    run = emulator.runs.get(job_id)
    if run is None:
        raise not_found(f"Run {job_id.rpartition('/')[2]} was not found.")
    return run


def _new_run(call: Call, properties: Document) -> Run:
    return Run(
        name=call.parts["name"],
        workspace_id=call.workspace_id,
        properties=properties,
        status=RunState.NOT_STARTED,
        created_at=iso(utcnow()),
    )


def _updated(emulator: Emulator, existing: Run, new: Document) -> Run:
    """Apply the allowed updates; tags are merged, and none is removed."""
    old = existing.properties
    changed = [name for name in sorted(old.keys() | new.keys()) if _differs(name, old, new)]
    if changed:
        raise ServiceError(
            400,
            "UserError",
            "A job with this name already exists. If you are trying to create a new job, use a different name. If "
            f"you are trying to update an existing job, the existing job's {', '.join(changed)} cannot be changed. "
            "Only description, tags, displayName, properties, and isArchived can be updated.",
            inner=("Immutable", "JobPropertyImmutable"),
        )
    updates = {name: new[name] for name in _UPDATABLE & new.keys()}
    updates["tags"] = {**(old.get("tags") or {}), **(new.get("tags") or {})}
    return emulator.runs.update(existing.job_id, properties={**old, **updates})


def _differs(name: str, old: Document, new: Document) -> bool:
    if name in _UPDATABLE:
        return False
    return (old.get(name) or None) != (new.get(name) or None)  # Absent, null and empty are equal.


def _check_references(emulator: Emulator, spec: JobSpec) -> None:
    """Refuse a job whose compute, environment, code or data asset does not exist."""
    if emulator.store.get(COMPUTES, spec.compute_id) is None:
        raise ServiceError(400, "UserError", **UNKNOWN_COMPUTE)
    references = [("environments", spec.environment_id, "environment")]
    if spec.code_id is not None:
        references.append(("codes", spec.code_id, "code"))
    uris = [str(definition.get("uri")) for definition in spec.inputs.values()]
    references += [("data", uri, "data") for uri in uris if uri.startswith("/subscriptions/")]
    for kind, path, word in references:
        if emulator.store.get(kind, path) is None:
            raise ServiceError(400, "UserError", f"Could not find {word} {path}.", inner=("NotFound",))


def _has_tag(run: Run, wanted: str) -> bool:
    name, has_value, value = wanted.partition("=")
    tags = run.properties.get("tags") or {}
    return name in tags and (not has_value or tags[name] == value)


def get_run_details(emulator: Emulator, call: Call) -> Answer:
    """Describe a run with its error and the addresses of its logs."""
    run = _run(emulator, call)
    storage = emulator.storage
    logs = {name: storage.read_url(log_location(storage, run.name, name)) for name in run.log_files}
    if emulator.settings.log_addresses is LogAddresses.UNSIGNED:
        logs = {name: address.partition("?")[0] for name, address in logs.items()}
    elif emulator.settings.log_addresses is LogAddresses.NONE:
        logs = {}
    return Answer(body={**_described(run), "logFiles": logs, "inputDatasets": [], "outputDatasets": []})


def get_run(emulator: Emulator, call: Call) -> Answer:
    """Describe a run."""
    return Answer(body=_described(_run(emulator, call)))


def _run(emulator: Emulator, call: Call) -> Run:
    run = emulator.runs.get(f"{call.workspace_id}/jobs/{call.parts['name']}")
    if run is None:
        raise not_found(f"Run {call.parts['name']} was not found.")
    return run


def _described(run: Run) -> Document:
    return {
        "runId": run.name,
        "experimentId": run.experiment_id,
        "runType": "azureml.commandjob",
        "target": str(run.properties["computeId"]).rpartition("/")[2],
        "status": run.shown_as or str(run.status),
        "createdUtc": run.created_at,
        "startTimeUtc": run.started_at,
        "endTimeUtc": run.ended_at,
        "error": run.error,
        "warnings": [{"source": "AzureML", "message": message} for message in run.warnings],
        "tags": run.properties.get("tags") or {},
        "properties": {"_azureml.ComputeTargetType": "amlctrain"},
    }
