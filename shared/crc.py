"""CRC32C of a file's content, as manifests state it."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

_CHUNK_BYTES = 4 << 20


def crc32c_of_file(path: Path) -> str:
    """Return the CRC32C (Castagnoli) of a file's content as eight lower-case hexadecimal digits."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = crc32c(chunk, crc)
    return f"{crc:08x}"
