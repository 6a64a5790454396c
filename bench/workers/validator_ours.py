"""Landfall's validator, asked by the validator benchmark: framing and CRC, or with the schema of its records."""

from __future__ import annotations

from pathlib import Path

from bench.workers.timed import serve
from shard_validation import DataRequirements, ImagePolicy, LocalFileSource, validate_shard
from shared.example_schema import FeatureSpec

LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)


def framing(path: str) -> int:
    """Check both CRCs of every record, and take the CRC of the content."""
    return _validate(path, None)


def schema(path: str, size: int, encoding: str) -> int:
    """The same, and every example against two features."""
    if encoding == "raw":
        image = FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(size,))
    elif encoding == "varied":
        image = FeatureSpec(name="image", kind="bytes")
    else:
        image = FeatureSpec(name="image", kind="bytes", encoding="jpeg")
    return _validate(path, DataRequirements(features=(image, LABEL), images=ImagePolicy(decode="header")))


def _validate(path: str, requirements: DataRequirements | None) -> int:
    with LocalFileSource(Path(path)) as source:
        verdict = validate_shard(source, requirements)
    if not verdict.accepted:
        raise ValueError(f"{path} should be accepted: {verdict.reasons[:1]}")
    return verdict.num_records


if __name__ == "__main__":
    serve({"framing": framing, "schema": schema})
