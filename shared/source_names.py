"""Names of the files that `landfall pack` wrote into each shard, for messages about records.

The names are in dataset.json, which comes with the data and is not trusted. A shard's names are used only if the
file also has the checksum of the shard's actual content, and they are bounded and escaped before they are shown.
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
"""Maximum size of a version's names in the file; further shards have no names."""
MAX_FILE_BYTES = 16 << 20
"""Larger files are not searched for names, because parsing may take twenty times the size in memory."""

_LINE_BYTES = 10
"""Bytes for indent, comma and line end of a name in the file."""


def bounded_sources(names: Sequence[str], budget_bytes: int) -> tuple[list[str], int]:
    """Return a shard's names for dataset.json, and their size in it; no names if they exceed the budget.

    Only the end of a long name is kept, which distinguishes files.
    """
    kept = [name if len(name) <= MAX_SOURCE_CHARS else f"…{name[1 - MAX_SOURCE_CHARS :]}" for name in names]
    size = sum(len(json.dumps(name)) + _LINE_BYTES for name in kept)
    return (kept, size) if size <= budget_bytes else ([], 0)


def read_sources(content: bytes, *, shard: str, crc32c: str) -> list[str]:
    """Return the names of a shard's records from dataset.json; empty if it does not have this content."""
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
    """Return a phrase with the file from which a record was packed; empty if unknown."""
    name = sources[record] if 0 <= record < len(sources) else None
    return f"packed from {shown(name)}" if isinstance(name, str) and name else ""
