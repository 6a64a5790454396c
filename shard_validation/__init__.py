"""Validation of shards and of sets of shards: pure functions over bytes, without Azure and without TensorFlow.

Start with `validate_shard`; docs/validation.md has the table of reason codes.
"""

from __future__ import annotations

from shard_validation.counts import COUNT_FILES, MAX_COUNTS_BYTES, CountsError, StatedCounts, read_counts
from shard_validation.drift import Drift, DriftMeasure, VersionStatistics, measure_drift
from shard_validation.example_message import encode_example
from shard_validation.limits import Limits
from shard_validation.names import check_name
from shard_validation.reason_codes import MEANINGS, ReasonCode
from shard_validation.reasons import Reason
from shard_validation.requirements import (
    CountsPolicy,
    DataRequirements,
    DecodePolicy,
    DriftAction,
    DriftPolicy,
    ImagePolicy,
)
from shard_validation.sets import check_set
from shard_validation.sources import (
    LocalFileSource,
    ShardSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
)
from shard_validation.statistics import FeatureStatistics, ShardStatistics, merge_statistics
from shard_validation.validate import validate_shard, validate_shard_within
from shard_validation.verdicts import Paused, ShardVerdict

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
