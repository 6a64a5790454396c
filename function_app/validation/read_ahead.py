"""Reading a source from front to back, the next chunk on its way while this one is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from function_app.validation.sources import ChunkedSource, ShardSource

DEFAULT_CHUNK_BYTES = 8 << 20
"""Of a source that states nothing: what pays off against Blob storage, twice in memory."""


def read_ahead(source: ShardSource, start: int = 0) -> Iterator[bytes]:
    """Yield the content from ``start`` on, in chunks; two are in memory at a time. Raises SourceError."""
    chunk_bytes = source.chunk_bytes if isinstance(source, ChunkedSource) else DEFAULT_CHUNK_BYTES
    if source.size_bytes - start <= chunk_bytes:
        if start < source.size_bytes:
            yield source.read(start, source.size_bytes - start)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as pool:
        following: Future[bytes] | None = _read(pool, source, start, chunk_bytes)
        while following is not None:
            chunk = following.result()
            start += len(chunk)
            following = _read(pool, source, start, chunk_bytes)
            yield chunk


def _read(pool: ThreadPoolExecutor, source: ShardSource, start: int, chunk_bytes: int) -> Future[bytes] | None:
    length = min(chunk_bytes, source.size_bytes - start)
    return pool.submit(source.read, start, length) if length > 0 else None
