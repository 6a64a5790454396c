"""A twin for tests: short delays, free ports, stand-ins for trainings, and the queries that tests need."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from cli.demo.following import received
from cli.remote.api_client import NOT_FOUND, ApiClient, ApiError
from local_azure.processes import PATIENCE_S, wait_until
from local_azure.twin.addresses import QUEUES, RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.twin import Twin, running_twin
from tests.support.processes import REPOSITORY, free_port

PIPELINES = REPOSITORY / "tests" / "twin" / "pipelines"
SETTLED = ("registered", "not_registered", "failed", "canceled", "lost")
NEW_YEARS_EVE = "0 59 23 31 12 *"
"""Schedule of the timer, far in the future: tests trigger the sweep themselves."""
WITHIN_S = 240.0
WORKSPACE_ID = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    f"/providers/Microsoft.MachineLearningServices/workspaces/{WORKSPACE}"
)


@dataclass(frozen=True)
class TwinUnderTest:
    """A running twin and clients of its services."""

    twin: Twin
    api: ApiClient
    client: TwinClient
    blobs: BlobServiceClient
    queues: QueueServiceClient

    def upload(self, dataset_version: str, shards: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
        """Upload shards of a version, in order."""
        container = self.blobs.get_container_client("datasets")
        for name, content in shards.items() if isinstance(shards, Mapping) else shards:
            container.upload_blob(f"{dataset_version}/{name}", content, overwrite=True)

    def version(self, dataset_version: str) -> dict[str, Any]:
        """Return the API's answer about a version; an empty one while it is unknown."""
        try:
            return self.api.dataset_version(*dataset_version.split("/"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return {}

    def runs(self, dataset_version: str) -> list[dict[str, Any]]:
        """Return the runs of a version."""
        return list(self.version(dataset_version).get("runs", []))

    def rejected(self, dataset_version: str) -> list[dict[str, Any]]:
        """Return the rejected shards of a version with their reasons."""
        splits = self.version(dataset_version).get("splits", {})
        return [shard for split in splits.values() for shard in split["rejected"]]

    def await_settled(
        self, dataset_version: str, *, within_s: float = WITHIN_S, poll_s: float = 0.2
    ) -> dict[str, Any]:
        """Return a version's run once it has ended and its notifications are sent."""

        def settled() -> dict[str, Any] | None:
            runs = self.runs(dataset_version)
            run = self.api.run(runs[0]["run_id"]) if runs else {}
            return run if run.get("state") in SETTLED and run.get("notified_at") else None

        try:
            return wait_until(
                settled, what=f"the run of {dataset_version} to settle", timeout_s=within_s, poll_s=poll_s
            )
        except TimeoutError as error:
            waiting = f"{self.client.pending_deliveries()} deliveries and {self.queued_messages()} messages wait"
            raise TimeoutError(f"{error}; {waiting}; {self.version(dataset_version)}") from error

    def sweep(self) -> dict[str, Any]:
        """Request a sweep; return it once it has ended."""
        self.api.post("/api/reconcile")

        def ended() -> dict[str, Any] | None:
            sweep = self.api.get("/api/reconcile")
            return sweep if sweep["ended_at"] else None

        return wait_until(ended, what="the requested sweep to end", timeout_s=WITHIN_S, poll_s=0.1)

    def await_quiet(self) -> None:
        """Return once no event, message or function is in progress: what has not happened by then never will."""

        def quiet() -> bool:
            waiting = [self.client.pending_deliveries(), self.queued_messages(), self.client.running_invocations()]
            return not any(waiting)

        wait_until(lambda: quiet() and quiet(), what="all deliveries to end", timeout_s=WITHIN_S, poll_s=0.2)

    def queued_messages(self) -> int:
        """Return the number of messages in the app's queues, including those that are being handled."""
        return sum(
            self.queues.get_queue_client(name).get_queue_properties().approximate_message_count or 0
            for name in QUEUES
        )

    def notifications(self, subject: str) -> list[tuple[str, str]]:
        """Return (recipient, outcome) of every notification received about a run or a version."""
        return [(n["recipient"], n["outcome"]) for n in received(self.client, subject)]

    def models(self, run_id: str) -> list[str]:
        """Return the model versions whose files are a run's output, as Azure ML lists them."""
        places = self.twin.places
        verify = ssl.create_default_context(cafile=places.ca_file)
        with httpx.Client(base_url=places.azure_ml_url, verify=verify, trust_env=False, timeout=PATIENCE_S) as http:
            secret = {"X-IDENTITY-HEADER": places.secrets.identity_header}
            token = http.get("/msi/token?resource=test", headers=secret).raise_for_status().json()["access_token"]
            model = f"{self.api.run(run_id)['dataset']}-model"
            path = f"{WORKSPACE_ID}/models/{model}/versions?api-version=2023-08-01-preview"
            answer = http.get(path, headers={"Authorization": f"Bearer {token}"})
        versions = [] if answer.status_code == NOT_FOUND else answer.raise_for_status().json()["value"]
        return [v["name"] for v in versions if f"/jobs/{run_id}/" in v["properties"]["modelUri"]]


def options(base: Path, *, pipelines: Path = PIPELINES) -> TwinOptions:
    """Return a twin with short delays, on free ports."""
    ports = {name: free_port() for name in ("blob", "queue", "table", "functions", "azure_ml", "event_grid")}
    return TwinOptions(
        base=base,
        pipelines=pipelines,
        ports=ports,
        node_start_delay_s=0.2,
        node_idle_s=60.0,
        environment_build_s=0.0,
        reconcile_schedule=NEW_YEARS_EVE,
        sweep_grace_s=0,
    )


def require_twin_parts() -> None:
    """Skip the test if `make setup` has not been run."""
    defaults = TwinOptions()
    for needed in (defaults.azurite, defaults.training_python):
        if not needed.exists():
            pytest.skip(f"needs {needed.name}: run `make setup`")


@contextmanager
def twin_under_test(twin_options: TwinOptions) -> Iterator[TwinUnderTest]:
    """Start a twin and its clients; skip the test where the training environment or Azurite is not installed."""
    require_twin_parts()
    with running_twin(twin_options) as twin:
        places = twin.places
        with (
            ApiClient(places.functions_url, places.secrets.function_key) as api,
            TwinClient(places) as client,
            BlobServiceClient.from_connection_string(places.data_connection) as blobs,
            QueueServiceClient.from_connection_string(places.host_connection) as queues,
        ):
            yield TwinUnderTest(twin, api, client, blobs, queues)
