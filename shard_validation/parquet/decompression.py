"""Pages decompressed to the size that their header states, and not to another.

pyarrow's one-shot decompression does not say how much came out, so streams are used where there are any. The
result is Python's own bytes, which go back to the system at once: pyarrow's pool would keep them.
"""

from __future__ import annotations

_MAX_VARINT_BYTES = 5


def decompress(compression: str, content: bytes, size_bytes: int) -> bytes:
    """Return at most one byte more than ``size_bytes``. Raises OSError or ValueError (pyarrow's are such)."""
    import pyarrow as pa

    if compression == "SNAPPY":
        stated = _snappy_size(content)
        if stated != size_bytes:
            raise ValueError(f"{size_bytes} bytes uncompressed should be stated, {stated} are")
        return bytes(pa.Codec("snappy").decompress(content, decompressed_size=size_bytes, asbytes=True))
    with pa.CompressedInputStream(pa.BufferReader(content), compression.lower()) as stream:
        return bytes(stream.read(size_bytes + 1))


def _snappy_size(content: bytes) -> int:
    """Read the size that begins Snappy's raw format (google/snappy, format_description.txt)."""
    value = 0
    for i, byte in enumerate(content[:_MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value
    raise ValueError("a size should begin the data")
