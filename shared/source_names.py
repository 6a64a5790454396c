"""The names of the files that `landfall pack` wrote into each shard, in dataset.json: for messages about records.

The file comes with the data and may say anything, so a shard's names count only beside the checksum of the content
that the shard really has, and they are bounded and escaped before they are shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from shared.safe_text import shown

DATASET_FILE = "dataset.json"
SOURCES = "sources"
"""Member of a shard in the file: a name for each record, in the order of the records."""
MAX_SOURCE_CHARS = 200
MAX_SOURCES_BYTES = 8 << 20
"""All names of a version together, as they stand in the file; shards beyond that have none."""
MAX_FILE_BYTES = 16 << 20
"""A larger file is not searched for names: parsed, it may take twenty times its size."""

_LINE_BYTES = 10
"""Indent, comma and line end of a name in the file."""


def bounded_sources(names: Sequence[str], budget_bytes: int) -> tuple[list[str], int]:
    """Return a shard's names for dataset.json, and their size in it; no names where they exceed the budget.

    Of a long name the end is kept, which tells one file from another.
    """
    kept = [name if len(name) <= MAX_SOURCE_CHARS else f"…{name[1 - MAX_SOURCE_CHARS :]}" for name in names]
    size = sum(len(json.dumps(name)) + _LINE_BYTES for name in kept)
    return (kept, size) if size <= budget_bytes else ([], 0)


def read_sources(content: bytes, *, shard: str, crc32c: str) -> list[str]:
    """Return the names of a shard's records, as dataset.json has them; none where it does not know this content."""
    if len(content) > MAX_FILE_BYTES:
        return []
    try:
        splits = json.loads(content)["splits"].values()
        members = next(s for split in splits for s in split["shards"] if s["name"] == shard)
        sources = members[SOURCES] if members["crc32c"] == crc32c else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StopIteration):
        return []
    return sources if isinstance(sources, list) else []


def packed_from(sources: Sequence[object], record: int) -> str:
    """Return the words that say what a record was packed from; empty if that is not known."""
    name = sources[record] if 0 <= record < len(sources) else None
    return f"packed from {shown(name)}" if isinstance(name, str) and name else ""
