"""TFRecord shards, their examples and images, damaged at random: always a verdict, and the right one."""

from __future__ import annotations

import gzip
import json
import random
import zlib

from shard_validation import (
    DataRequirements,
    ImagePolicy,
    Paused,
    Reason,
    ShardVerdict,
    encode_example,
    validate_shard,
    validate_shard_within,
)
from shared.manifest import FeatureSpec
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES, masked_crc32c
from tests.fuzz.mutations import damaged, for_every_seed, one_of
from tests.support.shards import BytesSource, FileBytesSource, framed, image_bytes

PAYLOADS = [
    encode_example(
        {
            "label": i % 10,
            "image": image_bytes(("PNG", "JPEG")[i % 2], (8 + i, 9)),
            "box": [0.25, 0.5 + i],
            "text": f"text {i}",
            "raw": bytes(12),
        }
    )
    for i in range(6)
]
REQUIREMENTS = DataRequirements(
    features=(
        FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
        FeatureSpec(name="image", kind="bytes", encoding="image"),
        FeatureSpec(name="box", kind="float", shape=(None,)),
        FeatureSpec(name="text", kind="bytes", encoding="text", required=False),
        FeatureSpec(name="raw", kind="bytes", encoding="raw", dtype="float32", shape=(3,)),
    ),
    images=ImagePolicy(decode="all"),
)
PLAIN = framed(PAYLOADS)
LARGE = {"image": image_bytes("PNG", (8, 9)), "box": [0.0] * 5000, "raw": bytes(12)}
"""Features of an example that is checked in the memory that it was read into."""
LARGE_SHARD = framed([encode_example({**LARGE, "label": label}) for label in (3, 11, 4)])
IMAGES = [
    image_bytes("PNG", (30, 20)),
    image_bytes("JPEG", (30, 20)),
    image_bytes("JPEG", (30, 20), "L"),
    image_bytes("JPEG", (30, 20), progressive=True),
]
STREAMS = [
    gzip.compress(PLAIN, mtime=0),
    zlib.compress(PLAIN),
    gzip.compress(PLAIN[:999], mtime=0) + gzip.compress(PLAIN[999:], mtime=0),
]


def reads_like_tensorflow(content: bytes) -> bool:
    """Check with a minimal reader whether framing and both CRCs of every record hold, and there is a record."""
    position = 0
    while position < len(content):
        header = content[position : position + HEADER_BYTES]
        length = int.from_bytes(header[:8], "little")
        end = position + length + FRAME_OVERHEAD_BYTES
        if len(header) < HEADER_BYTES or end > len(content) or length == 0:
            return False
        payload, trailer = content[position + HEADER_BYTES : end - 4], content[end - 4 : end]
        crcs = masked_crc32c(header[:8]), masked_crc32c(payload)
        if crcs != (int.from_bytes(header[8:], "little"), int.from_bytes(trailer, "little")):
            return False
        position = end
    return position > 0


def in_steps(source: BytesSource) -> ShardVerdict:
    """Validate with a pause after every chunk."""
    outcome = validate_shard_within(source, REQUIREMENTS, should_pause=lambda: True)
    while isinstance(outcome, Paused):
        outcome = validate_shard_within(
            source, REQUIREMENTS, should_pause=lambda: True, checkpoint=json.loads(json.dumps(outcome.checkpoint))
        )
    return outcome


def check_reasons(verdict: ShardVerdict) -> None:
    """Assert that a shard has reasons if and only if it is rejected, and that they lie within it."""
    assert verdict.accepted == (not verdict.reasons)
    for reason in verdict.reasons:
        assert reason == Reason.from_json(json.loads(json.dumps(reason.to_json())))
        assert reason.message.isprintable()
        assert 0 <= (reason.record_index or 0) <= verdict.num_records


@for_every_seed
def test_framing(chance: random.Random) -> None:
    """A damaged shard is accepted if and only if a minimal reader reads it, whatever the chunk size."""
    content = damaged(PLAIN, chance)
    verdict = validate_shard(BytesSource(content))
    assert reads_like_tensorflow(content) == verdict.accepted
    check_reasons(verdict)
    chunked = BytesSource(content, chunk_bytes=chance.choice([7, 100, 1000]))
    assert verdict == validate_shard(chunked)
    assert verdict == validate_shard(FileBytesSource(content, chunk_bytes=chance.choice([1, 100, 1000])))


@for_every_seed
def test_examples(chance: random.Random) -> None:
    """A damaged payload in a sound frame gets a verdict, the same with and without pauses."""
    payloads = list(PAYLOADS)
    position = chance.randrange(len(payloads))
    payloads[position] = damaged(payloads[position], chance)
    source = BytesSource(framed(payloads), chunk_bytes=chance.choice([64, 500, 1 << 20]))
    verdict = validate_shard(source, REQUIREMENTS)
    check_reasons(verdict)
    assert {position} >= {r.record_index for r in verdict.reasons}
    assert verdict == in_steps(source)


@for_every_seed
def test_large_examples_of_a_file(chance: random.Random) -> None:
    """Damage after large examples gets the same verdict from a file, read in stretches, as from memory."""
    content = LARGE_SHARD + damaged(PLAIN, chance)
    verdict = validate_shard(FileBytesSource(content, chunk_bytes=chance.choice([1, 500, 25_000])), REQUIREMENTS)
    assert validate_shard(BytesSource(content), REQUIREMENTS) == verdict


@for_every_seed
def test_images(chance: random.Random) -> None:
    """Damaged image bytes in a sound example give at most a reason."""
    requirements = DataRequirements(features=REQUIREMENTS.features[1:2], images=ImagePolicy(decode="all"))
    content = damaged(one_of(IMAGES, chance), chance)
    check_reasons(validate_shard(BytesSource(framed([encode_example({"image": content})])), requirements))


@for_every_seed
def test_compressed(chance: random.Random) -> None:
    """A damaged stream is accepted only where zlib inflates all of it to sound records."""
    content = damaged(one_of(STREAMS, chance), chance)
    verdict = validate_shard(BytesSource(content, chunk_bytes=chance.choice([11, 1000, 1 << 20])))
    check_reasons(verdict)
    if verdict.accepted and verdict.compression:
        inflate = gzip.decompress if verdict.compression == "gzip" else zlib.decompress
        assert reads_like_tensorflow(inflate(content))
