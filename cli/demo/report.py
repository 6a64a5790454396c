"""The result of a demo: ``.landfall/demo.json`` and a short summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient

from cli.demo.following import DemoError
from local_azure.twin.addresses import FUNCTION_APP_IDENTITY, RUNS_CONTAINER, Places
from shared.training_report import FILE_NAME, TrainingReport, TrainingReportError

MAX_METRICS = 2
"""Metrics in the summary, those of the validation first; demo.json has all."""


def demo_report(
    *,
    version: Mapping[str, Any],
    run: Mapping[str, Any],
    notifications: list[dict[str, Any]],
    calls: Iterable[Mapping[str, Any]],
    training: TrainingReport,
    durations_s: Mapping[str, float],
) -> dict[str, Any]:
    """Build demo.json from the HTTP API's answers, the twin's records and the training report."""
    splits = version.get("splits", {}).values()
    generation = version.get("generation") or {}
    return {
        "dataset_version": f"{version.get('dataset')}/{version.get('version')}",
        "fingerprint": generation.get("fingerprint"),
        "shards": {
            "accepted": sum(split["accepted"] for split in splits),
            "rejected": sum(len(split["rejected"]) for split in splits),
        },
        "run": {name: run.get(name) for name in ("run_id", "state", "attempt", "num_nodes", "world_size")},
        "gradients_averaged_by": training.details["exchange"],
        "device": training.device,
        "nodes_are_simulated": training.details["nodes_are_simulated"],
        "hosts": training.details["hosts"],
        "model": {
            "name": run.get("model_name"),
            "version": run.get("model_version"),
            "metrics": run.get("metrics", {}),
        },
        "notifications": notifications,
        "azure_ml_calls": submission_calls(
            calls, run_id=str(run.get("run_id")), since=generation.get("closed_at"), until=run.get("submitted_at")
        ),
        "durations_s": dict(durations_s),
    }


def training_report(places: Places, run: Mapping[str, Any]) -> TrainingReport:
    """Download the report that the run's training wrote. Raises DemoError."""
    path = f"{run['dataset']}/{run['version']}/{run['logical_run']}/a{run['attempt']}/report/{FILE_NAME}"
    try:
        with BlobServiceClient.from_connection_string(places.host_connection) as blobs:
            blob = blobs.get_blob_client(RUNS_CONTAINER, path)
            return TrainingReport.from_json(blob.download_blob().readall())
    except (AzureError, TrainingReportError) as error:
        raise DemoError(f"The training report {path} cannot be read: {error}") from error


def submission_calls(
    calls: Iterable[Mapping[str, Any]], *, run_id: str, since: str | None, until: str | None
) -> list[dict[str, Any]]:
    """Return the function app's calls to Azure ML about a run between the closing of its version and its submission.

    Calls about other runs are not counted: while this run waits for its turn, the app follows the previous one. Times
    are ISO 8601, as in the HTTP API; if either is missing, no calls are returned.
    """
    if since is None or until is None:
        return []
    start, end = datetime.fromisoformat(since).timestamp(), datetime.fromisoformat(until).timestamp()
    own = (call for call in calls if call["caller"] == FUNCTION_APP_IDENTITY and start <= call["t"] <= end)
    about_it = (call for call in own if run_id in call["path"].split("/"))
    return [{name: call[name] for name in ("method", "path", "query", "status")} for call in about_it]


def machines(report: Mapping[str, Any]) -> str:
    """Describe the machines that the ranks ran on."""
    if report["nodes_are_simulated"]:
        return "the nodes are simulated: all ranks ran on this machine"
    ranks = ", ".join(f"rank {rank} on {host}" for rank, host in enumerate(report["hosts"]))
    return f"each node was a host on this machine, with an address of its own: {ranks}"


def summary(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that end a demo."""
    run, model, shards = report["run"], report["model"], report["shards"]
    metrics_in_order = sorted(model["metrics"].items(), key=lambda item: (not item[0].startswith("val_"), item[0]))
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in metrics_in_order[:MAX_METRICS])
    yield f"dataset version  {report['dataset_version']}, {shards['accepted']} shards accepted"
    yield f"run              {run['run_id']}: {run['num_nodes']} nodes, {run['world_size']} ranks, {run['state']}"
    computed_on = "simulated GPUs" if report["device"] == "simulated" else report["device"]
    yield f"machines         {machines(report)}; computed on: {computed_on}"
    yield f"gradients        averaged over all ranks by {report['gradients_averaged_by']}"
    yield f"model            {model['name']} version {model['version']} ({metrics})"
    yield f"notified         {', '.join(n['recipient'] for n in report['notifications'])}"
    num_calls = len(report["azure_ml_calls"])
    yield f"submission       {num_calls} call{'' if num_calls == 1 else 's'} to Azure ML"
    yield f"time             {report['durations_s']['total']:.0f} s"
