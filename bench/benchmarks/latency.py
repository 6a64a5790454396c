"""Time from a version's last upload to the submission of its job, on the local twin.

The figures include pauses that also occur in Azure (event delivery, polling by the queue trigger) and the work of
the emulators on the same machine, on which nothing else may run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.figures import BenchmarkError, Context, Figure
from local_azure.twin.addresses import TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.twin import running_twin
from shard_validation import encode_example
from shared.record_framing import frame_record

DATASETS = [f"latency-{number:02d}" for number in range(31)]
SHARDS = ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "validation-00000-of-00001.tfrecord")
SCRIPT = "import time\n\ntime.sleep(600)\n"
"""The training: only its submission is measured."""
PIPELINE = """pipeline: {dataset}
dataset: {dataset}
data:
  format: tfrecord
  splits: [train, validation]
  features:
    label: {{kind: int64, minimum: 0, maximum: 9}}
train:
  script: scripts/wait.py
  cluster: latency
  num_nodes: 1
  timeout_s: 600
notify:
  - topic
"""
CLUSTERS = """latency:
  sizes:
    - vm_size: Standard_NC24ads_A100_v4
"""
WITHIN_S, POLL_S = 120.0, 0.2
MAX_P95_S = 1.0


def run(context: Context) -> list[Figure]:
    """Upload 31 versions, one after the other: about two minutes."""
    options = TwinOptions(
        base=context.scratch / "twin",
        pipelines=write_pipelines(context.scratch / "pipelines"),
        more_settings={"LANDFALL_MAX_CONCURRENT_RUNS": str(len(DATASETS))},
        sweep_grace_s=3600,
    )
    with (
        running_twin(options) as twin,
        TwinClient(twin.places) as client,
        ContainerClient.from_connection_string(twin.places.data_connection, "datasets") as container,
    ):
        latencies_s = [latency_s(container, client, dataset, context) for dataset in DATASETS][1:]  # warm-up
    return [
        Figure(name="last shard to submission, p50", value=statistics.median(latencies_s), unit="s on the twin"),
        Figure(name="last shard to submission, p95", value=p95(latencies_s), unit="s on the twin", at_most=MAX_P95_S),
    ]


def write_pipelines(folder: Path, datasets: Sequence[str] = DATASETS) -> Path:
    """Write one pipeline per dataset, with a training that only sleeps, and return the folder."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "wait.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
    for dataset in datasets:
        (folder / f"{dataset}.yaml").write_text(PIPELINE.format(dataset=dataset), encoding="utf-8")
    return folder


def latency_s(container: ContainerClient, client: TwinClient, dataset: str, context: Context) -> float:
    """Upload a version; return the time from the end of its last upload to the call that submits its job."""
    for number, name in enumerate(SHARDS):
        container.upload_blob(f"{dataset}/v1/{name}", frame_record(encode_example({"label": [number]})))
    uploaded = time.time()  # The emulator logs its calls with this clock.
    while (submitted := submission(client, dataset)) is None:
        if time.time() > uploaded + WITHIN_S:
            raise BenchmarkError(f"{dataset} was not submitted within {WITHIN_S:.0f} s of its last upload")
        time.sleep(POLL_S)
    context.say(f"{dataset}: {submitted - uploaded:.2f} s")
    return submitted - uploaded


def submission(client: TwinClient, dataset: str) -> float | None:
    """Return the time at which the dataset's job was submitted, None if that has not happened yet."""
    jobs = f"/jobs/landfall-{dataset}-"
    return next((call["t"] for call in client.calls() if call["method"] == "PUT" and jobs in call["path"]), None)


def p95(samples: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(samples, n=20, method="inclusive")[-1]
