"""Predicts what more ranks bring: a cost model of data-parallel training with ring allreduce, for planning.

Assumptions:

- Every rank takes as long for a step as one rank alone does, with the same per-process batch.
- Gradients travel in buffers (Horovod's fusion) around one ring through all ranks. A buffer of b bytes costs
  ``2 (n-1)/n · b / bandwidth + 2 (n-1) · latency`` (Patarasuk & Yuan 2009). A node has one link; the ring enters and
  leaves it once, so ranks of one node share it without slowing each other.
- Communication overlaps with the backward pass (two thirds of a step) where other hardware than the computing cores
  does it, except for the last buffer, which is full only when the backward pass is over. ``Link.overlap`` is the part
  of a step that overlaps with communication; it is 0 where the computing cores also copy and add.
- Reading data, stragglers and congestion cost nothing. Real efficiency is lower than the model's where they do.

The figures of a link come from its data sheet (`ETHERNET_25G`) or from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD_SHARE = 2 / 3
"""Two of the three matrix products of each layer: those for the gradients of its inputs and of its weights."""
FUSION_BUFFER_BYTES = 128 << 20
"""Horovod's own default since 0.21 (pull request 2468); 64 MiB before."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """The network between ranks."""

    bytes_per_s: float
    """The rate that is reached, not the nominal one."""
    latency_s: float
    """Latency of one hop of the ring."""
    overlap: float = BACKWARD_SHARE
    """The part of a step's compute that overlaps with communication."""
    buffer_bytes: int = FUSION_BUFFER_BYTES
    """Bytes that are gathered into one allreduce."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One rank's step."""

    compute_s: float
    """Seconds of a step without communication."""
    gradient_bytes: float


ETHERNET_25G = Link(bytes_per_s=0.9 * 25e9 / 8, latency_s=10e-6, buffer_bytes=64 << 20)
"""The network of Horovod's paper (arXiv 1802.05799, 2018): its 25 Gb/s are published, and so is Horovod's buffer of
that time. Assumed are the nine tenths of the rate that RoCE reaches, and the latency of a hop."""


def exchange_s(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return how long all buffers take, overlapped or not."""
    buffers = -(-int(workload.gradient_bytes) // link.buffer_bytes)
    return _ring_s(workload.gradient_bytes, buffers, link, num_ranks)


def exposed_s(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return what communication adds to a step: what does not overlap, at least the last buffer."""
    last_bytes = workload.gradient_bytes % link.buffer_bytes or min(workload.gradient_bytes, link.buffer_bytes)
    unhidden_s = exchange_s(workload, link, num_ranks) - link.overlap * workload.compute_s
    return max(_ring_s(last_bytes, 1, link, num_ranks), unhidden_s)


def scaling_efficiency(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return throughput(n) over n times throughput(1), 0 to 1. Raises ValueError for less than one rank."""
    if num_ranks < 1:
        raise ValueError(f"num_ranks is {num_ranks}; it must be at least 1")
    if num_ranks == 1:
        return 1.0
    return workload.compute_s / (workload.compute_s + exposed_s(workload, link, num_ranks))


def _ring_s(num_bytes: float, buffers: int, link: Link, num_ranks: int) -> float:
    hops = 2 * (num_ranks - 1)
    return hops / num_ranks * num_bytes / link.bytes_per_s + buffers * hops * link.latency_s
