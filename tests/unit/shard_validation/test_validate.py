"""Pausing: a validation resumes elsewhere with the same verdict. Statistics, merged over shards in any order."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from shard_validation import (
    DataRequirements,
    FeatureStatistics,
    LocalFileSource,
    Paused,
    ShardStatistics,
    ShardVerdict,
    encode_example,
    merge_statistics,
    validate_shard,
    validate_shard_within,
)
from shard_validation import ReasonCode as Code
from shard_validation.validate import MAX_DISTINCT
from shared.manifest import FeatureSpec
from tests.support.shards import LABEL, BytesSource, framed, image_bytes, labelled, verdict_on

IMAGE = FeatureSpec(name="image", kind="bytes")
REQUIREMENTS = DataRequirements(features=(LABEL, IMAGE))
PAYLOADS = [labelled(i % 12, image=bytes(i * 7 % 300)) for i in range(200)]
"""Labels 10 and 11 are out of range."""
SHARD = framed(PAYLOADS)


def in_steps(source: BytesSource, requirements: DataRequirements | None) -> tuple[ShardVerdict, int]:
    """Validate with a pause after every chunk, each checkpoint going through JSON; return the number of pauses."""
    checkpoint, num_pauses = None, 0
    while True:
        outcome = validate_shard_within(source, requirements, should_pause=lambda: True, checkpoint=checkpoint)
        if isinstance(outcome, ShardVerdict):
            return outcome, num_pauses
        checkpoint = json.loads(json.dumps(outcome.checkpoint))
        num_pauses += 1


@pytest.mark.parametrize("chunk_bytes", [50, 333, 4096])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content, id="sound"),
        pytest.param(lambda content: content[:-3], id="cut"),
        pytest.param(lambda content: content[:5000] + b"!" + content[5001:], id="damaged"),
        pytest.param(lambda content: content[:5000] + bytes(100) + content[5100:], id="overwritten"),
    ],
)
def test_same_verdict(damage: Callable[[bytes], bytes], chunk_bytes: int) -> None:
    """A validation in many executions ends with the same verdict, statistics included, as in one."""
    source = BytesSource(damage(SHARD), chunk_bytes=chunk_bytes)
    verdict, num_pauses = in_steps(source, REQUIREMENTS)
    assert validate_shard(source, REQUIREMENTS) == verdict
    assert -(-source.size_bytes // chunk_bytes) - 1 == num_pauses


def test_integrity_only() -> None:
    """Pausing works without features too, and within records longer than a chunk."""
    source = BytesSource(framed([bytes(5000), bytes(3000)]), chunk_bytes=1000)
    verdict, num_pauses = in_steps(source, None)
    assert (True, 2, 8) == (verdict.accepted, verdict.num_records, num_pauses)


def test_compressed_shards_do_not_pause() -> None:
    """The state of an inflater cannot be stored: a compressed shard does not pause."""
    _, num_pauses = in_steps(BytesSource(gzip.compress(SHARD), chunk_bytes=50), REQUIREMENTS)
    assert 0 == num_pauses


def after(num_times: int) -> Callable[[], bool]:
    """Return a function that returns False so many times, and then True."""
    times = iter(range(num_times))
    return lambda: next(times, None) is None


def test_a_compressed_shard_is_rejected_when_its_time_is_over() -> None:
    """It is rejected at the position that it reached; the CRC of the whole content is then taken with pauses."""
    source = BytesSource(gzip.compress(SHARD), chunk_bytes=50)
    outcome = validate_shard_within(source, REQUIREMENTS, should_pause=lambda: True, out_of_time=after(5))
    num_pauses = 0
    while isinstance(outcome, Paused):
        checkpoint, num_pauses = json.loads(json.dumps(outcome.checkpoint)), num_pauses + 1
        outcome = validate_shard_within(source, REQUIREMENTS, should_pause=lambda: True, checkpoint=checkpoint)
    last = outcome.reasons[-1]
    assert (Code.VALIDATION_TOO_LONG, 6 * 50) == (last.code, last.byte_offset)
    assert (f"{crc32c(source.content):08x}", True) == (outcome.crc32c, num_pauses > 5)


def test_plain_shards_are_never_out_of_time() -> None:
    """They can pause, so they are never rejected for their time."""
    outcome = validate_shard_within(BytesSource(SHARD, chunk_bytes=50), out_of_time=lambda: True)
    assert validate_shard(BytesSource(SHARD)) == outcome


@pytest.mark.parametrize("content", [b"<html>" * 100, b"PK\x03\x04" + bytes(500)])
def test_other_files_can_pause_too(content: bytes) -> None:
    """Its content is not checked, but its CRC belongs to the verdict."""
    source = BytesSource(content, chunk_bytes=50)
    verdict, num_pauses = in_steps(source, REQUIREMENTS)
    assert (validate_shard(source, REQUIREMENTS), True) == (verdict, num_pauses > 9)


HASHED = replace(REQUIREMENTS, digests=("sha256", "md5"))


@pytest.mark.parametrize("content", [SHARD, gzip.compress(SHARD), SHARD[:-3], b"<html>" * 100])
def test_digests_are_taken_in_the_same_pass(content: bytes) -> None:
    """The content does not matter; the other findings are the same."""
    source = BytesSource(content, chunk_bytes=50)
    verdict = validate_shard(source, HASHED)
    expected = {name: hashlib.new(name, content).hexdigest() for name in HASHED.digests}
    assert (expected, validate_shard(source, REQUIREMENTS)) == (verdict.digests, replace(verdict, digests={}))


def test_digests_of_a_parquet_shard_are_those_of_the_file() -> None:
    """Its columns are read once more, its bytes are hashed once."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"label": [1, 2, 3]}), buffer)
    content = buffer.getvalue()
    verdict = validate_shard(BytesSource(content, "a.parquet"), replace(HASHED, features=()))
    assert (True, hashlib.sha256(content).hexdigest()) == (verdict.accepted, verdict.digests["sha256"])


def test_digests_of_a_local_file_are_taken_without_the_accelerator(tmp_path: Path) -> None:
    """The accelerator reads files by itself and hashes nothing."""
    file = tmp_path / "a.tfrecord"
    file.write_bytes(framed([bytes(1000)] * 5000))
    with LocalFileSource(file) as source:
        verdict = validate_shard(source, DataRequirements(digests=("sha256",)))
    assert hashlib.sha256(file.read_bytes()).hexdigest() == verdict.digests["sha256"]


def test_digests_after_a_pause_are_taken_in_a_pass_of_their_own() -> None:
    """The state of a hash cannot be stored. A shard that is rejected anyway needs none."""
    source = BytesSource(framed([labelled(1, image=b"x") for _ in range(50)]), chunk_bytes=500)
    verdict, _ = in_steps(source, HASHED)
    assert (True, hashlib.sha256(source.content).hexdigest()) == (verdict.accepted, verdict.digests["sha256"])
    rejected, _ = in_steps(BytesSource(SHARD, chunk_bytes=500), HASHED)
    assert (False, {}) == (rejected.accepted, rejected.digests)


def test_a_shard_whose_digest_takes_too_long_is_rejected() -> None:
    """No further execution would get further."""
    source = BytesSource(framed([labelled(1, image=b"x") for _ in range(50)]), chunk_bytes=500)
    outcome, pauses = validate_shard_within(source, HASHED, should_pause=lambda: True), 0
    while isinstance(outcome, Paused):
        pauses += 1
        outcome = validate_shard_within(
            source, HASHED, should_pause=lambda: True, out_of_time=lambda: True, checkpoint=outcome.checkpoint
        )
    assert (Code.VALIDATION_TOO_LONG, {}, True) == (outcome.reasons[0].code, outcome.digests, pauses > 3)


def test_checkpoint_of_another_shard() -> None:
    """A checkpoint of another content raises ValueError."""
    paused = validate_shard_within(BytesSource(SHARD, chunk_bytes=50), should_pause=lambda: True)
    assert isinstance(paused, Paused)
    with pytest.raises(ValueError, match="the checkpoint is from"):
        validate_shard_within(BytesSource(SHARD + b"more"), checkpoint=paused.checkpoint)


def test_checkpoint_is_small() -> None:
    """A checkpoint fits into a table row: at most tens of kilobytes, whatever the size of the shard."""
    paused = validate_shard_within(
        BytesSource(framed([b"broken"] * 2000), chunk_bytes=40_000), REQUIREMENTS, should_pause=lambda: True
    )
    assert isinstance(paused, Paused)
    assert len(json.dumps(paused.checkpoint)) < 32 << 10


DECODED_IMAGE = FeatureSpec(name="image", kind="bytes", encoding="image")


def test_labels_images_and_ranges() -> None:
    """Labels and image sizes are counted, values have a range."""
    payloads = [
        encode_example({"label": i % 3, "image": image_bytes("PNG", (8 + i % 2, 8)), "x": i / 2, "color": "red"})
        for i in range(6)
    ]
    specs = (FeatureSpec(name="x", kind="float"), FeatureSpec(name="color", kind="bytes", encoding="text"))
    features = verdict_on(framed(payloads), LABEL, DECODED_IMAGE, *specs).statistics.features
    assert {"0": 2, "1": 2, "2": 2} == features["label"].histogram
    assert {"8x8x3": 3, "9x8x3": 3} == features["image"].histogram
    assert (0.0, 2.5) == (features["x"].minimum, features["x"].maximum)
    assert {"red": 6} == features["color"].histogram
    assert [6, 6, 6, 6] == [f.num_present for f in features.values()]


def test_values_that_are_too_many() -> None:
    """A feature of distinct values, such as an id, fills its histogram; further values are only counted."""
    statistics = verdict_on(
        framed([labelled(id=i) for i in range(2000)]), FeatureSpec(name="id", kind="int64")
    ).statistics
    ids = statistics.features["id"]
    assert (MAX_DISTINCT, 2000 - MAX_DISTINCT) == (len(ids.histogram), ids.other)
    assert (0, 1999, 2000) == (ids.minimum, ids.maximum, ids.num_present)


def test_rejected_values_are_not_counted() -> None:
    """Rejected values do not enter the statistics."""
    statistics = verdict_on(framed([labelled(1), labelled(77)]), LABEL).statistics
    assert {"1": 1} == statistics.features["label"].histogram
    assert 1 == statistics.features["label"].maximum


@given(labels=st.lists(st.integers(0, 9), min_size=1, max_size=60), cut=st.integers(0, 60))
def test_merged(labels: list[int], cut: int) -> None:
    """Merged statistics of two shards equal those of one with all records, in either order, and through JSON."""
    parts = [labels[:cut] or [0], labels[cut:] or [0]]
    whole = verdict_on(framed([labelled(label) for part in parts for label in part]), LABEL).statistics
    both = [verdict_on(framed([labelled(label) for label in part]), LABEL).statistics for part in parts]
    assert whole == merge_statistics(both)
    assert whole.to_json() == merge_statistics(reversed(both)).to_json()
    assert whole == ShardStatistics.from_json(json.loads(json.dumps(whole.to_json())))


def test_merging_full_histograms() -> None:
    """Values that do not fit a merged histogram are counted as other: no record is lost."""
    first, second = FeatureStatistics(), FeatureStatistics()
    for i in range(MAX_DISTINCT):
        first.count(f"a{i}")
        second.count(f"b{i}", 2)
    first.merge(second)
    assert 3 * MAX_DISTINCT == sum(first.histogram.values()) + first.other
