"""A twin for tests: short delays, free ports, stand-ins for trainings, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from cli.api_client import NOT_FOUND, ApiClient, ApiError
from cli.demo.notifications import received
from local_azure.twin.client import TwinClient
from local_azure.twin.options import TwinOptions
from local_azure.twin.twin import Twin, running_twin
from tests.support.processes import REPOSITORY, free_port, wait_until

PIPELINES = REPOSITORY / "tests" / "integration" / "twin" / "pipelines"
SETTLED = ("registered", "not_registered", "failed", "canceled", "lost")
WITHIN_S = 90.0


@dataclass(frozen=True)
class TwinUnderTest:
    """A running twin with its windows."""

    twin: Twin
    api: ApiClient
    client: TwinClient
    blobs: BlobServiceClient

    def upload(self, dataset_version: str, shards: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
        """Write shards of a version, in order."""
        container = self.blobs.get_container_client("datasets")
        for name, content in shards.items() if isinstance(shards, Mapping) else shards:
            container.upload_blob(f"{dataset_version}/{name}", content, overwrite=True)

    def version(self, dataset_version: str) -> dict[str, Any]:
        """Return what the API says of a version; nothing while it knows none."""
        try:
            return self.api.dataset_version(*dataset_version.split("/"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return {}

    def runs(self, dataset_version: str) -> list[dict[str, Any]]:
        """Return the runs of a version."""
        return list(self.version(dataset_version).get("runs", []))

    def await_settled(self, dataset_version: str) -> dict[str, Any]:
        """Return a version's run once it has ended and everybody was told."""

        def settled() -> dict[str, Any] | None:
            runs = self.runs(dataset_version)
            run = self.api.run(runs[0]["run_id"]) if runs else {}
            return run if run.get("state") in SETTLED and run.get("notified_at") else None

        return wait_until(settled, what=f"the run of {dataset_version} to settle", timeout_s=WITHIN_S, poll_s=0.2)

    def notifications(self, subject: str) -> list[tuple[str, str]]:
        """Return (recipient, outcome) of everything that was received about a run or a version."""
        return [(n["recipient"], n["outcome"]) for n in received(self.client, subject)]

    def models(self, run_id: str) -> list[str]:
        """Return the paths of the model versions that were registered from a run."""
        puts = [c for c in self.client.calls() if c["method"] == "PUT" and "/models/" in c["path"]]
        return sorted({c["path"] for c in puts if run_id in c["path"] and c["status"] < 400})


def options(base: Path, *, pipelines: Path = PIPELINES) -> TwinOptions:
    """Return a twin with short delays, on ports that nobody uses by default."""
    ports = {name: free_port() for name in ("blob", "queue", "table", "functions", "azure_ml", "event_grid")}
    return TwinOptions(
        base=base,
        pipelines=pipelines,
        ports=ports,
        node_start_delay_s=0.2,
        node_idle_s=60.0,
        environment_build_s=0.0,
        sweep_grace_s=0,
    )


@contextmanager
def twin_under_test(twin_options: TwinOptions) -> Iterator[TwinUnderTest]:
    """Start a twin and open every window; skip where the training's environment or Azurite is absent."""
    for needed in (twin_options.azurite, twin_options.training_python):
        if not needed.exists():
            pytest.skip(f"needs {needed.name}: run `make setup`")
    with running_twin(twin_options) as twin:
        places = twin.places
        with (
            ApiClient(places.functions_url, places.secrets.function_key) as api,
            TwinClient(places) as client,
            BlobServiceClient.from_connection_string(places.data_connection) as blobs,
        ):
            yield TwinUnderTest(twin, api, client, blobs)
