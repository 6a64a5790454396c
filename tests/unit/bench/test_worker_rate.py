"""The ceiling is one only where it is asked for alike, with as many at once as the host hands out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from bench.disturbance import cpu_s
from bench.figures import BenchmarkError
from bench.worker_rate import check_alike, concurrency, requests, small_shard
from function_app.config.pipeline_files import load_pipelines
from shard_validation import validate_shard
from shard_validation.sources import LocalFileSource
from tests.support.processes import REPOSITORY

LOG = (
    b'127.0.0.1 - - [x] "HEAD /landfalldata/datasets/digits/v1/train-00000-of-00002.tfrecord HTTP/1.1" 200 -\n'
    b'127.0.0.1 - - [x] "GET /devstoreaccount1/landfallshards(PartitionKey=%27a%27,RowKey=%27b%27) HTTP/1.1" 404 -\n'
    b'127.0.0.1 - - [x] "POST /devstoreaccount1/$batch HTTP/1.1" 202 -\n'
    b"Azurite Blob service is starting\n"
)


def test_requests_are_counted_by_method_and_place() -> None:
    """Lines that tell of no request are none."""
    assert Counter({"HEAD datasets": 1, "GET landfallshards": 1, "POST $batch": 1}) == requests(LOG)


def test_a_ceiling_that_asks_for_less_is_refused() -> None:
    """It would promise what nobody who judges can reach; the other way round it would flatter."""
    check_alike(Counter({"GET a": 203}), Counter({"GET a": 200}))
    for judged, asked in ((400, 200), (200, 400), (200, 0)):
        with pytest.raises(BenchmarkError, match=f"GET a: {judged} and {asked} times"):
            check_alike(Counter({"GET a": judged}), Counter({"GET a": asked}))


def test_as_many_are_handled_at_once_as_the_host_hands_out() -> None:
    """A batch of four, and the next one when two are left."""
    assert 6 == concurrency(REPOSITORY)


def test_the_shard_that_is_judged_is_accepted(tmp_path: Path) -> None:
    """A rejected one would ask for less."""
    path = tmp_path / "train-00000-of-00001.tfrecord"
    path.write_bytes(small_shard())
    pipeline = load_pipelines(REPOSITORY / "pipelines")["digits"]
    verdict = validate_shard(LocalFileSource(path), pipeline.data.requirements())
    assert (True, 100) == (verdict.accepted, verdict.num_records)


def test_the_time_of_a_process_is_its_own() -> None:
    """User and system time, as the kernel adds them up in hundredths of a second."""
    mine = os.times()
    assert cpu_s(os.getpid()) == pytest.approx(mine.user + mine.system, abs=0.05)
