"""Collective operations of the ranks. No other file uses Horovod.

Horovod 0.28.1 is the last release. Its Keras optimizer and callbacks break on Keras 3; the tape, the broadcast and
the reductions work on the TensorFlow values below Keras' variables.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]
MAX_HOST_BYTES = 64
"""Length of a host's name, as Linux limits it."""


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among all ranks."""

    rank: int
    size: int
    local_rank: int
    num_nodes: int

    @property
    def is_root(self) -> bool:
        """Whether this process logs and writes for all ranks."""
        return self.rank == 0


def join() -> World:
    """Start Horovod; returns once every rank has called it."""
    hvd.init()
    return World(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank(), num_nodes=hvd.cross_size())


def broadcast_from_root(variables: Sequence[Any]) -> None:
    """Give every rank the root's values of Keras' variables."""
    if hvd.size() > 1:
        hvd.broadcast_variables([v.value for v in variables], root_rank=0)


def averaging_tape(tape: tf.GradientTape, *, fp16: bool) -> tf.GradientTape:
    """Return a tape whose gradients are averaged over all ranks."""
    if hvd.size() == 1:
        return tape
    return hvd.DistributedGradientTape(tape, compression=_compression(fp16=fp16), sparse_as_dense=True)


def average_gradients(gradients: Sequence[tf.Tensor | None], *, fp16: bool) -> list[tf.Tensor | None]:
    """Return gradients that are already computed, averaged over all ranks; None stays None. Runs within a graph."""
    if hvd.size() == 1:
        return list(gradients)
    compression = _compression(fp16=fp16)
    return [None if g is None else hvd.allreduce(g, op=hvd.Average, compression=compression) for g in gradients]


def average_variables(variables: Sequence[Any]) -> None:
    """Set Keras' variables to their average over all ranks, as the moving statistics of batch norm need it."""
    if hvd.size() > 1 and variables:
        means = hvd.grouped_allreduce([tf.convert_to_tensor(v) for v in variables], op=hvd.Average, name="statistics")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)


def sum_in_graph(values: tf.Tensor, name: str) -> tf.Tensor:
    """Return the sum over all ranks. Runs within a graph."""
    return values if hvd.size() == 1 else hvd.allreduce(values, op=hvd.Sum, name=name)


def sum_over_ranks(values: Array, name: str) -> Array:
    """Return the sum over all ranks, identical to the bit on each.

    The root's sum is broadcast: an MPI may add in another order on another rank, and ranks that make a decision based
    on a sum must decide alike.
    """
    if hvd.size() == 1:
        return values
    total = hvd.allreduce(tf.constant(values), op=hvd.Sum, name=name)
    agreed: Array = hvd.broadcast(total, root_rank=0, name=f"{name}.agreed").numpy()
    return agreed


def count_ranks(condition: bool, name: str) -> int:  # noqa: FBT001 (it is the value that is counted)
    """Return the number of ranks on which a condition holds; always over MPI, even if the ranks have GPUs."""
    with tf.device("/CPU:0"):
        return int(sum_over_ranks(np.array([condition], np.int32), name)[0])


def hosts_of_ranks() -> list[str]:
    """Return the name of each rank's host; always over MPI, even if the ranks have GPUs."""
    names = np.zeros((hvd.size(), MAX_HOST_BYTES), np.int32)
    own = socket.gethostname().encode()[:MAX_HOST_BYTES]
    names[hvd.rank(), : len(own)] = list(own)
    with tf.device("/CPU:0"):
        rows = sum_over_ranks(names, "hosts").astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows]


def bytes_from_root(message: bytes, *, max_bytes: int, name: str) -> bytes:
    """Return the root's message on every rank; the arguments of the other ranks are ignored."""
    padded = np.frombuffer(len(message).to_bytes(4, "big") + message.ljust(max_bytes, b"\0"), np.uint8)
    received = padded if hvd.size() == 1 else hvd.broadcast(tf.constant(padded), root_rank=0, name=name).numpy()
    content: bytes = received.tobytes()
    return content[4 : 4 + int.from_bytes(content[:4], "big")]


def message_from_root(message: bytes, name: str) -> bytes:
    """Return the root's message, of any length, on every rank; the other ranks' arguments are ignored."""
    length = int.from_bytes(
        bytes_from_root(len(message).to_bytes(8, "big"), max_bytes=8, name=f"{name}.length"), "big"
    )
    return bytes_from_root(message[:length], max_bytes=length, name=name)


def leave() -> None:
    """End Horovod on this rank, so that it closes its files."""
    hvd.shutdown()


def wait_for_all(name: str) -> None:
    """Return once every rank has called it with this name."""
    sum_over_ranks(np.zeros(1, np.float32), f"wait.{name}")


def _compression(*, fp16: bool) -> Any:
    return hvd.Compression.fp16 if fp16 else hvd.Compression.none
