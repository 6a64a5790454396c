"""The validator and pyarrow as a worker of the Parquet benchmark; results are microseconds of processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.workers.timed import cpu_s, serve
from bench.workers.validator_ours import blob_source, peak
from shard_validation import DataRequirements, ImagePolicy, LocalFileSource, ShardSource, validate_shard
from shard_validation.parquet.decoder import idle_decoders
from shared.manifest import FeatureSpec

LABEL = FeatureSpec(name="label", kind="int64", minimum=0, maximum=9)
FEATURES = {
    "numbers": tuple(FeatureSpec(name=f"x{i}", kind="float", minimum=-10, maximum=10) for i in range(20)),
    "images": (FeatureSpec(name="image", kind="bytes", encoding="jpeg"),),
    "texts": (FeatureSpec(name="text", kind="bytes", encoding="text"),),
}


def validate(path: str, table: str) -> int:
    """Validate a file with its schema."""
    with LocalFileSource(Path(path)) as source:
        return _timed(lambda: _validate(source, table))


def validate_blob(path: str, table: str) -> int:
    """Validate a blob with its schema, as the function app does."""
    return _timed(lambda: _validate(blob_source(path), table))


def read(path: str) -> int:
    """Read a file with pyarrow, one column after another."""
    import pyarrow.parquet as pq

    return _timed(lambda: pq.ParquetFile(path).read(use_threads=False))


def peak_of_both() -> int:
    """Return the peak resident memory of this process and of the decoding process, in bytes."""
    return peak() + sum(map(peak, idle_decoders()))


def _validate(source: ShardSource, table: str) -> None:
    requirements = DataRequirements(features=(*FEATURES[table], LABEL), images=ImagePolicy(decode="header"))
    verdict = validate_shard(source, requirements)
    if not verdict.accepted:
        raise ValueError(f"{source.name} was rejected: {verdict.reasons[:1]}")


def _timed(work: Callable[[], object]) -> int:
    """Return the processor time of this process and of the decoding process."""
    before = time.process_time() + sum(map(cpu_s, idle_decoders()))
    work()
    return round((time.process_time() + sum(map(cpu_s, idle_decoders())) - before) * 1e6)


if __name__ == "__main__":
    serve({"validate": validate, "validate_blob": validate_blob, "read": read, "peak": peak_of_both})
