"""Results of each validation example: every rank adds its own, the root writes all of them as one Parquet file."""

from __future__ import annotations

from io import BytesIO
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shared.manifest import ManifestShard
from shared.training_report import MAX_EXAMPLES, NUM_EXAMPLES_KEY, RECORD, SHARD
from training_job.reporting.metrics import Sums

_MULTIPLIER = 0x9E3779B1
"""2³² over the golden ratio: Knuth's multiplicative hash."""


def kept_examples(num_examples: int, limit: int = MAX_EXAMPLES) -> list[int] | range:
    """Return the numbers of the examples that are written, ascending, at most ``limit``.

    If there are more, they are divided into runs of equal length, and a hash of the run's number picks one example of
    each: the same ones in each training, and no period of the data can coincide with them.
    """
    stride = -(-num_examples // limit)
    if stride <= 1:
        return range(num_examples)
    kept = []
    for start in range(0, num_examples, stride):
        length = min(stride, num_examples - start)
        kept.append(start + ((start // stride * _MULTIPLIER) % 2**32 >> 8) % length)
    return kept


class ExampleResults:
    """This rank's part of the kept examples, in the order of the manifest; zero for examples of other ranks."""

    def __init__(self, columns: tuple[str, ...], num_examples: int, first: int) -> None:
        self.columns = columns
        self.num_examples = num_examples
        self.kept = np.asarray(kept_examples(num_examples), np.int64)
        """Numbers of the kept examples, ascending, int64 [K]."""
        self.values = np.zeros((len(self.kept), len(columns)), np.float32)
        """A row for each kept example, float32 [K, columns]; those of all ranks together are their sum."""
        self._next = first

    def add(self, values: Sums, weights: Sums) -> None:
        """Add the next examples of this rank: values [B, columns], weights [B], 0 for padding."""
        values = values[weights > 0]
        start, stop = self._next, self._next + len(values)
        places = slice(*np.searchsorted(self.kept, (start, stop)))
        self.values[places] = values[self.kept[places] - start]
        self._next = stop

    def to_parquet(self, shards: tuple[ManifestShard, ...], values: Sums) -> bytes:
        """Return the file of all ranks' values [K, columns]."""
        ends = np.array(list(accumulate(shard.num_records for shard in shards)), np.int64)
        places = np.searchsorted(ends, self.kept, side="right")
        starts = ends - [shard.num_records for shard in shards]
        names = pa.array([shard.name for shard in shards], pa.string())
        table = pa.table(
            {
                SHARD: pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), names),
                RECORD: pa.array(self.kept - starts[places]),
                **{name: pa.array(values[:, i]) for i, name in enumerate(self.columns)},
            }
        )
        written = BytesIO()
        stated = {**(table.schema.metadata or {}), NUM_EXAMPLES_KEY: str(self.num_examples).encode()}
        pq.write_table(table.replace_schema_metadata(stated), written, compression="zstd")
        return written.getvalue()
