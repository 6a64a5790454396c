"""What ranks do together. The only file that knows Horovod.

Horovod 0.28.1 is the last release; its Keras optimizer and callbacks break on Keras 3, while the tape, the
broadcast and the reductions work on the values below Keras' variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    local_rank: int
    num_nodes: int

    @property
    def is_root(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0


def join() -> World:
    """Meet the other ranks; every rank has to come here before any goes on."""
    hvd.init()
    return World(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank(), num_nodes=hvd.cross_size())


def broadcast_from_root(variables: Sequence[Any]) -> None:
    """Give every rank the root's values of Keras' variables."""
    if hvd.size() > 1:
        hvd.broadcast_variables([v.value for v in variables], root_rank=0)


def averaged(tape: tf.GradientTape) -> tf.GradientTape:
    """Return a tape whose gradients are the average over all ranks."""
    return hvd.DistributedGradientTape(tape, sparse_as_dense=True) if hvd.size() > 1 else tape


def summed(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return the sum over all ranks; every rank has to ask for the same name, with the same shape."""
    if hvd.size() == 1:
        return values
    total: np.ndarray[Any, Any] = hvd.allreduce(tf.constant(values), op=hvd.Sum, name=name).numpy()
    return total


def wait_for_all(name: str) -> None:
    """Return when every rank has come here."""
    summed(np.zeros(1, np.float32), f"wait.{name}")
