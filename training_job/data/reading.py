"""Taking batches from a dataset: what goes wrong while reading is said in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import tensorflow as tf

from training_job.errors import UnreadableDataError

T = TypeVar("T")
_MAX_CAUSE_CHARS = 600


def next_batch(batches: Iterator[T], rank: int) -> T:
    """Return the next batch. Raises UnreadableDataError where there is none, or it cannot be read."""
    try:
        return next(batches)
    except StopIteration as error:
        raise UnreadableDataError(
            f"Rank {rank} should have more batches: a shard holds fewer records than the manifest says."
        ) from error
    except tf.errors.OpError as error:
        raise UnreadableDataError(f"Rank {rank} cannot read its data: {_cause(error)}") from error


def _cause(error: tf.errors.OpError) -> str:
    """Return TensorFlow's message without the names of its graph's nodes and without Python's stack."""
    message = str(error.message).replace("{{function_node __wrapped__IteratorGetNext", "")
    return message.partition("Traceback (most recent call last)")[0].strip()[:_MAX_CAUSE_CHARS]
