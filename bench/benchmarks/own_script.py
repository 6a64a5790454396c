"""Time that Landfall adds before and after a user's own script, on the local twin.

The time before the script starts when Azure ML reports the job as running: mounts, `mpirun`, the check of the
machines, the start of Python. The time after it ends when the model is registered: the job's end, its event, the
report, the gate. On GPU nodes the first rank of each node also lets TensorFlow count the GPUs before the script
starts; the twin does not do this.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.benchmarks.latency import CLUSTERS, PIPELINE, SHARDS, WITHIN_S
from bench.figures import BenchmarkError, Context, Figure
from cli.remote.api_client import ApiClient
from function_app.domain.run_states import SETTLED, RunState
from local_azure.twin.addresses import TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.twin import running_twin
from shard_validation import encode_example
from shared.record_framing import frame_record

SCRIPT = """import time

began = time.time()
import json
import os
import pathlib

pathlib.Path(os.environ["LANDFALL_OUTPUT"], "model.txt").write_text("a model")
pathlib.Path(os.environ["LANDFALL_REPORT"]).write_text(json.dumps({"began": began, "ended": time.time()}))
"""
"""A script that only reports the time. There is one rank, rank 0."""
REGISTER = "register:\n  model: own\n  require: []\n"
VERSIONS = [f"v{number}" for number in range(8)]
POLL_S = 0.2
MAX_OVERHEAD_S = 3.0


def run(context: Context) -> list[Figure]:
    """Run the script eight times, one after the other: about two minutes."""
    options = TwinOptions(base=context.scratch / "twin", pipelines=write_pipeline(context.scratch / "pipelines"))
    with (
        running_twin(options) as twin,
        TwinClient(twin.places) as client,
        ApiClient(twin.places.functions_url, twin.places.secrets.function_key) as api,
        ContainerClient.from_connection_string(twin.places.data_connection, "datasets") as container,
    ):
        samples = [overhead_s(container, client, api, version, context) for version in VERSIONS][1:]  # warm-up
    before, after = [statistics.median(part) for part in zip(*samples, strict=True)]
    total = statistics.median(map(sum, samples))
    return [
        Figure(name="job's start to the script's first line, p50", value=before, unit="s on the twin"),
        Figure(name="script's last line to the registered model, p50", value=after, unit="s on the twin"),
        Figure(name="both together, p50", value=total, unit="s on the twin", at_most=MAX_OVERHEAD_S),
    ]


def write_pipeline(folder: Path) -> Path:
    """Write the pipeline and its script, and return the folder."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "own.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
    text = PIPELINE.format(dataset="own").replace("scripts/wait.py", "scripts/own.py")
    text = text.replace("  cluster:", "  pass_paths: false\n  cluster:")
    (folder / "own.yaml").write_text(text + REGISTER, encoding="utf-8")
    return folder


def overhead_s(
    container: ContainerClient, client: TwinClient, api: ApiClient, version: str, context: Context
) -> Sequence[float]:
    """Train on a version; return the time before the script's first line and after its last one."""
    for number, name in enumerate(SHARDS):
        container.upload_blob(f"own/{version}/{name}", frame_record(encode_example({"label": [number]})))
    deadline_s = time.monotonic() + WITHIN_S
    while not (found := settled(api, version)):
        if time.monotonic() > deadline_s:
            raise BenchmarkError(f"own/{version} was not trained within {WITHIN_S:.0f} s of its last upload")
        time.sleep(POLL_S)
    ended = api.run(found)
    if ended["state"] != RunState.REGISTERED:
        raise BenchmarkError(f"{found} ended {ended['state']}: {ended['reason']}")
    seen = ended["metrics"]["began"] - client.started_at(found)
    after = datetime.fromisoformat(ended["state_since"]).timestamp() - ended["metrics"]["ended"]
    context.say(f"{version}: {seen:.2f} s before, {after:.2f} s after")
    return seen, after


def settled(api: ApiClient, version: str) -> str | None:
    """Return the run of a version once it has ended."""
    runs = [run for run in api.runs(dataset="own") if run["version"] == version and run["state"] in SETTLED]
    return str(runs[0]["run_id"]) if runs else None
