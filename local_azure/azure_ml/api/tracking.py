"""MLflow's tracking API for a job's own run: a script's `mlflow` client writes to it, and the app reads it.

A job's ranks reach it through a socket in the file system, because their nodes cannot reach this machine's loopback
(rank.py). Each job has a token to read and write only its own run; the app only reads. Names, routes and limits are
those of MLflow's REST API: https://mlflow.org/docs/latest/rest-api.html
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.api.security import RUN_AUDIENCE, TokenIssuer
from local_azure.azure_ml.runs import Run, RunState
from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.storage import log_location
from local_azure.azure_ml.workspace import Document

KIND = "tracked"
MAX_METRIC_NAMES = 50
"""Maximum number of names in a run, by Azure ML's limits."""
MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_ITEMS = 1000, 100, 100, 1000
"""Limits of one call."""
MAX_PARAMS_OF_RUN, MAX_NAME_CHARS, MAX_PARAM_CHARS, MAX_TAG_CHARS = 500, 250, 500, 5000
_NAME = re.compile(r"[\w\-./ ]+")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_STATUS = {RunState.COMPLETED: "FINISHED", RunState.FAILED: "FAILED", RunState.CANCELED: "KILLED"}


def run_variables(run: Run, tokens: TokenIssuer) -> Mapping[str, str]:
    """Return the variables with which `mlflow` finds a job's run; rank.py completes the address with the port."""
    return {
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:0/mlflow/v2.0{quote(run.workspace_id)}",
        "MLFLOW_TRACKING_TOKEN": tokens.issue(run.job_id, RUN_AUDIENCE).access_token,
        "MLFLOW_RUN_ID": run.name,
        "MLFLOW_EXPERIMENT_ID": run.experiment_id,
        "MLFLOW_EXPERIMENT_NAME": run.experiment_name,
    }


def get_run(emulator: Emulator, call: Call) -> Answer:
    """Describe a run with its parameters, tags, and the last value of each metric."""
    run = _run(emulator, call, call.query.get("run_id") or call.query.get("run_uuid"))
    found = _tracked(emulator, run)
    metrics = [{"key": name, **value} for name, value in found["metrics"].items()]
    pairs = {kind: [{"key": k, "value": v} for k, v in found[kind].items()] for kind in ("params", "tags")}
    return Answer(body={"run": {"info": _info(run), "data": {"metrics": metrics, **pairs}, "inputs": {}}})


def update_run(emulator: Emulator, call: Call) -> Answer:
    """Answer as if the state were accepted, although Azure ML itself sets the state of a job's run."""
    return Answer(body={"run_info": _info(_own_run(emulator, call))})


def get_experiment(emulator: Emulator, call: Call) -> Answer:
    """Describe the experiment of the calling job, by id or name."""
    run = _run(emulator, call, None)
    if run.experiment_id != call.query.get("experiment_id") and run.experiment_name != call.query.get(
        "experiment_name"
    ):
        raise not_found("This emulator tracks a job's own experiment only, which MLFLOW_EXPERIMENT_NAME names.")
    named = {"experiment_id": run.experiment_id, "name": run.experiment_name}
    return Answer(body={"experiment": {**named, "lifecycle_stage": "active", "artifact_location": ""}})


def log_batch(emulator: Emulator, call: Call) -> Answer:
    """Add metrics, parameters and tags."""
    body = call.document()
    items = {kind: _items(body, kind, most) for kind, most in _MOST.items()}
    if sum(map(len, items.values())) > MAX_ITEMS:
        raise _wrong(f"A batch may have {MAX_ITEMS} metrics, params and tags at most.")
    return _write(emulator, _own_run(emulator, call), items)


def log_metric(emulator: Emulator, call: Call) -> Answer:
    """Add a value of one metric."""
    return _write(emulator, _own_run(emulator, call), {"metrics": [call.document()]})


def log_parameter(emulator: Emulator, call: Call) -> Answer:
    """Add one parameter."""
    return _write(emulator, _own_run(emulator, call), {"params": [call.document()]})


def set_tag(emulator: Emulator, call: Call) -> Answer:
    """Set one tag of the tracked run; the job's tags stay."""
    return _write(emulator, _own_run(emulator, call), {"tags": [call.document()]})


def put_artifact(emulator: Emulator, call: Call) -> Answer:
    """Store a file where Azure ML stores the artifacts of a run."""
    run = _run(emulator, call, call.parts["run"])
    path = call.parts["path"]
    if any(part in ("", ".", "..") for part in path.split("/")) or len(path) > MAX_PARAM_CHARS:
        raise _wrong("An artifact's path must be relative, of names.")
    location = log_location(emulator.storage, run.name, path)
    emulator.storage.writable_container(location)
    emulator.storage.blob(location).upload_blob(call.body, overwrite=True)
    return Answer(body={})


_MOST = {"metrics": MAX_METRICS, "params": MAX_PARAMS, "tags": MAX_TAGS}


def _write(emulator: Emulator, run: Run, items: Mapping[str, list[Any]]) -> Answer:
    """Check everything, then write all or nothing."""
    with emulator.tracking_lock:
        found = _tracked(emulator, run)
        for one in items.get("metrics", ()):
            _add_metric(found["metrics"], one)
        for one in items.get("params", ()):
            _add_param(found["params"], one)
        for one in items.get("tags", ()):
            name = _name(one)
            found["tags"][name] = _text(one, MAX_TAG_CHARS)
        for kind, most in (("metrics", MAX_METRIC_NAMES), ("params", MAX_PARAMS_OF_RUN), ("tags", MAX_TAGS)):
            if len(found[kind]) > most:
                raise _wrong(f"A run may have {most} {kind} at most.")
        emulator.store.put(KIND, run.job_id, found)
    return Answer(body={})


def _add_metric(metrics: dict[str, Any], one: Any) -> None:
    """Keep the value with the highest step and, within a step, the latest time."""
    name = _name(one)
    value, step, timestamp = one.get("value"), one.get("step", 0), one.get("timestamp")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and value not in _NOT_FINITE:
        raise _wrong(f"The value of metric {name!r} must be a number.")
    if not (_is_whole(step) and _is_whole(timestamp)):
        raise _wrong(f"Metric {name!r} must have a timestamp, and its step must be a number.")
    last = metrics.get(name)
    if last is None or (int(step), int(timestamp)) >= (last["step"], last["timestamp"]):
        metrics[name] = {"value": value, "step": int(step), "timestamp": int(timestamp)}


def _is_whole(value: Any) -> bool:
    """Whether a value is an int64 in JSON: a number, or a string of digits."""
    return re.fullmatch(r"-?\d{1,18}", str(value), re.ASCII) is not None and not isinstance(value, bool)


def _add_param(params: dict[str, str], one: Any) -> None:
    name, value = _name(one), _text(one, MAX_PARAM_CHARS)
    if params.setdefault(name, value) != value:
        raise _wrong(f"Param {name!r} was already logged with value {params[name]!r}, and params cannot be changed.")


def _items(body: Document, kind: str, most: int) -> list[Any]:
    found = body.get(kind) or []
    if not isinstance(found, list) or len(found) > most:
        raise _wrong(f"A batch may have {most} {kind} at most, as a list.")
    return found


def _name(one: Any) -> str:
    name = one.get("key") if isinstance(one, dict) else None
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise _wrong(f"A key must have 1 to {MAX_NAME_CHARS} letters, digits, blanks, or _ - . /; got {name!r:.100}.")
    return name


def _text(one: Any, most: int) -> str:
    text = one.get("value", "")
    if not isinstance(text, str) or len(text) > most:
        raise _wrong(f"The value of {_name(one)!r} must be a text of {most} characters at most.")
    return text


def _wrong(message: str) -> ServiceError:
    return ServiceError(400, "UserError", message, inner=("BadArgument",))


def _own_run(emulator: Emulator, call: Call) -> Run:
    """Return the run that a call changes. Raises ServiceError if it is not the job's own run, or has ended."""
    body = call.document()
    run = _run(emulator, call, body.get("run_id") or body.get("run_uuid"))
    if run.ended:
        raise _wrong(f"Run {run.name} has ended.")
    return run


def _run(emulator: Emulator, call: Call, name: Any) -> Run:
    """Return the run in a call, by default the calling job's run.

    Raises ServiceError if the caller's token is for another run, or if an app tries to write.
    """
    authorization = call.headers.get("Authorization")
    if emulator.tokens.is_of_run(authorization):
        job_id = emulator.tokens.caller(authorization, RUN_AUDIENCE)
        wanted = f"{call.workspace_id}/jobs/{job_id.rpartition('/')[2] if name is None else name}"
        if wanted.lower() != job_id.lower():
            raise ServiceError(403, "UserError", "The token of this job is for its own run.", inner=("Forbidden",))
    else:
        emulator.tokens.caller(authorization)
        if call.method != "GET":
            raise ServiceError(403, "UserError", "Only a job writes to its run.", inner=("Forbidden",))
        job_id = f"{call.workspace_id}/jobs/{name}"
    run = emulator.runs.get(job_id)
    if run is None:
        raise not_found(f"Run {str(name)[:300]} was not found.")
    return run


def _tracked(emulator: Emulator, run: Run) -> Document:
    return emulator.store.get(KIND, run.job_id) or {"metrics": {}, "params": {}, "tags": {}}


def _info(run: Run) -> Document:
    started_ms = int(dt.datetime.fromisoformat(run.created_at).timestamp() * 1000)
    return {
        "run_id": run.name,
        "run_uuid": run.name,
        "run_name": run.properties.get("displayName") or run.name,
        "experiment_id": run.experiment_id,
        "status": _STATUS.get(run.status, "RUNNING"),
        "start_time": started_ms,
        "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/{run.name}",
    }
