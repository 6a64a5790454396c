"""Example results: what a training writes of each validation example, so that two models can be compared in pairs.

A Parquet file beside the training report, with a row for each example: ``shard`` (the name in the manifest),
``record`` (its number in the shard, from 0), and a column for each metric that is an average over examples, named as
the metric without ``val_``: ``loss``, ``accuracy`` (0 or 1) … ``label`` (0 or 1) and ``score`` stand for ``auc``.
"""

from __future__ import annotations

FILE_NAME = "example_results.parquet"
MAX_EXAMPLES = 1_000_000
"""Rows; of more examples a sample is written, see ``kept_examples``."""
MAX_FILE_BYTES = 64 << 20
NUM_EXAMPLES_KEY = b"landfall.num_examples"
"""Key of the file's metadata: how many examples were evaluated, where the rows are a sample of them."""
SHARD, RECORD = "shard", "record"
LABEL, SCORE = "label", "score"
AUC = "auc"
MAX_COLUMNS = 50
_MULTIPLIER = 0x9E3779B1
"""Of Knuth's multiplicative hash, 2³² over the golden ratio."""


def kept_examples(num_examples: int, limit: int = MAX_EXAMPLES) -> list[int] | range:
    """Return the numbers of the examples that are written, ascending, at most ``limit``.

    Of more than that, one of each run of equally many successive examples, at a place that a hash of the run's number
    decides: the same ones in each training, and no period of the data can coincide with them.
    """
    stride = -(-num_examples // limit)
    if stride <= 1:
        return range(num_examples)
    kept = []
    for start in range(0, num_examples, stride):
        length = min(stride, num_examples - start)
        kept.append(start + ((start // stride * _MULTIPLIER) % 2**32 >> 8) % length)
    return kept
