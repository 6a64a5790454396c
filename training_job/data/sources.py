"""What a data source offers, whichever format its records have."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from training_job.rank_plan import Lane


class RecordSource(Protocol):
    """Records of the manifest's shards, undecoded: cheap to shuffle, to skip and to hold."""

    def lane(self, lane: Lane) -> tf.data.Dataset:
        """Return the lane's records in order, in whatever structure `values` reads."""
        ...

    def values(self, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the image feature's value, as stored, and the label, int64 []. Runs within a graph."""
        ...
