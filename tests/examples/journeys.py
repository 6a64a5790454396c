"""From the original data to the end of the run, with the commands that docs/examples.md gives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.storage.blob import BlobServiceClient

from local_azure.twin.addresses import RUNS_CONTAINER
from shared.training_report import FILE_NAME, TrainingReport
from tests.support.processes import REPOSITORY, child_environment
from tests.support.twin import TwinUnderTest

DEADLINE_S = 300.0
TRAINED_WITHIN_S = 800.0
"""A minute on two idle cores; other tests may have them."""
POLL_S = 2.0
"""Every look costs the function app and Azurite time that the training then lacks."""


@dataclass(frozen=True, kw_only=True)
class Journey:
    """A run that has ended, and what its job has left."""

    run: dict[str, Any]
    outputs: Path
    """The attempt's report and model."""

    @property
    def report(self) -> TrainingReport:
        """What the root wrote at the end."""
        return TrainingReport.from_json((self.outputs / "report" / FILE_NAME).read_bytes())


def landfall(*arguments: object, **environment: str) -> str:
    """Run a command line as a user does; return what it prints. Raises RuntimeError with what it said."""
    ended = subprocess.run(
        [sys.executable, "-m", "cli", *map(str, arguments)],
        env=child_environment(**environment),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"landfall {arguments} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def upload_shards(twin: TwinUnderTest, shards: Path, pipeline: str, dataset_version: str) -> None:
    """Validate packed shards against the twin's pipeline, whose few ranks these few records suffice; upload them."""
    file = twin.twin.options.pipelines / f"{pipeline}.yaml"
    landfall("validate", shards, "--complete", "--pipeline", file, "--processes", 1)
    landfall("upload", shards, "--to", dataset_version, DataStorage=twin.twin.places.data_connection)


def ended(twin: TwinUnderTest, dataset_version: str, folder: Path) -> Journey:
    """Wait for a version's run to its end, and fetch what its job has left. Raises RuntimeError where it failed."""
    run = twin.await_settled(dataset_version, within_s=TRAINED_WITHIN_S, poll_s=POLL_S)
    if run["state"] not in ("registered", "not_registered"):
        raise RuntimeError(f"{run['run_id']} is {run['state']}: {run['reason']}\n{run['log_tail']}")
    prefix = f"{dataset_version}/{run['logical_run']}/a1/"
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as blobs:
        container = blobs.get_container_client(RUNS_CONTAINER)
        for name in container.list_blob_names(name_starts_with=prefix):
            path = folder / name.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(container.download_blob(name).readall())
    return Journey(run=run, outputs=folder)


def counts(shards: Path) -> dict[str, int]:
    """Return the number of records of each split, as packing states it."""
    splits = json.loads((shards / "dataset.json").read_bytes())["splits"]
    return {split: members["num_records"] for split, members in splits.items()}
