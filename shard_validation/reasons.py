"""Why a shard or a dataset version is rejected: the stable reason codes, and one reason with its place.

The table in ``docs/validation.md`` shows `MEANINGS`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.safe_text import shown


class ReasonCode(StrEnum):
    """Stable names: they are stored in the ledger and printed by the command line; never rename one."""

    # the file
    EMPTY_FILE = "empty_file"
    NOT_A_SHARD = "not_a_shard"
    NAME_NOT_UNDERSTOOD = "name_not_understood"
    NAME_CONTRADICTS_CONTENT = "name_contradicts_content"
    WRONG_FORMAT = "wrong_format"
    SHARD_TOO_LARGE = "shard_too_large"
    NO_RECORDS = "no_records"
    VALIDATION_TOO_LONG = "validation_too_long"
    VALIDATION_INTERRUPTED = "validation_interrupted"
    DIFFERS_FROM_LIST = "differs_from_list"
    # the source
    SOURCE_CHANGED = "source_changed"
    SOURCE_GONE = "source_gone"
    SOURCE_FORBIDDEN = "source_forbidden"
    SOURCE_UNAVAILABLE = "source_unavailable"
    # TFRecord framing
    HEADER_CUT = "header_cut"
    LENGTH_CRC = "length_crc"
    RECORD_TOO_LONG = "record_too_long"
    RECORD_EMPTY = "record_empty"
    PAYLOAD_CUT = "payload_cut"
    TRAILER_CUT = "trailer_cut"
    PAYLOAD_CRC = "payload_crc"
    TRAILING_BYTES = "trailing_bytes"
    # compression
    COMPRESSION_CUT = "compression_cut"
    COMPRESSION_CORRUPT = "compression_corrupt"
    COMPRESSION_BOMB = "compression_bomb"
    # examples
    EXAMPLE_NOT_PROTOBUF = "example_not_protobuf"
    EXAMPLE_TOO_LARGE = "example_too_large"
    EXAMPLE_TOO_COMPLEX = "example_too_complex"
    EXAMPLE_UNKNOWN_FIELDS = "example_unknown_fields"
    # features
    FEATURE_MISSING = "feature_missing"
    FEATURE_WRONG_KIND = "feature_wrong_kind"
    FEATURE_WRONG_SHAPE = "feature_wrong_shape"
    VALUE_OUT_OF_RANGE = "value_out_of_range"
    VALUE_NOT_ALLOWED = "value_not_allowed"
    VALUE_NOT_FINITE = "value_not_finite"
    TEXT_NOT_UTF8 = "text_not_utf8"
    # images
    IMAGE_WRONG_ENCODING = "image_wrong_encoding"
    IMAGE_CORRUPT = "image_corrupt"
    IMAGE_TRUNCATED = "image_truncated"
    IMAGE_TOO_LARGE = "image_too_large"
    # Parquet
    PARQUET_NO_FOOTER = "parquet_no_footer"
    PARQUET_FOOTER_LENGTH = "parquet_footer_length"
    PARQUET_FOOTER_CORRUPT = "parquet_footer_corrupt"
    PARQUET_ENCRYPTED = "parquet_encrypted"
    PARQUET_TOO_COMPLEX = "parquet_too_complex"
    PARQUET_PAGE_TOO_LARGE = "parquet_page_too_large"
    PARQUET_PAGE_CUT = "parquet_page_cut"
    PARQUET_PAGE_CORRUPT = "parquet_page_corrupt"
    PARQUET_PAGE_CRC = "parquet_page_crc"
    PARQUET_ROWS_DIFFER = "parquet_rows_differ"
    # the set
    SET_NAMES_COLLIDE = "set_names_collide"
    SET_SIZE_CONTRADICTORY = "set_size_contradictory"
    SET_SHARD_MISSING = "set_shard_missing"
    SET_SHARD_GONE = "set_shard_gone"
    SET_SPLIT_MISSING = "set_split_missing"
    SET_SAME_CONTENT = "set_same_content"
    SET_EMPTY_SHARD = "set_empty_shard"
    SET_SMALL_SHARD = "set_small_shard"
    SET_FORMATS_MIXED = "set_formats_mixed"
    SET_COUNT_DIFFERS = "set_count_differs"
    SET_COUNTS_UNREADABLE = "set_counts_unreadable"
    DRIFT_LABELS = "drift_labels"
    DRIFT_COUNT = "drift_count"


_C = ReasonCode
MEANINGS: Mapping[ReasonCode, str] = {
    _C.EMPTY_FILE: "The file has no bytes.",
    _C.NOT_A_SHARD: "The content is neither TFRecord (plain, GZIP, ZLIB) nor Parquet; `seen` says what it is.",
    _C.NAME_NOT_UNDERSTOOD: "The file name is not a shard name, or its index is not below the N of `-of-N`.",
    _C.NAME_CONTRADICTS_CONTENT: "The name promises another format or compression than the content has.",
    _C.WRONG_FORMAT: "The content is a shard, but not in the format that the pipeline requires.",
    _C.SHARD_TOO_LARGE: "The file is larger than the pipeline's `max_shard_bytes`.",
    _C.NO_RECORDS: "The shard is well formed but has no records.",
    _C.VALIDATION_TOO_LONG: "A compressed stream or row group, which cannot pause, takes longer than one execution.",
    _C.VALIDATION_INTERRUPTED: "Several executions in a row were killed or failed at the same place in the shard.",
    _C.DIFFERS_FROM_LIST: "The list of the version's files states another size, checksum or record count for it.",
    _C.SOURCE_CHANGED: "The shard was overwritten while it was read. Not a verdict: the new content is validated.",
    _C.SOURCE_GONE: "The shard was deleted before it could be read.",
    _C.SOURCE_FORBIDDEN: "Reading the shard is not allowed: it was made private, or the role is missing.",
    _C.SOURCE_UNAVAILABLE: "The storage did not answer, or answered with too few bytes. Trying again may help.",
    _C.HEADER_CUT: "The file ends within a record's 12 header bytes.",
    _C.LENGTH_CRC: "A record's length does not match its CRC; the records after it cannot be found.",
    _C.RECORD_TOO_LONG: "A record claims more bytes than `max_record_bytes`.",
    _C.RECORD_EMPTY: "A record has no bytes, so it holds no example.",
    _C.PAYLOAD_CUT: "The file ends within a record's payload.",
    _C.TRAILER_CUT: "The file ends within the 4 bytes that follow a record's payload.",
    _C.PAYLOAD_CRC: "A record's payload does not match its CRC.",
    _C.TRAILING_BYTES: "Bytes follow the last record, or the end of a compressed stream.",
    _C.COMPRESSION_CUT: "The GZIP or ZLIB stream is cut off.",
    _C.COMPRESSION_CORRUPT: "The GZIP or ZLIB stream cannot be inflated, or its checksum is wrong.",
    _C.COMPRESSION_BOMB: "The stream inflates to more than the limits allow.",
    _C.EXAMPLE_NOT_PROTOBUF: "A payload is not a serialized `tf.train.Example`.",
    _C.EXAMPLE_TOO_LARGE: "A payload is larger than `max_example_bytes`, the limit for parsing.",
    _C.EXAMPLE_TOO_COMPLEX: "A parsed payload would take more memory than `max_parsed_bytes`.",
    _C.EXAMPLE_UNKNOWN_FIELDS: "A payload has more than `max_unknown_bytes` of fields that an example does not have.",
    _C.FEATURE_MISSING: "A required feature or column is missing or has no value.",
    _C.FEATURE_WRONG_KIND: "A feature has another kind (int64, float, bytes) than the pipeline states.",
    _C.FEATURE_WRONG_SHAPE: "The number of values, or an image's dimensions, differ from what the pipeline states.",
    _C.VALUE_OUT_OF_RANGE: "A value is below `minimum` or above `maximum`.",
    _C.VALUE_NOT_ALLOWED: "A value is not among the `allowed` ones.",
    _C.VALUE_NOT_FINITE: "A value is NaN or infinite.",
    _C.TEXT_NOT_UTF8: "A text feature is not UTF-8.",
    _C.IMAGE_WRONG_ENCODING: "The bytes are not the JPEG or PNG that the pipeline states.",
    _C.IMAGE_CORRUPT: "The image's header or data cannot be decoded.",
    _C.IMAGE_TRUNCATED: "The image is cut off.",
    _C.IMAGE_TOO_LARGE: "The header states more pixels than the limits allow to decode.",
    _C.PARQUET_NO_FOOTER: "The file begins as Parquet but does not end as Parquet: it is cut off.",
    _C.PARQUET_FOOTER_LENGTH: "The footer's stated length is zero, or larger than the file or the limit.",
    _C.PARQUET_FOOTER_CORRUPT: "The footer cannot be read, or points outside the file.",
    _C.PARQUET_ENCRYPTED: "The file or a column is encrypted.",
    _C.PARQUET_TOO_COMPLEX: "More columns, row groups, pages or nested values than the limits allow.",
    _C.PARQUET_PAGE_TOO_LARGE: "A page, or a value in a page that is read in pieces, exceeds `max_page_bytes`.",
    _C.PARQUET_PAGE_CUT: "A page reaches beyond its column chunk or the file.",
    _C.PARQUET_PAGE_CORRUPT: "A page cannot be decompressed or decoded.",
    _C.PARQUET_PAGE_CRC: "A page's bytes do not match the checksum in its header.",
    _C.PARQUET_ROWS_DIFFER: "A column has another number of rows than the footer states.",
    _C.SET_NAMES_COLLIDE: "Two files have the same index in the same split.",
    _C.SET_SIZE_CONTRADICTORY: "Shards of one split disagree about the N of `-of-N`.",
    _C.SET_SHARD_GONE: "A shard was accepted and then deleted, before a training on it was submitted.",
    _C.SET_SHARD_MISSING: "A split lacks an index.",
    _C.SET_SPLIT_MISSING: "A split that the pipeline requires has no shards.",
    _C.SET_SAME_CONTENT: "Two shards have the same bytes.",
    _C.SET_EMPTY_SHARD: "A shard has no records.",
    _C.SET_SMALL_SHARD: "Only a warning: a shard is far smaller than the others of its split (`small_shard_ratio`).",
    _C.SET_FORMATS_MIXED: "The shards have more than one format or compression.",
    _C.SET_COUNT_DIFFERS: "A record count differs from `dataset.json` or `dataset_info.json`.",
    _C.SET_COUNTS_UNREADABLE: "`dataset.json` or `dataset_info.json` cannot be read, or is required and missing.",
    _C.DRIFT_LABELS: "The label distribution differs from that of the current model's training data.",
    _C.DRIFT_COUNT: "The number of records changed by more than the pipeline allows.",
}
"""One sentence for each code."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a shard, or a set of shards, is rejected."""

    code: ReasonCode
    shard: str
    message: str
    """One sentence for a person, complete without the other fields."""
    record_index: int | None = None
    """Counts from 0 (Parquet: row); None if the fault belongs to no record."""
    byte_offset: int | None = None
    """Where the record begins in the file; in a compressed shard, where it begins in the inflated content."""
    feature: str | None = None
    expected: str = ""
    seen: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        return {
            "code": str(self.code),
            "shard": self.shard,
            "record_index": self.record_index,
            "byte_offset": self.byte_offset,
            "feature": self.feature,
            "expected": self.expected,
            "seen": self.seen,
            "message": self.message,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Reason:
        """Read what `to_json` wrote. Raises ValueError for an unknown code, KeyError for a missing member."""
        return cls(
            code=ReasonCode(members["code"]),
            shard=members["shard"],
            record_index=members["record_index"],
            byte_offset=members["byte_offset"],
            feature=members["feature"],
            expected=members["expected"],
            seen=members["seen"],
            message=members["message"],
        )


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a check finds; the caller adds the shard and the record."""

    code: ReasonCode
    expected: str
    seen: str
    feature: str | None = None

    def at(self, shard: str, *, record_index: int | None = None, byte_offset: int | None = None) -> Reason:
        """Return the fault as a reason, with its place."""
        place = shown(shard)
        if record_index is not None:
            place += f", record {record_index}"
        if byte_offset is not None:
            place += f" at byte {byte_offset}"
        if self.feature is not None:
            place += f", feature {shown(self.feature)}"
        return Reason(
            code=self.code,
            shard=shard,
            record_index=record_index,
            byte_offset=byte_offset,
            feature=self.feature,
            expected=shown(self.expected),
            seen=shown(self.seen),
            message=f"{place}: expected {shown(self.expected)}, got {shown(self.seen)}",
        )


class FaultError(ValueError):
    """Reading an image, a compressed stream or a Parquet file cannot continue; `fault` says why."""

    def __init__(
        self, code: ReasonCode, expected: str, seen: str, byte_offset: int | None = None, feature: str | None = None
    ) -> None:
        super().__init__(f"expected {expected}, got {seen}")
        self.fault = Fault(code=code, expected=expected, seen=seen, feature=feature)
        self.byte_offset = byte_offset
        """Position in the file as it is stored."""
