"""The worker and the bare process must make the same requests, with the host's concurrency."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from bench.figures import BenchmarkError
from bench.worker_rate import check_same_requests, concurrency, requests, small_shard
from bench.workers.timed import cpu_s
from function_app.config.pipeline_files import load_pipelines
from shard_validation import validate_shard
from shard_validation.content import LocalFileSource
from tests.support.processes import REPOSITORY

LOG = (
    b'127.0.0.1 - - [x] "HEAD /landfalldata/datasets/digits/v1/train-00000-of-00002.tfrecord HTTP/1.1" 200 -\n'
    b'127.0.0.1 - - [x] "GET /devstoreaccount1/landfallshards(PartitionKey=%27a%27,RowKey=%27b%27) HTTP/1.1" 404 -\n'
    b'127.0.0.1 - - [x] "POST /devstoreaccount1/$batch HTTP/1.1" 202 -\n'
    b"Azurite Blob service is starting\n"
)


def test_requests_are_counted_by_method_and_place() -> None:
    """Other lines of the log are ignored."""
    assert Counter({"HEAD datasets": 1, "GET landfallshards": 1, "POST $batch": 1}) == requests(LOG)


def test_different_requests_of_the_two_processes_are_refused() -> None:
    """Fewer requests would make the bare process too fast, more would make it too slow, to compare with."""
    check_same_requests(Counter({"GET a": 203}), Counter({"GET a": 200}))
    for judged, asked in ((400, 200), (200, 400), (200, 0)):
        with pytest.raises(BenchmarkError, match=f"GET a: {asked} instead of {judged}"):
            check_same_requests(Counter({"GET a": judged}), Counter({"GET a": asked}))


def test_the_concurrency_is_the_hosts() -> None:
    """The host fetches one message of each of the two queues, and the next one when it is done."""
    assert 2 == concurrency(REPOSITORY)


def test_the_shard_that_is_judged_is_accepted(tmp_path: Path) -> None:
    """A rejected shard would need fewer requests."""
    path = tmp_path / "train-00000-of-00001.tfrecord"
    path.write_bytes(small_shard())
    pipeline = load_pipelines(REPOSITORY / "pipelines")["digits"]
    verdict = validate_shard(LocalFileSource(path), pipeline.data.requirements())
    assert (True, 100) == (verdict.accepted, verdict.num_records)


def test_the_time_of_a_process_is_its_own() -> None:
    """User and system time, as the kernel adds them up in hundredths of a second."""
    mine = os.times()
    assert cpu_s(os.getpid()) == pytest.approx(mine.user + mine.system, abs=0.05)
