"""What one worker gets through, against what Azurite gives to one process that does nothing but ask.

Both handle shards of versions of their own, in turn, with as many at once as the Functions host lets one instance
have. That both ask for the same is read from Azurite's own log. Azurite's share of the cores is no disturbance.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from bench.disturbance import cpu_s
from bench.figures import MIN_SAMPLES, BenchmarkError, Context, Figure, median
from bench.validator_worker import Worker
from cli.demo.digits import encode_png, load_digits
from function_app.domain.records import NUM_BUCKETS
from local_azure.azurite import DATA_ACCOUNT, Azurite, start_azurite
from shard_validation import encode_example
from shared.record_framing import frame_record

CONTAINER = "datasets"
NUM_SHARDS = 100
"""Judged of a version in one round; its last buckets stay open, so that no round closes one."""
NUM_RECORDS = 100
WARM_UP = "digits/warm-up"
MIN_RATIO = 0.7
MAX_ROUNDS = 40
MAX_OTHERS_SHARE = 0.10
"""Of the cores' time, without Azurite's."""
MAX_MORE_REQUESTS = 1.03
"""Between the two: what writers that meet in one counter ask for once more."""
LOOKS = 2
"""At the shard whose rows are the example for the others."""

_REQUEST = re.compile(r'"(?P<method>[A-Z]+) /[a-z0-9]+/(?P<place>[$a-z0-9-]+)')
UPLOADERS = 8


@dataclass(kw_only=True)
class Rounds:
    """What undisturbed rounds took, in seconds, and what was asked for."""

    judged_s: list[float] = field(default_factory=list)
    asked_s: list[float] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    """Of the judging, by method and table or container."""


def worker_figures(context: Context) -> list[Figure]:
    """Judge some thousand small shards: about two minutes on two cores."""
    with _azurite(context) as azurite:
        bench = Bench(context, azurite)
        with Worker(context, context.python, "judging", app_settings(context, azurite)) as worker:
            rounds = bench.measure(worker)
    ratio = median(rounds.asked_s) / median(rounds.judged_s)
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
        Figure(name="requests of judging one shard", value=rounds.requests.total() / shards, unit="requests"),
    ]


class Bench:
    """Versions in Azurite, of which each is handled once."""

    def __init__(self, context: Context, azurite: Azurite) -> None:
        self._context, self._azurite = context, azurite
        self._content = small_shard()
        self._threads = concurrency(context.root)

    def measure(self, worker: Worker) -> Rounds:
        """Return undisturbed rounds. Raises BenchmarkError where there are too few, or both do not ask alike."""
        with ContainerClient.from_connection_string(
            self._azurite.connection_string(DATA_ACCOUNT), CONTAINER
        ) as container:
            container.create_container()
            self._container = container
            like = self._upload(WARM_UP)
            worker.ask("judge", paths=like, threads=self._threads)
            worker.ask("ask", paths=self._upload(f"{WARM_UP}-2"), threads=self._threads, like=like[0])
            rounds = Rounds()
            for number in range(MAX_ROUNDS):
                self._round(worker, number, like[0], rounds)
                if len(rounds.judged_s) == MIN_SAMPLES:
                    return rounds
        raise BenchmarkError(
            f"only {len(rounds.judged_s)} of {MAX_ROUNDS} rounds were undisturbed: others than Azurite used more "
            f"than {MAX_OTHERS_SHARE:.0%} of the cores; measure on a machine that does nothing else"
        )

    def _round(self, worker: Worker, number: int, like: str, rounds: Rounds) -> None:
        judged = self._handled(worker, "judge", self._upload(f"digits/judged-{number}"), {})
        asked = self._handled(worker, "ask", self._upload(f"digits/asked-{number}"), {"like": like})
        others = max(judged.others, asked.others)
        rates = f"{NUM_SHARDS / judged.wall_s:.1f} shards a second, {NUM_SHARDS / asked.wall_s:.1f} asked for alone"
        self._context.say(f"round {number + 1}: {rates}; others had {others:.0%} of the cores")
        check_alike(judged.requests, asked.requests)
        if others <= MAX_OTHERS_SHARE:
            rounds.judged_s.append(judged.wall_s)
            rounds.asked_s.append(asked.wall_s)
            rounds.requests += judged.requests

    def _handled(self, worker: Worker, do: str, paths: list[str], more: Mapping[str, str]) -> Handled:
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
        """Upload a version but for its last shards; return the paths in their order, as uploads come."""
        total = NUM_SHARDS + NUM_BUCKETS
        paths = [f"{version}/train-{index:05}-of-{total:05}.tfrecord" for index in range(NUM_SHARDS)]
        with ThreadPoolExecutor(max_workers=UPLOADERS) as pool:
            list(pool.map(lambda path: self._container.upload_blob(path, self._content), paths))
        return paths


@dataclass(frozen=True, kw_only=True)
class Handled:
    """What handling a version's shards took."""

    wall_s: float
    others: float
    """The share of the cores' time that went neither to the worker nor to Azurite."""
    requests: Counter[str]


def check_alike(judged: Counter[str], asked: Counter[str]) -> None:
    """Raise BenchmarkError where the two have not asked for the same."""
    for kind in judged.keys() | asked.keys():
        fewer, more = sorted((judged[kind], asked[kind]))
        if more > fewer * MAX_MORE_REQUESTS + LOOKS:
            raise BenchmarkError(
                f"judging should ask as the ceiling does; {kind}: {judged[kind]} and {asked[kind]} times"
            )


def requests(log: bytes) -> Counter[str]:
    """Count the requests in lines of Azurite's log, by method and table or container."""
    found = (_REQUEST.search(line) for line in log.decode(errors="replace").splitlines())
    return Counter(f"{match['method']} {match['place']}" for match in found if match)


def concurrency(root: Path) -> int:
    """Return how many messages of a queue the Functions host lets one instance have at once: host.json says."""
    queues = json.loads((root / "host.json").read_text(encoding="utf-8"))["extensions"]["queues"]
    return int(queues["batchSize"]) + int(queues["newBatchThreshold"])


def small_shard() -> bytes:
    """Return a shard of the demo's digits."""
    digits = load_digits()
    pairs = list(zip(digits.images, digits.labels, strict=True))[:NUM_RECORDS]
    records = (encode_example({"image": encode_png(image), "label": int(label)}) for image, label in pairs)
    return b"".join(frame_record(record) for record in records)


def app_settings(context: Context, azurite: Azurite) -> dict[str, str]:
    """Return complete settings; whatever is not storage is never asked."""
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
        "LANDFALL_NOTIFICATION_TOPIC_ENDPOINT": "http://127.0.0.1:9/api/events",
        "LANDFALL_WEBHOOK_PEOPLE": "http://127.0.0.1:9/hook",
    }


def _settled(log: Path) -> bytes:
    """Read the log once nothing is added any more."""
    size = -1
    while size != log.stat().st_size:
        size = log.stat().st_size
        time.sleep(0.2)
    return log.read_bytes()


@contextlib.contextmanager
def _azurite(context: Context) -> Iterator[Azurite]:
    try:
        folder = context.scratch / "worker_rate"  # an earlier Azurite's log would name the ports of one that is gone
        folder.mkdir()
        azurite = start_azurite(folder)
    except pytest.skip.Exception as error:
        raise BenchmarkError(str(error)) from None
    try:
        yield azurite
    finally:
        azurite.stop()
