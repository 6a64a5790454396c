"""Layouts and walks: they read what the protobuf runtime reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shard_validation import ReasonCode as Code
from shard_validation import encode_example
from shard_validation.tfrecord.layout import (
    MIN_WALKED_BYTES,
    Layouts,
    NotPlainError,
    compile_layout,
    compile_walk,
)
from shard_validation.tfrecord.message import example_class
from shared.manifest import FeatureSpec
from tests.support.example_bytes import example_bytes
from tests.support.shards import LABEL, framed, labelled, place, verdict_on

SPECS = (
    LABEL,
    FeatureSpec(name="image", kind="bytes"),
    FeatureSpec(name="box", kind="float", shape=(2,)),
    FeatureSpec(name="classes", kind="int64", shape=(None,)),
    FeatureSpec(name="texts", kind="bytes", shape=(2,), required=False),
    FeatureSpec(name="weight", kind="float", required=False),
)
FEATURES: dict[str, Any] = {
    "label": 3,
    "image": bytes(300),
    "box": [0.5, 2.0],
    "classes": [5, 300],
    "texts": [b"ab", b"c"],
    "x": 9,
}
EXAMPLE = encode_example(FEATURES)
LISTS = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}


def parsed(payload: bytes) -> list[Sequence[object] | None]:
    """Return each feature's values as the runtime reads them; None where it is missing."""
    features = example_class().FromString(payload).features.feature
    return [
        list(getattr(features[spec.name], LISTS[spec.kind]).value) if spec.name in features else None
        for spec in SPECS
    ]


def read(example: bytes, payload: bytes | memoryview) -> list[Any] | None:
    """Return each feature's values by an example's layout."""
    values = compile_layout(example, SPECS)(payload)
    return None if values is None else [None if v is None else list(v) for v in values[: len(SPECS)]]


def walked(payload: bytes | memoryview) -> list[Any] | None:
    """Return each feature's values by walking through the payload."""
    values = compile_walk(SPECS)(payload)
    return None if values is None else [None if v is None else list(v) for v in values]


@given(
    label=st.integers(0, 9),
    image=st.binary(min_size=300, max_size=300),
    box=st.tuples(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False)),
    classes=st.tuples(st.integers(0, 127), st.integers(128, 16_383)),
)
def test_values(label: int, image: bytes, box: tuple[float, float], classes: tuple[int, int]) -> None:
    """Values of any kind equal those of the runtime, from bytes and from a view."""
    payload = encode_example({**FEATURES, "label": label, "image": image, "box": box, "classes": classes})
    assert parsed(payload) == read(EXAMPLE, payload)
    assert parsed(payload) == read(EXAMPLE, memoryview(payload))


@given(
    image=st.binary(max_size=50_000),
    box=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9),
    classes=st.lists(st.integers(0, 1 << 62), min_size=1, max_size=9),
    texts=st.lists(st.binary(max_size=9), min_size=1, max_size=9),
)
def test_values_of_a_walk(image: bytes, box: list[float], classes: list[int], texts: list[bytes]) -> None:
    """Values of any number and size equal those of the runtime, from bytes and from a view."""
    payload = encode_example({**FEATURES, "image": image, "box": box, "classes": classes, "texts": texts})
    assert parsed(payload) == walked(payload)
    assert parsed(payload) == walked(memoryview(payload))


@given(position=st.integers(0, len(EXAMPLE) - 1), byte=st.integers(0, 255), second=st.integers(0, len(EXAMPLE) - 1))
def test_damage(position: int, byte: int, second: int) -> None:
    """A damaged payload is read as the runtime reads it, or left to the runtime."""
    damaged = bytearray(EXAMPLE)
    damaged[position] = byte
    damaged[second] ^= 0x80
    payload = bytes(damaged)
    for values in (read(EXAMPLE, payload), walked(payload)):
        if values is not None:
            assert repr(parsed(payload)) == repr(values)
            assert len(payload) == example_class().FromString(payload).ByteSize()


def test_large_values_are_views() -> None:
    """A large value is not copied."""
    example = encode_example({**FEATURES, "image": bytes(100_000)})
    image = (compile_layout(example, SPECS)(memoryview(example)) or [])[1]
    assert image is not None
    assert (memoryview, bytes(100_000)) == (type(image[0]), bytes(image[0]))


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(EXAMPLE + b"\x78\x00", id="unknown field"),
        pytest.param(EXAMPLE[:-1], id="cut"),
        pytest.param(EXAMPLE + EXAMPLE, id="two examples merged"),
        pytest.param(b"\x0a\x10\x0a\x0e\x12\x06\x1a\x04\x0a\x02\x85\x00\x0a\x05label"[:-1], id="value before name"),
        pytest.param(example_bytes({**FEATURES, "label": 1.0}), id="another kind than stated"),
        pytest.param(example_bytes({"label": 1}), id="required feature missing"),
        pytest.param(encode_example({**FEATURES, "box": [0.5] * 5000}), id="many numbers"),
        pytest.param(encode_example({**FEATURES, "texts": [b"a"] * 100}), id="many values"),
    ],
)
def test_not_plain(payload: bytes) -> None:
    """Payloads that no writer produces, and those not worth it, have no layout and are not walked through."""
    with pytest.raises(NotPlainError):
        compile_layout(payload, SPECS)
    assert walked(payload) is None


def test_negative_integers() -> None:
    """Negative numbers, and encodings with superfluous bytes, are left to the runtime."""
    negative = encode_example({**FEATURES, "classes": [-1]})
    assert read(negative, negative) is None
    longer = EXAMPLE.replace(b"\x05\xac\x02", b"\x85\x00\x02")
    assert len(EXAMPLE) == len(longer)
    assert read(EXAMPLE, longer) is None


@pytest.mark.parametrize("name", [b"\x05label", b"\x01x"])
def test_integer_without_an_end(name: bytes) -> None:
    """An integer without a last byte is left to the runtime, also in a feature that is not needed."""
    position = EXAMPLE.index(name) + len(name) + len(b"\x12\x05\x1a\x03\x0a\x01")
    endless = EXAMPLE[:position] + bytes([EXAMPLE[position] | 0x80]) + EXAMPLE[position + 1 :]
    assert read(EXAMPLE, EXAMPLE) is not None
    assert read(EXAMPLE, endless) is None


def test_a_layout_is_learnt_from_the_second_example() -> None:
    """A layout is learnt when a length appears for the second time."""
    layouts = Layouts(SPECS)
    layouts.learn(EXAMPLE)
    assert {} == layouts.readers
    layouts.learn(EXAMPLE)
    assert [len(EXAMPLE)] == list(layouts.readers)


def test_faults_in_a_known_layout() -> None:
    """The hundredth example of a layout is checked as the first is, and its values are counted."""
    payloads = [labelled(i % 10, image=bytes(50)) for i in range(100)]
    image = FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(50,))
    verdict = verdict_on(framed(payloads), LABEL, image)
    assert {str(i): 10 for i in range(10)} == verdict.statistics.features["label"].histogram
    payloads[70] = labelled(99, image=bytes(50))
    verdict = verdict_on(framed(payloads), LABEL, image)
    assert (Code.VALUE_OUT_OF_RANGE, 70, len(framed(payloads[:70]))) == place(verdict)


def test_size_that_differs_after_many_that_fit() -> None:
    """One raw tensor of another size is found among a hundred."""
    payloads = [labelled(1, image=bytes(50)) for _ in range(100)]
    payloads[60] = labelled(1, image=bytes(49))
    image = FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(50,))
    verdict = verdict_on(framed(payloads), image)
    assert (Code.FEATURE_WRONG_SHAPE, 60, len(framed(payloads[:60]))) == place(verdict)
    assert (99, 50, 50) == (
        verdict.statistics.features["image"].num_present,
        verdict.statistics.features["image"].minimum,
        verdict.statistics.features["image"].maximum,
    )


def test_faults_in_large_examples_of_different_lengths() -> None:
    """Large examples of varying lengths are checked as small ones are, and their values are counted."""
    payloads = [labelled(i % 10, image=bytes(MIN_WALKED_BYTES + i)) for i in range(20)]
    image = FeatureSpec(name="image", kind="bytes")
    statistics = verdict_on(framed(payloads), LABEL, image).statistics.features
    assert {str(i): 2 for i in range(10)} == statistics["label"].histogram
    assert (20, MIN_WALKED_BYTES, MIN_WALKED_BYTES + 19) == (
        statistics["image"].num_present,
        statistics["image"].minimum,
        statistics["image"].maximum,
    )
    payloads[7] = labelled(99, image=bytes(MIN_WALKED_BYTES + 7))
    assert (Code.VALUE_OUT_OF_RANGE, 7, len(framed(payloads[:7]))) == place(
        verdict_on(framed(payloads), LABEL, image)
    )
    payloads[7] = encode_example({"label": 1.0, "image": bytes(MIN_WALKED_BYTES + 7)})
    assert (Code.FEATURE_WRONG_KIND, 7, len(framed(payloads[:7]))) == place(
        verdict_on(framed(payloads), LABEL, image)
    )
