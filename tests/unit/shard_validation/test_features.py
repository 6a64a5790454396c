"""Examples: malformed protobuf, unknown fields, and features against the pipeline's."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from shard_validation import ImagePolicy, Limits, encode_example
from shard_validation import ReasonCode as Code
from shared.manifest import FeatureSpec
from shared.record_framing import frame_record
from tests.support.example_bytes import example_bytes
from tests.support.shards import LABEL, framed, labelled, only_reason, place, verdict_on

SOUND = labelled(3)
SECOND = len(frame_record(SOUND))
FLOATS = FeatureSpec(name="x", kind="float", shape=(3,), minimum=-1, maximum=1)


def field(number: int, wire_type: int, payload: bytes) -> bytes:
    """Return one protobuf field, its number below 16."""
    return bytes([number << 3 | wire_type]) + payload


def sized(payload: bytes) -> bytes:
    """Return bytes with their length as a varint before them."""
    length, head = len(payload), b""
    while length > 0x7F:
        head, length = head + bytes([length & 0x7F | 0x80]), length >> 7
    return head + bytes([length]) + payload


def in_feature(name: bytes, feature: bytes) -> bytes:
    """Return an example with one feature of these bytes."""
    return field(1, 2, sized(field(1, 2, sized(field(1, 2, sized(name)) + field(2, 2, sized(feature))))))


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        pytest.param(b"this is no protobuf", Code.EXAMPLE_NOT_PROTOBUF, id="text"),
        pytest.param(b"\xff" * 20, Code.EXAMPLE_NOT_PROTOBUF, id="endless varint"),
        pytest.param(SOUND[:-1], Code.EXAMPLE_NOT_PROTOBUF, id="cut"),
        pytest.param(field(1, 2, b"\x7f"), Code.EXAMPLE_NOT_PROTOBUF, id="length beyond the end"),
        pytest.param(field(2, 3, b"") * 5000, Code.EXAMPLE_NOT_PROTOBUF, id="groups nested 5000 deep"),
        pytest.param(field(2, 3, b"") + field(3, 4, b""), Code.EXAMPLE_NOT_PROTOBUF, id="group ended by another"),
        pytest.param(field(1, 0, b"\x05"), Code.FEATURE_MISSING, id="wire type of features"),
        pytest.param(field(1, 3, b"") + field(1, 4, b""), Code.FEATURE_MISSING, id="features as a group"),
        pytest.param(in_feature(b"label", field(3, 0, b"\x05")), Code.FEATURE_MISSING, id="wire type of list"),
        pytest.param(in_feature(b"label", b""), Code.FEATURE_MISSING, id="feature without kind"),
        pytest.param(in_feature(b"\xff\xfe", b""), Code.EXAMPLE_NOT_PROTOBUF, id="name that is no UTF-8"),
        pytest.param(in_feature(b"label", field(3, 2, b"\x00")), Code.FEATURE_MISSING, id="empty list"),
        pytest.param(example_bytes({"other": 1}), Code.FEATURE_MISSING, id="feature missing"),
        pytest.param(example_bytes({"label": 1.0}), Code.FEATURE_WRONG_KIND, id="float for int64"),
        pytest.param(example_bytes({"label": b"1"}), Code.FEATURE_WRONG_KIND, id="bytes for int64"),
        pytest.param(example_bytes({"label": [1, 2]}), Code.FEATURE_WRONG_SHAPE, id="two values for one"),
        pytest.param(example_bytes({"label": 10}), Code.VALUE_OUT_OF_RANGE, id="label 10 of 10 classes"),
        pytest.param(example_bytes({"label": (1 << 64) - 1}), Code.VALUE_OUT_OF_RANGE, id="label -1"),
    ],
)
def test_bad_example(payload: bytes, code: Code) -> None:
    """A payload that is not the example that the pipeline states is reported with record and offset."""
    assert (code, 1, SECOND) == place(verdict_on(framed([SOUND, payload, SOUND]), LABEL))


@pytest.mark.parametrize(
    ("values", "code", "seen"),
    [
        ([0.0, 1.0], Code.FEATURE_WRONG_SHAPE, "2 values"),
        ([0.0, math.nan, 0.5], Code.VALUE_NOT_FINITE, "nan at position 1"),
        ([0.0, 0.5, math.inf], Code.VALUE_NOT_FINITE, "inf at position 2"),
        ([-math.inf, math.inf, 0.5], Code.VALUE_NOT_FINITE, "-inf at position 0"),
        ([0.0, 0.5, 1.5], Code.VALUE_OUT_OF_RANGE, "1.5 at position 2"),
        ([-2.0, 0.5, 1.0], Code.VALUE_OUT_OF_RANGE, "-2.0 at position 0"),
    ],
)
def test_bad_numbers(values: list[float], code: Code, seen: str) -> None:
    """The faulty one of several numbers is reported with its position."""
    reason = only_reason(verdict_on(framed([example_bytes({"x": values})]), FLOATS))
    assert (code, "x", seen) == (reason.code, reason.feature, reason.seen)


def test_a_bound_is_shown_with_all_its_digits() -> None:
    """A rounded bound could appear to allow the value that it rejects."""
    spec = FeatureSpec(name="x", kind="int64", minimum=0.5, maximum=1_234_567)
    reason = only_reason(verdict_on(framed([example_bytes({"x": 1_234_568})]), spec))
    assert ("0.5 to 1234567", "1234568") == (reason.expected, reason.seen)


@pytest.mark.parametrize("num_records", [1, 100])
@pytest.mark.parametrize("limits", [{"maximum": 0.1}, {"minimum": 0.7}, {"allowed": (0.1, 0.7)}])
def test_a_limit_admits_the_number_as_which_it_is_stored(num_records: int, limits: dict[str, Any]) -> None:
    """A float of an example has 32 bits: 0.1 is stored as 0.10000000149, and 0.7 as 0.69999998808."""
    spec = FeatureSpec(name="x", kind="float", **limits)
    value = 0.1 if "maximum" in limits else 0.7
    sound, wrong = example_bytes({"x": value}), example_bytes({"x": 0.25 if "maximum" in limits else 0.5})
    assert verdict_on(framed([sound] * num_records), spec).accepted
    verdict = verdict_on(framed([wrong] * num_records), spec)
    assert (num_records, "0.25" if "maximum" in limits else "0.5") == (verdict.num_reasons, verdict.reasons[0].seen)


def test_a_limit_of_raw_numbers_admits_the_number_as_which_it_is_stored() -> None:
    """The same holds for a tensor of 32-bit floats."""
    spec = FeatureSpec(name="x", kind="bytes", encoding="raw", dtype="float32", shape=(2,), maximum=0.1)
    assert verdict_on(framed([example_bytes({"x": struct.pack("<2f", 0.1, 0.1)})]), spec).accepted
    reason = only_reason(verdict_on(framed([example_bytes({"x": struct.pack("<2f", 0.1, 0.2)})]), spec))
    assert ("-inf to 0.1", True) == (reason.expected, reason.seen.endswith("at position 1"))


def test_a_missing_feature_is_reported_with_the_names_that_are_there() -> None:
    """A few of them: the writer sees which name was meant."""
    few = only_reason(verdict_on(framed([example_bytes({"lable": 1, "image": b""})]), LABEL))
    assert "none, but image, lable" == few.seen
    many = example_bytes({f"key{i:02}": 1 for i in range(30)})
    seen = only_reason(verdict_on(framed([many]), LABEL)).seen
    assert seen.endswith("key09 and 20 more")


def test_values_whose_sum_overflows() -> None:
    """Large finite numbers are accepted, also where their sum is infinite."""
    spec = FeatureSpec(name="x", kind="float", shape=(None,))
    assert verdict_on(framed([example_bytes({"x": [3e38] * 1000})]), spec).accepted


@pytest.mark.parametrize(("num_values", "is_accepted"), [(0, True), (6, True), (5, False)])
def test_open_shape(num_values: int, is_accepted: bool) -> None:  # noqa: FBT001
    """A shape with an open size accepts any number of values that fills it, also none."""
    spec = FeatureSpec(name="boxes", kind="float", shape=(None, 3))
    payload = (
        encode_example({"boxes": [0.5] * num_values}) if num_values else in_feature(b"boxes", field(2, 2, b"\0"))
    )
    assert is_accepted == verdict_on(framed([payload]), spec).accepted


def test_allowed_values() -> None:
    """Only the allowed numbers and texts are accepted."""
    color = FeatureSpec(name="color", kind="bytes", encoding="text", allowed=("red", "green"))
    size = FeatureSpec(name="size", kind="int64", allowed=(1, 2))
    verdict = verdict_on(
        framed([encode_example({"color": "red", "size": 2}), encode_example({"color": b"\xff", "size": 3})]),
        color,
        size,
    )
    seen = [(r.code, r.feature, r.record_index) for r in verdict.reasons]
    assert [(Code.VALUE_NOT_ALLOWED, "color", 1), (Code.VALUE_NOT_ALLOWED, "size", 1)] == seen


def test_text_that_is_no_utf8() -> None:
    """A text must be UTF-8."""
    spec = FeatureSpec(name="text", kind="bytes", encoding="text")
    assert Code.TEXT_NOT_UTF8 == only_reason(verdict_on(framed([encode_example({"text": b"a\xff"})]), spec)).code


def test_optional_feature() -> None:
    """An optional feature may be missing, but is checked where it is present."""
    spec = FeatureSpec(name="weight", kind="float", required=False, minimum=0)
    absent, wrong = labelled(1), labelled(1, weight=-1.0)
    verdict = verdict_on(framed([absent, wrong]), LABEL, spec)
    assert (Code.VALUE_OUT_OF_RANGE, 1, len(frame_record(absent))) == place(verdict)


def test_every_feature_at_fault_is_named() -> None:
    """All faults of one example are reported."""
    verdict = verdict_on(framed([example_bytes({"label": 99})]), LABEL, FLOATS)
    assert [Code.VALUE_OUT_OF_RANGE, Code.FEATURE_MISSING] == [r.code for r in verdict.reasons]


@pytest.mark.parametrize(
    ("dtype", "shape", "content", "code"),
    [
        ("uint8", (2, 3), bytes(5), Code.FEATURE_WRONG_SHAPE),
        ("uint8", (2, None), bytes(5), Code.FEATURE_WRONG_SHAPE),
        ("float32", (2,), struct.pack("<2f", 0, math.nan), Code.VALUE_NOT_FINITE),
        ("int32", (2,), struct.pack("<2i", 0, 300), Code.VALUE_OUT_OF_RANGE),
    ],
)
def test_raw_tensors(dtype: str, shape: tuple[int | None, ...], content: bytes, code: Code) -> None:
    """Raw bytes must fill their shape, with finite values in range."""
    spec = FeatureSpec(name="raw", kind="bytes", encoding="raw", dtype=dtype, shape=shape, maximum=255)  # type: ignore[arg-type]
    assert code == only_reason(verdict_on(framed([encode_example({"raw": content})]), spec)).code


def test_ten_megabytes_of_unknown_fields() -> None:
    """10 MB of unknown fields are rejected; a few bytes are accepted."""
    unknown = field(15, 2, sized(b"x" * (10 << 20)))
    assert (Code.EXAMPLE_UNKNOWN_FIELDS, 0, 0) == place(verdict_on(framed([SOUND + unknown]), LABEL))
    assert verdict_on(framed([SOUND + field(15, 2, sized(b"x" * 100))]), LABEL).accepted


@pytest.mark.parametrize(("num_bytes", "is_accepted"), [(64 << 10, True), ((64 << 10) + 1, False)])
def test_a_little_that_is_no_part_of_an_example(num_bytes: int, is_accepted: bool) -> None:  # noqa: FBT001
    """64 KiB of unknown fields, tag and length included, are accepted; one more byte is rejected."""
    unknown = field(15, 2, sized(b"x" * (num_bytes - 4)))
    assert num_bytes == len(unknown)
    assert is_accepted == verdict_on(framed([SOUND + unknown]), LABEL).accepted


def test_sequence_example() -> None:
    """The context of a tf.train.SequenceExample is read as an example; its lists are unknown fields."""
    lists = field(2, 2, sized(field(1, 2, sized(field(1, 2, sized(b"frames"))))))
    assert verdict_on(framed([SOUND + lists]), LABEL).accepted


def test_features_that_are_not_stated() -> None:
    """Features that the pipeline does not state are not unknown fields, whatever their size."""
    assert verdict_on(framed([labelled(1, image=b"x" * (1 << 20))]), LABEL).accepted


def test_example_too_large() -> None:
    """A payload above `max_example_bytes` is rejected without being held; its CRC is still checked."""
    content = framed([labelled(1, image=b"x" * 5000)])
    limits = Limits(max_example_bytes=1000)
    for chunk_bytes in (512, 1 << 20):
        verdict = verdict_on(content, LABEL, limits=limits, chunk_bytes=chunk_bytes)
        assert (Code.EXAMPLE_TOO_LARGE, 0, 0) == place(verdict)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(in_feature(b"label", field(3, 2, sized(field(1, 2, sized(b"\x01" * (3 << 20)))))), id="packed"),
        pytest.param(in_feature(b"label", field(3, 2, sized(b"\x08\x01" * (1 << 20)))), id="unpacked"),
        pytest.param(in_feature(b"label", field(1, 2, sized(b"\x0a\x00" * (1 << 20)))), id="empty texts"),
        pytest.param(field(1, 2, sized(b"\x0a\x00" * (1 << 20))), id="empty features"),
        pytest.param(b"\x0a\x00" * (1 << 20), id="empty examples"),
        pytest.param(b"\x78\x00" * (1 << 20), id="unknown numbers"),
        pytest.param(field(2, 3, b"") * (1 << 20), id="groups"),
    ],
)
def test_values_that_would_swell(payload: bytes) -> None:
    """A payload that would take many times its size in memory is rejected before it is parsed."""
    verdict = verdict_on(framed([payload]), LABEL, limits=Limits(max_parsed_bytes=4 << 20))
    assert (Code.EXAMPLE_TOO_COMPLEX, 0, 0) == place(verdict)


def test_large_sound_payloads() -> None:
    """Large examples of few values are accepted."""
    spec = FeatureSpec(name="x", kind="float", shape=(1_000_000,))
    assert verdict_on(framed([encode_example({"x": [0.5] * 1_000_000})]), spec, images=ImagePolicy()).accepted


def test_records_are_counted_without_features() -> None:
    """Any payload is accepted without features: only integrity is checked."""
    assert verdict_on(framed([b"anything"])).accepted
