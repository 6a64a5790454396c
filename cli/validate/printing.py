"""What people and programs get to read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cli.readable import readable_bytes
from cli.validate.judging import Judged
from shard_validation import Reason
from shard_validation.reasons import shown

MAX_LISTED = 10
"""Reasons of one shard that people get to read; programs get more of them."""


def as_json(judged: Judged, *, with_statistics: bool = False) -> str:
    """Return one line for one shard."""
    verdict = judged.verdict
    members: dict[str, Any] = {
        "shard": judged.shard.label,
        "verdict": "accepted" if judged.accepted else "rejected",
        "num_records": verdict.num_records if verdict else 0,
        "size_bytes": verdict.size_bytes if verdict else 0,
        "crc32c": verdict.crc32c if verdict else None,
        "reasons": [_reason(r) for r in judged.reasons],
        "num_reasons": verdict.num_reasons if verdict else 1,
        "data_format": verdict.data_format if verdict else None,
        "compression": verdict.compression if verdict else "",
    }
    if with_statistics:
        members["statistics"] = verdict.statistics.to_json() if verdict else None
    return json.dumps(members)


def set_as_json(reasons: Sequence[Reason]) -> str:
    """Return the line for all shards together."""
    members = {
        "set": True,
        "verdict": "rejected" if reasons else "accepted",
        "reasons": [r.to_json() for r in reasons],
    }
    return json.dumps(members)


def as_text(judged: Judged) -> str:
    """Return some lines for one shard: the verdict, then the reasons."""
    verdict = judged.verdict
    if verdict is None:
        return f"UNREADABLE  {shown(judged.shard.label)}\n{_listed(judged.reasons)}"
    what = " ".join(filter(None, (verdict.data_format, verdict.compression))) or "no shard"
    facts = f"{verdict.num_records:,} records, {readable_bytes(verdict.size_bytes)}, {what}, CRC32C {verdict.crc32c}"
    if verdict.accepted:
        return f"accepted    {shown(judged.shard.label)}  ({facts})"
    listed = judged.reasons[:MAX_LISTED]
    more = verdict.num_reasons - len(listed)
    rest = f"\n  … and {more:,} more" if more else ""
    return f"REJECTED    {shown(judged.shard.label)}  ({facts})\n{_listed(listed)}{rest}"


def set_as_text(reasons: Sequence[Reason]) -> str:
    """Return some lines for all shards together."""
    if not reasons:
        return "accepted    all shards together"
    return f"REJECTED    all shards together\n{_listed(reasons)}"


def summary(every: Sequence[Judged]) -> str:
    """Return the last line."""
    num_accepted = sum(judged.accepted for judged in every)
    num_bytes = sum(judged.verdict.size_bytes for judged in every if judged.verdict)
    return f"{num_accepted} of {len(every)} shards accepted, {readable_bytes(num_bytes)} read"


def _listed(reasons: Sequence[Reason]) -> str:
    return "\n".join(f"  {r.code}: {r.message}" for r in reasons)


def _reason(reason: Reason) -> dict[str, Any]:
    members = reason.to_json()
    del members["shard"]
    return members
