"""Validation of shards and of sets of shards, without Azure and without TensorFlow.

    from pathlib import Path
    from shard_validation import DataRequirements, LocalFileSource, validate_shard

    with LocalFileSource(Path("train-00000-of-00008.tfrecord")) as source:
        verdict = validate_shard(source, DataRequirements())  # without features: the integrity of the file
    print(verdict.accepted, verdict.num_records, [reason.message for reason in verdict.reasons])

docs/validation.md describes what is checked, and every reason code.
"""

from __future__ import annotations

from shard_validation.content import (
    HeldSource,
    LocalFileSource,
    ShardSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
    check_name,
)
from shard_validation.drift import Drift, DriftMeasure, measure_drift
from shard_validation.reasons import MEANINGS, Reason, ReasonCode
from shard_validation.requirements import (
    CountsPolicy,
    DataRequirements,
    DecodePolicy,
    DriftAction,
    DriftPolicy,
    ImagePolicy,
    Limits,
)
from shard_validation.sets import (
    COUNT_FILES,
    MAX_COUNTS_BYTES,
    CountsError,
    StatedCounts,
    VersionStatistics,
    check_set,
    merge_statistics,
    read_counts,
)
from shard_validation.tfrecord.message import encode_example
from shard_validation.validate import (
    FeatureStatistics,
    Paused,
    ShardStatistics,
    ShardVerdict,
    validate_shard,
    validate_shard_within,
)

__all__ = [
    "COUNT_FILES",
    "MAX_COUNTS_BYTES",
    "MEANINGS",
    "CountsError",
    "CountsPolicy",
    "DataRequirements",
    "DecodePolicy",
    "Drift",
    "DriftAction",
    "DriftMeasure",
    "DriftPolicy",
    "FeatureStatistics",
    "HeldSource",
    "ImagePolicy",
    "Limits",
    "LocalFileSource",
    "Paused",
    "Reason",
    "ReasonCode",
    "ShardSource",
    "ShardStatistics",
    "ShardVerdict",
    "SourceChangedError",
    "SourceError",
    "SourceForbiddenError",
    "SourceGoneError",
    "SourceUnavailableError",
    "StatedCounts",
    "VersionStatistics",
    "check_name",
    "check_set",
    "encode_example",
    "measure_drift",
    "merge_statistics",
    "read_counts",
    "validate_shard",
    "validate_shard_within",
]
