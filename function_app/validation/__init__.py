"""Validation of shards and of sets of shards: pure functions over bytes, without Azure and without TensorFlow.

Start with `validate_shard`; docs/validation.md has the table of reason codes.
"""

from __future__ import annotations

from function_app.validation.example_message import encode_example
from function_app.validation.limits import Limits
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
    "MEANINGS",
    "CountsPolicy",
    "DataRequirements",
    "DecodePolicy",
    "DriftAction",
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
    "encode_example",
    "merge_statistics",
    "validate_shard",
    "validate_shard_within",
]
