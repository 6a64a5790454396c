"""Landfall's validator as a worker of the validator benchmark, on local files and on blobs in Azurite."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.workers.timed import serve
from shard_validation import DataRequirements, ImagePolicy, LocalFileSource, ShardSource, validate_shard
from shard_validation.content import DEFAULT_CHUNK_BYTES
from shared.manifest import FeatureSpec

if TYPE_CHECKING:
    from function_app.adapters.connections import StorageConnection

CONTAINER = "datasets"
LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)
ANY_IMAGE = FeatureSpec(name="image", kind="bytes")


def framing(path: str) -> int:
    """Check both CRCs of every record, and compute the CRC of the content; return the number of records."""
    with LocalFileSource(Path(path)) as source:
        return _num_records(source, None)


class ByRanges:
    """A file that is read like a blob: by ranges, in chunks of the same size, and not by the library in C."""

    def __init__(self, file: LocalFileSource) -> None:
        self.name, self.size_bytes, self.read = file.name, file.size_bytes, file.read


def schema(path: str, size: int, encoding: str, *, by_ranges: bool = False) -> int:
    """Check two features of every example, too; return the number of records."""
    if encoding == "raw":
        image = FeatureSpec(name="image", kind="bytes", encoding="raw", dtype="uint8", shape=(size,))
    elif encoding == "varied":
        image = ANY_IMAGE
    else:
        image = FeatureSpec(name="image", kind="bytes", encoding="jpeg")
    with LocalFileSource(Path(path)) as source:
        requirements = DataRequirements(features=(image, LABEL), images=ImagePolicy(decode="header"))
        return _num_records(ByRanges(source) if by_ranges else source, requirements)


def validate_blob(path: str) -> int:
    """Validate a blob as the function app does; return its number of records."""
    return _num_records(blob_source(path), DataRequirements(features=(ANY_IMAGE, LABEL)))


def blob_source(path: str) -> ShardSource:
    """Return a blob as the source that the function app reads."""
    from function_app.adapters.blobs import BlobShardStore

    store = BlobShardStore(_connection(), CONTAINER)
    facts = store.facts(path)
    if facts is None:
        raise ValueError(f"{path}: no such blob")
    return store.open(facts)


def read_blob(path: str) -> int:
    """Read a blob with the SDK in chunks of the same size, and discard them; return its bytes."""
    blob = _connection().blob_service.get_blob_client(CONTAINER, path)
    size, offset = blob.get_blob_properties().size, 0
    while offset < size:
        offset += len(blob.download_blob(offset, min(DEFAULT_CHUNK_BYTES, size - offset)).readall())
    return offset


def peak(process: int | str = "self") -> int:
    """Return the peak resident memory of a process in bytes (VmHWM, proc(5))."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def _num_records(source: ShardSource, requirements: DataRequirements | None) -> int:
    verdict = validate_shard(source, requirements)
    if not verdict.accepted:
        raise ValueError(f"{source.name} was rejected: {verdict.reasons[:1]}")
    return verdict.num_records


@cache
def _connection() -> StorageConnection:
    from function_app.adapters.connections import ConnectionSettings, StorageConnection

    settings = ConnectionSettings(name="DataStorage", connection_string=os.environ["DataStorage"])  # noqa: SIM112
    return StorageConnection(settings)


if __name__ == "__main__":
    serve({function.__name__: function for function in (framing, schema, validate_blob, read_blob, peak)})
