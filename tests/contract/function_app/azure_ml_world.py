"""The app in this process with its real adapters: storage in Azurite, and jobs that the emulator really runs."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from cli.remote.runs import describe_run
from function_app.adapters.azure_ml import OPTIONS, AzureMLJobs, AzureMLModels, WorkspaceClient
from function_app.adapters.azure_ml_logs import JobLogs
from function_app.adapters.azure_ml_pace import Pace
from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import parse_clusters, read_script
from function_app.config.pipelines import Attempts, Watch
from function_app.domain.records import RunRecord
from function_app.sweep.sweep import run_sweep
from local_azure.azurite import Azurite
from tests.crash.azurite_world import AzuriteWorld, serve_queues
from tests.support.azure_ml import APP_IDENTITY, AzureMl, adapter_client, cluster_body, start_with_cluster
from tests.support.processes import REPOSITORY
from tests.support.twin import PIPELINES
from tests.support.world import ALL_SHARDS, pipeline
from tests.unit.function_app.web.client import call

SCRIPT = "scripts/stand_in.py"
OWN_TRAINING = "training_job.train"
TRAINING = """import runpy, sys
from shared.job_arguments import JobArguments

job = JobArguments.from_argv(sys.argv[1:])
sys.argv = ["train", "--data", job.data, "--manifest", job.manifest, "--output", job.model]
sys.argv += ["--checkpoint", job.checkpoints, "--report", f"{job.report}/training_report.json"]
runpy.run_path("scripts/stand_in.py", run_name="__main__")
"""
"""Starts the stand-in in the same way as Landfall's own training."""
DATASTORES = {"landfall_datasets": "datasets", "landfall_state": "landfall", "landfall_runs": "runs"}
SIZES = b"{sizes: [{vm_size: Standard_NC24ads_A100_v4}]}"
CLUSTERS = Clusters(clusters=parse_clusters(b"cluster: %b\nother-cluster: %b" % (SIZES, SIZES), "clusters.yaml"))


@dataclass(kw_only=True)
class Twin:
    """A world, the emulator behind it, and the actions and notifications of people."""

    world: AzuriteWorld
    emulator: AzureMl
    account: str
    """The name of the only storage account."""

    def add_pipeline(
        self,
        dataset: str,
        *,
        script: str = SCRIPT,
        other_clusters: tuple[str, ...] = ("other-cluster",),
        **variables: str,
    ) -> None:
        """Deploy a pipeline whose jobs run the stand-in with these variables."""
        train = pipeline().train
        options = replace(train.options, per_process_batch_size=2)
        train = train.model_copy(
            update={
                "options": options,
                "script": script,
                "cluster": "cluster",
                "num_nodes": 1,
                "timeout_s": 600,
                "environment_variables": {
                    "PYTHONPATH": str(REPOSITORY),
                    "STAND_IN_VAL_ACCURACY": "0.99",
                    **variables,
                },
            }
        )
        attempts = Attempts(max=3, wait_s=60, other_clusters=other_clusters)
        self.world.add_pipelines(dataset, on=CLUSTERS, train=train, attempts=attempts, watch=Watch())

    def fault(self, name: str, dataset: str, times: int = 1) -> None:
        """Let the dataset's next jobs meet a fault."""
        self.emulator.twin("POST", "faults", {"fault": name, "job": f"landfall-{dataset}-", "times": times})

    def upload(self, dataset: str) -> RunRecord:
        """Upload a version and serve the queues; return its run."""
        self.world.upload_shards(*ALL_SHARDS, dataset=dataset)
        return self.serve(dataset)

    def serve(self, dataset: str) -> RunRecord:
        """Serve the queues; return the newest run."""
        serve_queues(self.world)
        return self.newest(dataset)

    def newest(self, dataset: str) -> RunRecord:
        """Return the newest run of a dataset."""
        return self.world.services.ledger.runs(dataset=dataset)[0]

    def finish(self, dataset: str, *expected: str) -> RunRecord:
        """Wait for the end of the newest run's job and follow it, as its event would; return the newest run then."""
        self.emulator.await_status(self.newest(dataset).run_id, *expected)
        return self.sweep(dataset)

    def sweep(self, dataset: str, **later: float) -> RunRecord:
        """Let time pass, sweep, and serve the queues; return the newest run."""
        self.world.clock.move(**later)
        run_sweep(self.world.services)
        return self.serve(dataset)

    def advance(self, seconds: float) -> None:
        """Advance the emulator's clock."""
        self.emulator.twin("POST", "clock", {"advance_s": seconds})

    def run_text(self, run: RunRecord) -> str:
        """Return what `landfall run` prints."""
        return "\n".join(describe_run(call(self.world, "GET", f"/api/runs/{run.run_id}").json()))

    def why(self, subject: str) -> str:
        """Return the answer of `landfall why`."""
        return call(self.world, "GET", f"/api/why/{subject}").text

    def received(self, run: RunRecord) -> str:
        """Return the text of the notifications about a run."""
        return "\n".join(str(n.content["text"]) for n in self.world.people.received if n.subject == run.run_id)


@contextmanager
def running_twin(directory: Path, azurite: Azurite, connection: str) -> Iterator[Twin]:
    """Start an emulator with one unused account, and open a world in the same account."""
    name = next(part for part in connection.split(";") if part.startswith("AccountName=")).partition("=")[2]
    account = replace(azurite, accounts={name: account_key(connection)})
    emulator = start_with_cluster(directory, account)
    try:
        emulator.put("computes/other-cluster", cluster_body()).raise_for_status()
        _publish(emulator, connection, name)
        with adapter_client(emulator) as client, pytest.MonkeyPatch.context() as patch:
            patch.setitem(OPTIONS, "retry_backoff_factor", 0.0)  # the SDK retries without a pause
            yield Twin(
                world=_world(connection, client, f"{emulator.url}/blob/{name}"), emulator=emulator, account=name
            )
    finally:
        emulator.process.stop()


def account_key(connection: str) -> str:
    """Return the key in a connection string."""
    return next(part for part in connection.split(";") if part.startswith("AccountKey=")).partition("=")[2]


def _publish(emulator: AzureMl, connection: str, account: str) -> None:
    with BlobServiceClient.from_connection_string(connection) as service:
        container = service.create_container(f"code-{uuid.uuid4().hex[:8]}")
        container.upload_blob(f"src/{SCRIPT}", (PIPELINES / SCRIPT).read_bytes())
        rest = "import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n"  # the others are real
        container.upload_blob("src/training_job/__init__.py", rest)
        container.upload_blob("src/training_job/train.py", TRAINING)
        for name in ("landfall", "runs"):
            service.create_container(name)
        code = {"properties": {"codeUri": f"{container.url}/src", "isAnonymous": False}}
    emulator.put("codes/contract/versions/1", code).raise_for_status()
    for name, container_name in DATASTORES.items():
        properties = {
            "datastoreType": "AzureBlob",
            "accountName": account,
            "containerName": container_name,
            "credentials": {"credentialsType": "None"},
        }
        emulator.put(f"datastores/{name}", {"properties": properties}).raise_for_status()


def _world(connection: str, client: WorkspaceClient, blob_uri: str) -> AzuriteWorld:
    world = AzuriteWorld(connection=connection)
    world.create()
    world = world.opened()
    pace = Pace(now_s=lambda: world.clock().timestamp(), wait=lambda seconds: world.clock.move(seconds=seconds))
    logs = JobLogs(client_id=APP_IDENTITY, blob_uri=blob_uri)
    paced = WorkspaceClient(client.workspace, APP_IDENTITY, pace=pace, logs=logs)
    world.services = replace(
        world.services,
        workspace=client.workspace,
        jobs=AzureMLJobs(paced),
        models=AzureMLModels(paced),
        read_script=functools.partial(read_script, PIPELINES),
    )
    return world
