"""The value of a bytes feature: an image, a raw tensor, a text, or anything."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Literal

from shard_validation.image_decoding import decode_image
from shard_validation.images import ImageFaultError, ImageHeader, describe_content, read_image_header
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.statistics import FeatureStatistics
from shared.example_schema import FeatureSpec

BytesCheck = Callable[[bytes | memoryview, int], Fault | None]
"""Takes the value, which may be a view of the payload, and the record's index."""

_ItemFormat = Literal["B", "i", "q", "f"]
_ITEM_FORMATS: dict[str, _ItemFormat] = {"uint8": "B", "int32": "i", "int64": "q", "float32": "f"}
MAX_LABEL_BYTES = 64
"""Longer texts are not counted in the histogram."""


def compile_bytes_check(
    spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics
) -> BytesCheck:
    """Return a check of one value, of what the pipeline says that the bytes are."""
    if spec.encoding in {"jpeg", "png", "image"}:
        return _compile_image(spec, requirements, statistics)
    if spec.encoding == "raw":
        return _compile_raw(spec, statistics)
    return _compile_plain(spec, statistics)


def _compile_image(spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics) -> BytesCheck:
    limits, images = requirements.limits, requirements.images
    wanted = {"jpeg": "JPEG", "png": "PNG"}.get(spec.encoding or "")
    every = {"header": 0, "all": 1, "sample": images.sample_every}[images.decode]

    def check(content: bytes | memoryview, index: int) -> Fault | None:
        try:
            header = read_image_header(content)
        except ImageFaultError as error:
            return _named(spec, error.fault)
        fault = _check_header(spec, content, header, wanted, limits.max_image_pixels)
        if fault is None and every and index % every == 0:
            fault = _decode(bytes(content), header, limits.max_decoded_image_bytes)
        if fault is not None:
            return _named(spec, fault)
        statistics.num_present += 1
        statistics.count(f"{header.width}x{header.height}x{header.channels}")
        statistics.widen(len(content), len(content))
        return None

    return check


def _named(spec: FeatureSpec, fault: Fault) -> Fault:
    return Fault(code=fault.code, feature=spec.name, expected=fault.expected, seen=fault.seen)


def _check_header(
    spec: FeatureSpec, content: bytes | memoryview, header: ImageHeader, wanted: str | None, max_pixels: int
) -> Fault | None:
    if wanted is not None and header.image_format != wanted:
        return Fault(code=ReasonCode.IMAGE_WRONG_ENCODING, expected=f"{wanted} bytes", seen=describe_content(content))
    if header.width * header.height > max_pixels:
        return Fault(
            code=ReasonCode.IMAGE_TOO_LARGE,
            expected=f"at most {max_pixels} pixels (limits.max_image_pixels)",
            seen=f"{header.width} x {header.height}",
        )
    seen = (header.height, header.width, header.channels)
    if spec.shape and not _matches(spec.shape, seen):
        return Fault(
            code=ReasonCode.FEATURE_WRONG_SHAPE,
            expected="height x width x channels " + " x ".join("any" if d is None else str(d) for d in spec.shape),
            seen=" x ".join(map(str, seen)),
        )
    return None


def _matches(shape: tuple[int | None, ...], seen: tuple[int, ...]) -> bool:
    return len(shape) <= len(seen) and all(d is None or d == s for d, s in zip(shape, seen, strict=False))


def _decode(content: bytes, header: ImageHeader, max_bytes: int) -> Fault | None:
    if header.decoded_bytes > max_bytes:
        return Fault(
            code=ReasonCode.IMAGE_TOO_LARGE,
            expected=f"at most {max_bytes} bytes to decode (limits.max_decoded_image_bytes)",
            seen=f"{header.decoded_bytes} for {header.width} x {header.height}",
        )
    return decode_image(content, header)


def _compile_raw(spec: FeatureSpec, statistics: FeatureStatistics) -> BytesCheck:
    item_format = _ITEM_FORMATS[spec.dtype or "uint8"]
    item_bytes = struct.calcsize(item_format)
    known = math.prod(d for d in spec.shape if d is not None) * item_bytes
    is_open = None in spec.shape or not spec.shape
    has_range = spec.minimum is not None or spec.maximum is not None
    is_looked_into = has_range or item_format == "f"
    last_sound_size = -1

    def check(content: bytes | memoryview, _: int) -> Fault | None:
        nonlocal last_sound_size
        size = len(content)
        if size == last_sound_size and not is_looked_into:
            statistics.num_present += 1
            return None
        if size != known and not (is_open and known and size % known == 0):
            return Fault(
                code=ReasonCode.FEATURE_WRONG_SHAPE,
                feature=spec.name,
                expected=f"{'a multiple of ' if is_open else ''}{known} bytes ({spec.dtype} {list(spec.shape)})",
                seen=f"{size} bytes",
            )
        if content and is_looked_into and (fault := _raw_range(spec, content, item_format)):
            return fault
        statistics.num_present += 1
        statistics.widen(size, size)
        last_sound_size = size
        return None

    return check


def _raw_range(spec: FeatureSpec, content: bytes | memoryview, item_format: _ItemFormat) -> Fault | None:
    values = memoryview(content).cast(item_format)
    if item_format == "f" and not math.isfinite(sum(values)):
        position = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
        if position is not None:
            seen = f"{values[position]} at position {position}"
            return Fault(code=ReasonCode.VALUE_NOT_FINITE, feature=spec.name, expected="finite", seen=seen)
    low = -math.inf if spec.minimum is None else spec.minimum
    high = math.inf if spec.maximum is None else spec.maximum
    if min(values) < low or max(values) > high:
        position = next(i for i, v in enumerate(values) if not low <= v <= high)
        return Fault(
            code=ReasonCode.VALUE_OUT_OF_RANGE,
            feature=spec.name,
            expected=f"{low:g} to {high:g}",
            seen=f"{values[position]} at position {position}",
        )
    return None


def _compile_plain(spec: FeatureSpec, statistics: FeatureStatistics) -> BytesCheck:
    allowed = frozenset(str(a).encode() for a in spec.allowed)
    is_text = spec.encoding == "text" or bool(allowed)

    def check(content: bytes | memoryview, _: int) -> Fault | None:
        content = bytes(content) if is_text else content
        if allowed and content not in allowed:
            seen = ascii(content[:MAX_LABEL_BYTES])
            return Fault(
                code=ReasonCode.VALUE_NOT_ALLOWED,
                feature=spec.name,
                expected=f"one of {list(spec.allowed)}",
                seen=seen,
            )
        if is_text and (fault := _check_text(spec, bytes(content), statistics)):
            return fault
        statistics.num_present += 1
        statistics.widen(len(content), len(content))
        return None

    return check


def _check_text(spec: FeatureSpec, content: bytes, statistics: FeatureStatistics) -> Fault | None:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        seen = f"byte {content[error.start]:02x} at position {error.start}"
        return Fault(code=ReasonCode.TEXT_NOT_UTF8, feature=spec.name, expected="UTF-8", seen=seen)
    if len(content) <= MAX_LABEL_BYTES:
        statistics.count(text)
    return None
