"""A reason: what is wrong, where exactly, what was expected and what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shard_validation.reason_codes import ReasonCode

MAX_TEXT_CHARS = 200
"""Of `expected`, `seen` and `message`: what a hostile file says must not fill the ledger."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a shard (or a set of shards) is rejected."""

    code: ReasonCode
    shard: str
    message: str
    """One sentence for a person; complete without the other fields."""
    record_index: int | None = None
    """0 for the first record (Parquet: row); None where the fault belongs to no record."""
    byte_offset: int | None = None
    """Where the record begins in the file, and in compressed shards where it begins in the inflated content."""
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
    """What a check finds; it knows neither the shard nor the record it looks at."""

    code: ReasonCode
    expected: str
    seen: str
    feature: str | None = None

    def at(self, shard: str, *, record_index: int | None = None, byte_offset: int | None = None) -> Reason:
        """Return the reason, with its place."""
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
            message=f"{place}: should be {shown(self.expected)}, was {shown(self.seen)}",
        )


def shown(text: str) -> str:
    """Return text fit for one line of a terminal: bounded, and without control characters."""
    cut = text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
