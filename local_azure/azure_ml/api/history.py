"""Run history, which the client reads to stream logs."""

from __future__ import annotations

from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.logs import log_location
from local_azure.azure_ml.runs import Run
from local_azure.azure_ml.store import Document


def get_run_details(emulator: Emulator, call: Call) -> Answer:
    """Describe a run with its error and with addresses of its logs."""
    run = _run(emulator, call)
    storage = emulator.storage
    logs = {name: storage.read_url(log_location(storage, run.name, name)) for name in run.log_files}
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
        "status": str(run.status),
        "createdUtc": run.created_at,
        "startTimeUtc": run.started_at,
        "endTimeUtc": run.ended_at,
        "error": run.error,
        "warnings": [{"source": "AzureML", "message": message} for message in run.warnings],
        "tags": run.properties.get("tags") or {},
        "properties": {"_azureml.ComputeTargetType": "amlctrain"},
    }
