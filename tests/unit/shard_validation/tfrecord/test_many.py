"""Many examples at once: their values are those that the runtime reads, and what no writer produces is left to it."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shard_validation import DataRequirements, Limits, encode_example, validate_shard
from shard_validation import ReasonCode as Code
from shard_validation.tfrecord import validator
from shard_validation.tfrecord.many import ManyExamples
from shard_validation.tfrecord.message import example_class
from shard_validation.tfrecord.patterns import MAX_PATTERNS, Columns, Patterns
from shard_validation.validate import ShardStatistics
from shared.manifest import FeatureSpec
from tests.support.example_bytes import example_bytes
from tests.support.shards import LABEL, BytesSource, framed, labelled

IMAGE = FeatureSpec(name="image", kind="bytes")
SPECS = (
    FeatureSpec(name="label", kind="int64"),
    IMAGE,
    FeatureSpec(name="box", kind="float", shape=(2,)),
    FeatureSpec(name="ids", kind="int64", shape=(2,)),
    FeatureSpec(name="weight", kind="float", required=False),
)
LISTS = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}
EXAMPLES = st.fixed_dictionaries(
    {
        "label": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300),
        "image": st.binary(max_size=300),
        "box": st.tuples(*[st.floats(width=32)] * 2),
        "ids": st.tuples(*[st.integers(-2, 1 << 40)] * 2),
    },
    optional={"weight": st.floats(width=32), "other": st.lists(st.binary(max_size=3), min_size=1)},
)


def read(payloads: Sequence[bytes], specs: Sequence[FeatureSpec] = SPECS) -> tuple[bytes, Columns]:
    """Read payloads by the patterns that they have."""
    content = b"".join([bytes(16), *payloads])
    stops = 16 + np.cumsum([len(payload) for payload in payloads])
    return content, Patterns(specs).read(content, stops - [len(payload) for payload in payloads], stops)


def values_of(content: bytes, columns: Columns, place: int, row: int) -> list[Any] | None:
    """Return a feature's values in one example."""
    if place not in columns.values or not columns.are_present[place][row]:
        return None
    values = columns.values[place][row].tolist()
    return [content[values[0] : sum(values)]] if SPECS[place].kind == "bytes" else values


@given(st.lists(EXAMPLES, min_size=1, max_size=12))
def test_values(examples: list[dict[str, Any]]) -> None:
    """Values of every kind equal those of the runtime."""
    payloads = list(map(encode_example, examples))
    content, columns = read(payloads)
    assert columns.are_read.all()
    for row, payload in enumerate(payloads):
        features = example_class().FromString(payload).features.feature
        for place, spec in enumerate(SPECS):
            expected = list(getattr(features[spec.name], LISTS[spec.kind]).value) if spec.name in features else None
            assert repr(expected) == repr(values_of(content, columns, place, row))


def alone_and_together(payloads: Sequence[bytes], requirements: DataRequirements) -> tuple[str, str]:
    """Return the verdicts on a shard whose examples are checked one by one, and at once."""
    source = BytesSource(framed(payloads))
    with patch.object(validator, "MIN_TOGETHER", 1 << 60):
        alone = validate_shard(source, requirements)
    return json.dumps(alone.to_json()), json.dumps(validate_shard(source, requirements).to_json())


def test_every_byte_of_the_layout() -> None:
    """Any tag, length or name of one example in many may change: the verdict equals that of the example alone."""
    sound = [example_bytes({"image": bytes(200 + i), "label": i % 10}) for i in range(70)]
    requirements = DataRequirements(features=(IMAGE, LABEL))
    for position in [*range(25), *range(-20, 0)]:
        for change in (1, -1, 0x80):
            broken = bytearray(sound[40])
            broken[position] = (broken[position] + change) % 256
            alone, together = alone_and_together([*sound[:40], bytes(broken), *sound[41:]], requirements)
            assert alone == together, (position, change)


def test_superfluous_bytes() -> None:
    """Lengths with superfluous bytes, which hide content that no field has, are not taken for usual ones."""
    sound = [example_bytes({"image": bytes(200)}) for _ in range(40)]
    hidden = sound[0].replace(b"\xc8\x01" + bytes(200), b"\xe4\x00" + bytes(100))
    for usual, longer in ((b"\xcb\x01", b"\xe7\x00"), (b"\xce\x01", b"\xea\x00"), (b"\xd8\x01", b"\xf4\x00")):
        hidden = hidden.replace(usual, longer)
    hidden = hidden.replace(b"\x0a\xdb\x01", b"\x0a\xf7\x00")
    assert bytes(100) == example_class().FromString(hidden).features.feature["image"].bytes_list.value[0]
    requirements = DataRequirements(features=(IMAGE,), limits=Limits(max_unknown_bytes=1))
    alone, together = alone_and_together([*sound, hidden, *sound], requirements)
    assert alone == together
    assert Code.EXAMPLE_UNKNOWN_FIELDS in alone


def test_first_of_two_zeros() -> None:
    """0.0 and -0.0 are equal; the one that comes first is the extreme, as one by one."""
    score = FeatureSpec(name="score", kind="float")
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        payloads = [example_bytes({"score": zeros[i % 2]}) for i in range(64)]
        alone, together = alone_and_together(payloads, DataRequirements(features=(score,)))
        assert alone == together


def test_only_what_is_not_usual_is_checked_one_by_one() -> None:
    """Sound examples of many lengths are not given to the check of one example; the others are, in their place."""
    payloads = [labelled(i % 10 * 20, image=bytes(100 + i)) for i in range(200)]
    payloads[150] = payloads[150] + b"\x78\x00"
    looked_at: list[int] = []
    statistics = ShardStatistics()
    requirements = DataRequirements(features=(FeatureSpec(name="label", kind="int64", maximum=170), IMAGE))
    many = ManyExamples(requirements, statistics, lambda _, index: looked_at.append(index))
    sizes = array("q", map(len, payloads))
    faults = list(many.faults(framed(payloads), sizes, 1000))
    assert [1150] == looked_at
    assert [1000 + i for i in range(200) if i % 10 == 9] == [index for index, _, _ in faults]
    assert len(framed(payloads[:9])) == faults[0][1]
    assert 199 - 20 == statistics.features["label"].num_present


@pytest.mark.parametrize("names", [("a", "b"), tuple("abcdefgh")])
def test_as_many_patterns_as_serve(names: tuple[str, ...]) -> None:
    """If nearly every example has its own pattern, patterns are given up and all are checked one by one."""
    specs = [FeatureSpec(name=name, kind="bytes", required=False) for name in names]
    payloads = [
        example_bytes({name: bytes(200 * (i >> bit & 1)) for bit, name in enumerate(names)}) for i in range(256)
    ]
    _, columns = read(payloads, specs)
    assert (len(names) < 3) == columns.are_read.all()
    assert np.count_nonzero(columns.are_read) >= min(MAX_PATTERNS, 4)
