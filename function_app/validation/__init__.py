"""Validation of shards and of sets of shards: pure functions over bytes, without Azure and without TensorFlow.

Start with `validate_shard`; docs/validation.md has the table of reason codes.
"""

from __future__ import annotations

from function_app.validation.counts import COUNT_FILES, MAX_COUNTS_BYTES, CountsError, StatedCounts, read_counts
from function_app.validation.drift import Drift, DriftMeasure, VersionStatistics, measure_drift
from function_app.validation.example_message import encode_example
from function_app.validation.limits import Limits
from function_app.validation.names import check_name
from function_app.validation.reason_codes import MEANINGS, ReasonCode
from function_app.validation.reasons import Reason
from function_app.validation.requirements import (
    CountsPolicy,
    DataRequirements,
    DecodePolicy,
    DriftAction,
    DriftPolicy,
    ImagePolicy,
)
from function_app.validation.sets import check_set
from function_app.validation.sources import (
    LocalFileSource,
    ShardSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
)
from function_app.validation.statistics import FeatureStatistics, ShardStatistics, merge_statistics
from function_app.validation.validate import validate_shard, validate_shard_within
from function_app.validation.verdicts import Paused, ShardVerdict

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
