"""Upload 2,000 tiny shards of one dataset and, now and then, a shard of another one, on the local twin.

Times and CPU describe two cores on which nothing else runs, and include the emulators' work. The dev host runs the
app in its own process, so its CPU includes the queue trigger's. The emulated Event Grid falls behind the uploads by
up to 20 s, because all of them share these cores. The events of the other dataset's shards are therefore put into
the queue directly.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient, TextBase64EncodePolicy

from bench.benchmarks.latency import submission, write_pipelines
from bench.figures import BenchmarkError, Context, Figure
from bench.worker_rate import requests
from bench.workers.timed import cpu_s
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.domain.events import CREATED, SHARD_UPLOADED
from function_app.domain.records import DatasetVersion
from local_azure.azurite import AZURITE
from local_azure.processes import EVENT_GRID, FUNCTIONS_HOST
from local_azure.twin.addresses import TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.twin import Twin, running_twin
from shard_validation import encode_example
from shared.record_framing import frame_record

FLOOD, OTHER, WARM_UP = "flood", "other", "warm-up"
NUM_SHARDS = 2_000
NUM_OTHERS = 4
"""Shards of the other dataset; the last one follows the last shard of the flood."""
UPLOADERS = 8
MAX_SUBMISSION_S, MAX_DELAY_S = 45.0, 5.0
WITHIN_S, POLL_S = 300.0, 0.5
PARTS = {"host and app": FUNCTIONS_HOST, "Azurite": AZURITE, "Event Grid": EVENT_GRID}


def run(context: Context) -> list[Figure]:
    """Upload 2,000 shards: about two minutes on two cores."""
    options = TwinOptions(
        base=context.scratch / "twin",
        pipelines=write_pipelines(context.scratch / "pipelines", [FLOOD, OTHER, WARM_UP]),
        sweep_grace_s=3600,
    )
    with (
        running_twin(options) as twin,
        TwinClient(twin.places) as client,
        ContainerClient.from_connection_string(twin.places.data_connection, "datasets") as container,
    ):
        flood = _Flood(twin, client, container)
        flood.warm_up()
        return flood.figures(context)


@dataclass(frozen=True)
class _Flood:
    twin: Twin
    client: TwinClient
    container: ContainerClient

    def warm_up(self) -> None:
        """Train on a version of another dataset, so that every function has been called once."""
        for number, split in enumerate(("train", "validation")):
            self._upload(f"{WARM_UP}/v1/{split}-00000-of-00001.tfrecord", number)
        self._await_submission(WARM_UP)

    def figures(self, context: Context) -> list[Figure]:
        """Upload, wait for the submission, and return the times and the CPU that this took."""
        log, begun_s = self.twin.places.access_log, self._cpu_s()
        begun = log.stat().st_size
        others = self._upload_all()
        uploaded = time.time()
        submitted = self._await_submission(FLOOD)
        used = {name: (seconds - begun_s[name]) / NUM_SHARDS * 1000 for name, seconds in self._cpu_s().items()}
        made = requests(log.read_bytes()[begun:])
        for kind, number in made.most_common(14):
            context.say(f"{number / NUM_SHARDS:6.2f} {kind}")
        delays_s = list(self._delays_s(others))
        context.say("the other dataset's shards: " + ", ".join(f"{delay_s:.1f} s" for delay_s in delays_s))
        return [
            Figure(
                name="last upload to submission",
                value=submitted - uploaded,
                unit="s on the twin",
                at_most=MAX_SUBMISSION_S,
            ),
            Figure(
                name="another dataset's shard, longest time from its event to its verdict",
                value=max(delays_s),
                unit="s on the twin",
                at_most=MAX_DELAY_S,
            ),
            Figure(name="requests to tables for one shard", value=_of_tables(made) / NUM_SHARDS, unit="requests"),
            Figure(name="requests to storage for one shard", value=made.total() / NUM_SHARDS, unit="of all parts"),
            *(Figure(name=f"CPU of {name} for one shard", value=ms, unit="ms") for name, ms in used.items()),
        ]

    def _upload_all(self) -> list[float]:
        """Upload the flood, and between its parts one shard of the other dataset.

        Return the upload times of the other dataset's shards.
        """
        paths = [f"{FLOOD}/v1/train-{index:05}-of-{NUM_SHARDS:05}.tfrecord" for index in range(NUM_SHARDS)]
        self._upload(f"{FLOOD}/v1/validation-00000-of-00001.tfrecord", NUM_SHARDS)
        others = []
        with ThreadPoolExecutor(max_workers=UPLOADERS) as pool:
            for part in range(NUM_OTHERS):
                mine = range(part * NUM_SHARDS // NUM_OTHERS, (part + 1) * NUM_SHARDS // NUM_OTHERS)
                list(pool.map(lambda index: self._upload(paths[index], index), mine))
                path = f"{OTHER}/v1/train-{part:05}-of-{NUM_OTHERS:05}.tfrecord"
                self._upload(path, part)
                others.append(time.time())
                self._report(path)
        return others

    def _upload(self, path: str, number: int) -> None:
        self.container.upload_blob(path, frame_record(encode_example({"label": [number % 10], "id": [number]})))

    def _report(self, path: str) -> None:
        """Put the event of an upload into the queue."""
        subject = f"/blobServices/default/containers/{self.container.container_name}/blobs/{path}"
        event = {"id": path, "eventType": CREATED, "subject": subject, "data": {"api": "PutBlob"}}
        with QueueClient.from_connection_string(
            self.twin.places.host_connection, SHARD_UPLOADED, message_encode_policy=TextBase64EncodePolicy()
        ) as queue:
            queue.send_message(json.dumps(event))

    def _await_submission(self, dataset: str) -> float:
        end = time.time() + WITHIN_S
        while (submitted := submission(self.client, dataset)) is None:
            if time.time() > end:
                raise BenchmarkError(f"{dataset} was not submitted within {WITHIN_S:.0f} s")
            time.sleep(POLL_S)
        return submitted

    def _delays_s(self, uploaded: list[float]) -> Iterator[float]:
        """Yield how long each shard of the other dataset waited for its verdict."""
        name = "AzureWebJobsStorage"
        ledger = TableLedger(
            StorageConnection(ConnectionSettings(name=name, connection_string=self.twin.places.host_connection))
        )
        for index, at in enumerate(uploaded):
            verdict = ledger.shard(DatasetVersion(dataset=OTHER, version="v1"), "train", index)
            if verdict is None:
                raise BenchmarkError(f"shard {index} of the other dataset has no verdict, though the flood is over")
            yield verdict.validated_at.timestamp() - at

    def _cpu_s(self) -> dict[str, float]:
        pids = self.twin.pids()
        return {name: _with_children(pids[part]) for name, part in PARTS.items()}


def _of_tables(made: Counter[str]) -> int:
    return sum(number for kind, number in made.items() if "landfall" in kind.partition(" ")[2] or "$batch" in kind)


def _with_children(pid: int) -> float:
    """Return the CPU seconds of a process and of its child processes, which still run."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return cpu_s(pid) + sum(_with_children(int(child)) for child in children)
