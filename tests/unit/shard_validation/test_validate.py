"""Pausing: a validation stops after any chunk and resumes elsewhere, with the same verdict."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest
from crc32c import crc32c

from shard_validation import DataRequirements, Paused, ShardVerdict, validate_shard, validate_shard_within
from shard_validation import ReasonCode as Code
from shared.manifest import FeatureSpec
from tests.support.shards import LABEL, BytesSource, framed, labelled

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
