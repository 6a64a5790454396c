"""Examples checked many at once: the same verdict, to the last digit, as one by one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from shard_validation import DataRequirements, Limits, ShardVerdict, features, validate, validate_shard
from shard_validation.tfrecord import many, validator
from shared.manifest import FeatureSpec
from tests.fuzz.mutations import damaged, for_every_seed
from tests.support.example_bytes import Value, example_bytes
from tests.support.shards import BytesSource, framed

NUM_EXAMPLES = 40
SPECS = (
    FeatureSpec(name="label", kind="int64", minimum=-1, maximum=9),
    FeatureSpec(name="label", kind="int64"),
    FeatureSpec(name="label", kind="int64", allowed=(0, 1, 2, 200)),
    FeatureSpec(name="ids", kind="int64", shape=(3,), maximum=1 << 61),
    FeatureSpec(name="ids", kind="int64", shape=(None,)),
    FeatureSpec(name="box", kind="float", shape=(2,), minimum=0.0),
    FeatureSpec(name="box", kind="float", shape=(2,)),
    FeatureSpec(name="box", kind="float", shape=(None,), required=False),
    FeatureSpec(name="score", kind="float", required=False, minimum=-2.0, maximum=2.0),
    FeatureSpec(name="score", kind="float", allowed=(0.0, 0.5)),
    FeatureSpec(name="image", kind="bytes"),
    FeatureSpec(name="image", kind="bytes", required=False),
    FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(None,)),
    FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(128,)),
    FeatureSpec(name="text", kind="bytes", encoding="text"),
    FeatureSpec(name="text", kind="bytes", required=False, allowed=("a", "b")),
    FeatureSpec(name="raw", kind="bytes", encoding="raw", dtype="float32", shape=(3,)),
    FeatureSpec(name="names", kind="bytes", shape=(2,), required=False),
)
NUMBERS = (0.0, -0.0, 0.5, 1.5, -3.0, math.nan, math.inf)
INTEGERS = (0, 1, 2, 9, 10, 127, 128, 200, 16_384, -1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))
SIZES = (0, 1, 100, 110, 120, 126, 127, 128, 129, 300, 5000)


VALUES: dict[str, Callable[[random.Random], Value]] = {
    "label": lambda chance: chance.choice(INTEGERS),
    "ids": lambda chance: [chance.choice(INTEGERS) for _ in range(chance.choice((1, 3, 3, 3)))],
    "box": lambda chance: [chance.choice(NUMBERS) for _ in range(chance.choice((2, 2, 2, 4)))],
    "score": lambda chance: chance.choice(NUMBERS),
    "image": lambda chance: chance.randbytes(chance.choice(SIZES)),
    "text": lambda chance: chance.choice((b"a", b"b", b"", b"\xff", "ä".encode() * 70, b"c" * 130)),
    "raw": lambda chance: chance.choice((bytes(12), bytes(11), b"\0\0\xc0\x7f" * 3, b"\0\0\0\x80" * 3)),
    "names": lambda chance: [b"x" * chance.choice((0, 1, 200)) for _ in range(chance.choice((1, 2, 2)))],
    "other": lambda chance: chance.choice((5, [b"a", b"bc"], -7, [1.5, math.nan])),
}
"""Each returns a value of a feature, often an extreme one."""


def some_payloads(chance: random.Random) -> list[bytes]:
    """Return examples of which most are alike, a few damaged or with values that are not sound."""
    names = chance.sample(list(VALUES), chance.randint(1, len(VALUES)))
    usual: dict[str, Value] = {name: VALUES[name](chance) for name in names}
    unrest = chance.choice((0.0, 0.02, 0.2, 1.0))
    payloads = []
    for _ in range(NUM_EXAMPLES):
        values = {name: VALUES[name](chance) if chance.random() < unrest else v for name, v in usual.items()}
        values["label"] = chance.choice((*range(10), 128, VALUES["label"](chance)))
        values["image"] = VALUES["image"](chance)
        if chance.random() < unrest / 4:
            values = dict(chance.sample(list(values.items()), chance.randint(1, len(values))))
        payload = example_bytes(values)
        if chance.random() < 0.06:
            payload = chance.choice((damaged, with_other_byte))(payload, chance) or b"\0"
        payloads.append(payload)
    return payloads


def with_other_byte(payload: bytes, chance: random.Random) -> bytes:
    """Return the payload with one of its first bytes, where tags and lengths are, one higher or lower."""
    position = chance.randrange(min(40, len(payload)))
    return payload[:position] + bytes([(payload[position] + chance.choice((1, -1))) % 256]) + payload[position + 1 :]


def verdict(content: bytes, requirements: DataRequirements, min_together: int) -> tuple[ShardVerdict, str]:
    """Validate; return the verdict, and its text, which tells 0.0 from -0.0 and 1 from 1.0."""
    with ExitStack() as patched:
        for module in (validator, many):
            patched.enter_context(patch.object(module, "MIN_TOGETHER", min_together))
        for module in (validate, features, many):
            patched.enter_context(patch.object(module, "MAX_DISTINCT", 5))
        found = validate_shard(BytesSource(content, chunk_bytes=1 << 20), requirements)
    return found, json.dumps(found.to_json())


def some_specs(chance: random.Random) -> Sequence[FeatureSpec]:
    """Return specs, at most one for each feature."""
    by_name: dict[str, Any] = {}
    for spec in chance.sample(SPECS, chance.randint(1, 6)):
        by_name.setdefault(spec.name, spec)
    return list(by_name.values())


@for_every_seed
def test_many_examples(chance: random.Random) -> None:
    """The same faults at the same places in the same words, and the same statistics."""
    limits = Limits(max_unknown_bytes=chance.choice((1, 64 << 10)), max_reasons=1000)
    requirements = DataRequirements(features=tuple(some_specs(chance)), limits=limits)
    content = framed(some_payloads(chance))
    alone = verdict(content, requirements, 1 << 60)
    assert alone == verdict(content, requirements, chance.choice((2, 2, 8, 32)))
