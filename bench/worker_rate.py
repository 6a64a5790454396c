"""Throughput of a worker that judges small shards, compared with a process that only makes the same requests.

Both handle shards of their own versions, in turns, with the concurrency of one instance of the Functions host.
Azurite's log must show the same requests for both. Azurite's own CPU time does not count as disturbance.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.figures import MIN_SAMPLES, BenchmarkError, Context, Figure, median
from bench.timed_worker import Worker
from bench.workers.timed import cpu_s
from cli.demo.digits import encode_png, load_digits
from function_app.domain.records import NUM_BUCKETS
from local_azure.azurite import DATA_ACCOUNT, Azurite, running_azurite
from shard_validation import encode_example
from shared.record_framing import frame_record

CONTAINER = "datasets"
NUM_SHARDS = 100
"""Shards of a version that are judged in one round. Other shards stay missing, so that no round closes a version."""
NUM_RECORDS = 100
WARM_UP = "digits/warm-up"
MIN_RATIO = 0.7
MAX_REQUESTS = 8
MAX_ROUNDS = 40
MAX_OTHERS_SHARE = 0.10
"""Maximum share of the cores' time that other processes, except Azurite, may use in a round that counts."""
MAX_REQUEST_RATIO = 1.03
"""Tolerated difference between the two processes: writers repeat requests after a conflict in a counter."""
EXAMPLE_READS = 2
"""Additional requests of the bare process: it reads the row and the history of a shard as its example."""

_REQUEST = re.compile(r'"(?P<method>[A-Z]+) /[a-z0-9]+/(?P<place>[$a-z0-9-]+)')
UPLOADERS = 8


@dataclass(kw_only=True)
class Rounds:
    """Times of undisturbed rounds, and the worker's requests."""

    judged_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    """Requests of the worker, by method and table or container."""


def worker_figures(context: Context) -> list[Figure]:
    """Judge about a thousand small shards: about two minutes on two cores."""
    with running_azurite(context.scratch / "worker_rate") as azurite:
        bench = Bench(context, azurite)
        with Worker(context, context.python, "judging", app_settings(context, azurite)) as worker:
            rounds = bench.measure(worker)
    ratio = median(rounds.bare_s) / median(rounds.judged_s)
    shards = NUM_SHARDS * len(rounds.judged_s)
    return [
        Figure(
            name="shards per second of one worker, against the same requests alone",
            value=ratio,
            unit="ratio",
            at_least=MIN_RATIO,
        ),
        Figure(
            name="shards per second of one worker", value=NUM_SHARDS / median(rounds.judged_s), unit="1/s on Azurite"
        ),
        Figure(
            name="requests of judging one shard",
            value=rounds.requests.total() / shards,
            unit="requests",
            at_most=MAX_REQUESTS,
        ),
    ]


class Bench:
    """Versions in Azurite, each of which is handled once."""

    def __init__(self, context: Context, azurite: Azurite) -> None:
        self._context, self._azurite = context, azurite
        self._content = small_shard()
        self._threads = concurrency(context.root)

    def measure(self, worker: Worker) -> Rounds:
        """Return undisturbed rounds. Raises BenchmarkError if there are too few, or if the requests differ."""
        with ContainerClient.from_connection_string(
            self._azurite.connection_string(DATA_ACCOUNT), CONTAINER
        ) as container:
            container.create_container()
            self._container = container
            like = self._upload(WARM_UP)
            worker.ask("judge", paths=like, threads=self._threads, size_bytes=len(self._content))
            worker.ask("request", paths=self._upload(f"{WARM_UP}-2"), threads=self._threads, like=like[0])
            rounds = Rounds()
            for number in range(MAX_ROUNDS):
                self._round(worker, number, like[0], rounds)
                if len(rounds.judged_s) == MIN_SAMPLES:
                    return rounds
        raise BenchmarkError(
            f"only {len(rounds.judged_s)} of {MAX_ROUNDS} rounds were undisturbed: processes other than Azurite used "
            f"more than {MAX_OTHERS_SHARE:.0%} of the cores; measure on an idle machine"
        )

    def _round(self, worker: Worker, number: int, like: str, rounds: Rounds) -> None:
        size = {"size_bytes": len(self._content)}
        judged = self._handled(worker, "judge", self._upload(f"digits/judged-{number}"), size)
        bare = self._handled(worker, "request", self._upload(f"digits/bare-{number}"), {"like": like})
        others = max(judged.others, bare.others)
        rates = f"{NUM_SHARDS / judged.wall_s:.1f} shards/s, {NUM_SHARDS / bare.wall_s:.1f} with the bare requests"
        self._context.say(f"round {number + 1}: {rates}; other processes used {others:.0%} of the cores")
        check_same_requests(judged.requests, bare.requests)
        if others <= MAX_OTHERS_SHARE:
            rounds.judged_s.append(judged.wall_s)
            rounds.bare_s.append(bare.wall_s)
            rounds.requests += judged.requests

    def _handled(self, worker: Worker, do: str, paths: list[str], more: Mapping[str, object]) -> Handled:
        log, cores = self._azurite.access_log, len(os.sched_getaffinity(0))
        pid = self._azurite.process.popen.pid
        worker.ask("claim", path=paths[0])
        begun, used_s = len(_settled(log)), cpu_s(pid)
        sample = worker.ask(do, paths=paths, threads=self._threads, **more)
        used_s = cpu_s(pid) - used_s
        return Handled(
            wall_s=sample.wall_s,
            others=max(0.0, sample.others - used_s / (sample.wall_s * cores)),
            requests=requests(_settled(log)[begun:]),
        )

    def _upload(self, version: str) -> list[str]:
        """Upload a version without its last shards; return the paths in upload order."""
        total = NUM_SHARDS + NUM_BUCKETS
        paths = [f"{version}/train-{index:05}-of-{total:05}.tfrecord" for index in range(NUM_SHARDS)]
        with ThreadPoolExecutor(max_workers=UPLOADERS) as pool:
            list(pool.map(lambda path: self._container.upload_blob(path, self._content), paths))
        return paths


@dataclass(frozen=True, kw_only=True)
class Handled:
    """The cost of handling a version's shards."""

    wall_s: float
    others: float
    """Share of the cores' time that processes other than the worker and Azurite used."""
    requests: Counter[str]


def check_same_requests(judged: Counter[str], bare: Counter[str]) -> None:
    """Raise BenchmarkError if the worker and the bare process made different requests."""
    for kind in judged.keys() | bare.keys():
        fewer, more = sorted((judged[kind], bare[kind]))
        if more > fewer * MAX_REQUEST_RATIO + EXAMPLE_READS:
            raise BenchmarkError(
                f"the bare process must make the worker's requests; {kind}: {bare[kind]} instead of {judged[kind]}; "
                "update bench/workers/judging.py"
            )


def requests(log: bytes) -> Counter[str]:
    """Count the requests in lines of Azurite's log, by method and table or container."""
    found = (_REQUEST.search(line) for line in log.decode(errors="replace").splitlines())
    return Counter(f"{match['method']} {match['place']}" for match in found if match)


def concurrency(root: Path) -> int:
    """Return from host.json how many messages of the two upload queues one instance handles at once."""
    queues = json.loads((root / "host.json").read_text(encoding="utf-8"))["extensions"]["queues"]
    return 2 * (int(queues["batchSize"]) + int(queues["newBatchThreshold"]))


def small_shard() -> bytes:
    """Return a shard with the demo's digits."""
    digits = load_digits()
    pairs = list(zip(digits.images, digits.labels, strict=True))[:NUM_RECORDS]
    records = (encode_example({"image": encode_png(image), "label": int(label)}) for image, label in pairs)
    return b"".join(frame_record(record) for record in records)


def app_settings(context: Context, azurite: Azurite) -> dict[str, str]:
    """Return complete app settings, of which only those for storage are used."""
    workspace = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
    return {
        "AzureWebJobsStorage": azurite.connection_string(),
        "DataStorage": azurite.connection_string(DATA_ACCOUNT),
        "LANDFALL_PIPELINES_DIR": str(context.root / "pipelines"),
        "LANDFALL_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
        "LANDFALL_RESOURCE_GROUP": "landfall",
        "LANDFALL_WORKSPACE": "landfall",
        "LANDFALL_ENVIRONMENT_ID": f"{workspace}/environments/e/versions/1",
        "LANDFALL_CODE_ID": f"{workspace}/codes/c/versions/1",
        "LANDFALL_CLUSTER_SIZES": "landfall-gpu=Standard_NC24ads_A100_v4",
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": "http://127.0.0.1:9/api/events",
        "LANDFALL_WEBHOOK_PEOPLE": "http://127.0.0.1:9/hook",
    }


def _settled(log: Path) -> bytes:
    """Wait until the log has stopped growing, and read it."""
    size = -1
    while size != log.stat().st_size:
        size = log.stat().st_size
        time.sleep(0.2)
    return log.read_bytes()
