"""A fault of a Parquet shard, on its way to whoever reports it."""

from __future__ import annotations

from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault


class ParquetFaultError(ValueError):
    """What is wrong, and where in the file."""

    def __init__(
        self, code: ReasonCode, expected: str, seen: str, byte_offset: int | None = None, feature: str | None = None
    ) -> None:
        super().__init__(f"should be {expected}, was {seen}")
        self.fault = Fault(code=code, expected=expected, seen=seen, feature=feature)
        self.byte_offset = byte_offset


class OutOfTimeError(ParquetFaultError):
    """A row group takes longer than one execution may, and cannot be paused: nothing behind it is looked at."""

    def __init__(self, row_group: int, num_rows: int, byte_offset: int, feature: str) -> None:
        super().__init__(
            ReasonCode.VALIDATION_TOO_LONG,
            "row groups that are read within one execution: write smaller ones",
            f"row group {row_group} of {num_rows} rows",
            byte_offset,
            feature,
        )
