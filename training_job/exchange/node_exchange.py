"""Ranks of one node that add up their gradients through memory that they share, once the backward pass is over.

Horovod overlaps the exchange with the backward pass. That pays where something else than the core that computes
carries it: a GPU's copy engines, a network card. Where ranks compute and exchange on the same cores nothing is
hidden: Horovod's thread takes turns with the one that computes, and Open MPI copies each gradient four times.
Measured on two cores (AMD Zen 4), ResNet-50: scaling efficiency 0.88 through Horovod, 0.94 through this, 0.95 with
ranks that never talk. On several nodes, on GPUs, and with numbers of ranks that are no power of two, Horovod does
all.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shared.training_options import MachineOptions
from training_job import collective
from training_job.collective import World
from training_job.exchange.library import library_of

_TOKEN_BYTES = 16
_MAX_PLACE_BYTES = 128

Gradients = list[Any]


@dataclass(frozen=True, kw_only=True)
class NodeExchange:
    """The memory is mapped, on all ranks."""

    operation: Any
    """TensorFlow's, of the library."""
    num_ranks: int

    def average(self, gradients: Sequence[Any], news: tf.Tensor) -> tuple[Gradients, tf.Tensor]:
        """Return the average of gradients and the sum of news over all ranks, within a graph.

        Sparse gradients become dense. What is not float32 goes through Horovod; None stays None.
        """
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        places = [i for i, g in enumerate(dense) if g is not None and g.dtype == tf.float32]
        factors = [1.0 / self.num_ranks] * len(places) + [1.0]
        *averages, all_news = self.operation(values=[*(dense[i] for i in places), news], factors=factors)
        for i, average in zip(places, averages, strict=True):
            dense[i] = average
        for i, gradient in enumerate(dense):
            if gradient is not None and gradient.dtype != tf.float32:
                dense[i] = collective.average_of([gradient], fp16=False)[0]
        return dense, all_news


def joined(options: MachineOptions, world: World, device: str | None) -> NodeExchange | None:
    """Map one memory on all ranks; None, on all of them, where Horovod is to exchange. Every rank has to call it."""
    if world.size == 1:
        return None
    native = _Native.loaded() if suits(options, world, device) else None
    descriptor, place = _created(native, world) if world.is_root else (-1, b"")
    told = collective.told_by_root(place, max_bytes=_MAX_PLACE_BYTES, name="node exchange")
    is_open = native is not None and bool(told) and native.opened(told.decode(), world)
    num_open = collective.summed(np.array([float(is_open)]), "node exchange")[0]
    if descriptor >= 0:
        os.close(descriptor)
    if native is None or num_open < world.size:
        return None
    collective.step_back(world)
    return NodeExchange(operation=native.operation, num_ranks=world.size)


def suits(options: MachineOptions, world: World, device: str | None) -> bool:
    """Whether this may be quicker than Horovod, and nobody asked for what only Horovod has."""
    of_horovod = (options.fp16_compression, options.fusion_threshold_mb, options.cycle_time_ms)
    tuned = any((*of_horovod, options.autotune, options.timeline))
    power_of_two = world.size & (world.size - 1) == 0
    return options.exchange == "auto" and world.num_nodes == 1 and device is None and power_of_two and not tuned


@dataclass(frozen=True, kw_only=True)
class _Native:
    """The library, once as C functions and once as an operation."""

    functions: ctypes.CDLL
    operation: Any

    @classmethod
    def loaded(cls) -> _Native | None:
        """Load it; None where it was not built for this TensorFlow."""
        try:
            path = str(library_of(Path(sys.prefix), tf.__version__))
            operation = tf.load_op_library(path).landfall_rank_sums
            functions = ctypes.CDLL(path)
        except (OSError, tf.errors.OpError):
            return None
        functions.rank_sums_memory_bytes.restype = ctypes.c_size_t
        return cls(functions=functions, operation=operation)

    def num_bytes(self, world: World) -> int:
        return int(self.functions.rank_sums_memory_bytes(world.size))

    def opened(self, place: str, world: World) -> bool:
        """Map the memory that the root told of, if it is that one: processes may be numbered apart in containers."""
        process_id, descriptor, token = place.split()
        try:
            found = os.open(f"/proc/{process_id}/fd/{descriptor}", os.O_RDWR)
        except OSError:
            return False
        try:
            same = os.pread(found, _TOKEN_BYTES, 0).hex() == token
            return same and self.functions.rank_sums_open(found, world.rank, world.size) == 0
        except OSError:
            return False
        finally:
            os.close(found)


def _created(native: _Native | None, world: World) -> tuple[int, bytes]:
    """Create the memory: without a name in any file system, so that it is gone with the last rank, however that ends.

    Returns its descriptor and what others have to know; -1 and nothing where there is none.
    """
    if native is None:
        return -1, b""
    token = secrets.token_bytes(_TOKEN_BYTES)
    try:
        descriptor = os.memfd_create("landfall-gradients")
    except OSError:
        return -1, b""
    try:
        os.ftruncate(descriptor, native.num_bytes(world))
        os.pwrite(descriptor, token, 0)
    except OSError:
        os.close(descriptor)
        return -1, b""
    return descriptor, f"{os.getpid()} {descriptor} {token.hex()}".encode()
