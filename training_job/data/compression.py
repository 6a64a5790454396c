"""How a shard is compressed: by content, as validation judged it, for a name may lack its suffix."""

from __future__ import annotations

from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"


def is_gzip(path: Path) -> bool:
    """Return whether a shard is compressed with GZIP. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
