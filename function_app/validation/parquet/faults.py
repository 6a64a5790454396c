"""A fault of a Parquet shard, on its way to whoever reports it."""

from __future__ import annotations

from function_app.validation.reason_codes import ReasonCode
from function_app.validation.reasons import Fault


class ParquetFaultError(ValueError):
    """What is wrong, and where in the file."""

    def __init__(
        self, code: ReasonCode, expected: str, seen: str, byte_offset: int | None = None, feature: str | None = None
    ) -> None:
        super().__init__(f"should be {expected}, was {seen}")
        self.fault = Fault(code=code, expected=expected, seen=seen, feature=feature)
        self.byte_offset = byte_offset
