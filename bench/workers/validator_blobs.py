"""A blob read from Azurite, asked by the validator benchmark: validated, or read with the SDK and thrown away."""

from __future__ import annotations

import os
from pathlib import Path

from bench.workers.timed import serve
from function_app.adapters.blobs import BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from shard_validation import DataRequirements, validate_shard
from shard_validation.read_ahead import DEFAULT_CHUNK_BYTES
from shared.example_schema import FeatureSpec

CONTAINER = "datasets"
REQUIREMENTS = DataRequirements(
    features=(FeatureSpec(name="image", kind="bytes"), FeatureSpec(name="label", kind="int64", maximum=9))
)
_settings = ConnectionSettings(name="DataStorage", connection_string=os.environ["DataStorage"])  # noqa: SIM112
_connection = StorageConnection(_settings)


def validate(path: str) -> int:
    """Validate a blob as the function app does; return its records."""
    store = BlobShardStore(_connection, CONTAINER)
    facts = store.facts(path)
    if facts is None:
        raise ValueError(f"{path} should be there")
    verdict = validate_shard(store.open(facts), REQUIREMENTS)
    if not verdict.accepted:
        raise ValueError(f"{path} should be accepted: {verdict.reasons[:1]}")
    return verdict.num_records


def read(path: str) -> int:
    """Read a blob with the SDK, in chunks of the same size, and do nothing with it; return its bytes."""
    blob = _connection.blob_service.get_blob_client(CONTAINER, path)
    size, offset = blob.get_blob_properties().size, 0
    while offset < size:
        offset += len(blob.download_blob(offset, min(DEFAULT_CHUNK_BYTES, size - offset)).readall())
    return offset


def peak() -> int:
    """Return the peak of this process's resident memory, in bytes (VmHWM, proc(5))."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    serve({"validate": validate, "read": read, "peak": peak})
