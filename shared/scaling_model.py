"""A cost model of data-parallel training with ring allreduce: the scaling efficiency to expect of more ranks.

Assumptions:

- Every rank takes as long to compute a step as one rank alone does, with the same per-process batch size.
- Gradients travel in buffers (Horovod's fusion) around one ring through all ranks. A buffer of b bytes costs
  ``2 (n-1)/n · b / bandwidth + 2 (n-1) · latency`` (Patarasuk & Yuan 2009). A node has one link; the ring enters and
  leaves it once, so ranks of one node share it without slowing each other.
- The exchange overlaps the backward pass (two thirds of a step) if the computing cores do not carry it, except
  for its last buffer, which is only full when the backward pass is over. ``Link.overlap`` is the share of a step that
  overlaps; it is 0 if the cores that compute also copy and add.
- Reading data, stragglers and congestion cost nothing; where they do, the real efficiency is lower.

The figures of a link come from its data sheet (`ETHERNET_25G`) or from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD_SHARE = 2 / 3
"""Share of a step: two of a layer's three matrix products compute the gradients of its inputs and weights."""
FUSION_BUFFER_BYTES = 128 << 20
"""Horovod's own default since 0.21 (pull request 2468); 64 MiB before."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """The connection between ranks."""

    bytes_per_s: float
    """Reached, not nominal, bandwidth."""
    latency_s: float
    """Latency of one hop of the ring."""
    overlap: float = BACKWARD_SHARE
    """Share of a step's computing time that an exchange can overlap."""
    buffer_bytes: int = FUSION_BUFFER_BYTES
    """Size of the buffer in which gradients are gathered for one exchange."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One rank's step."""

    compute_s: float
    """Duration of a step without any exchange."""
    gradient_bytes: float


ETHERNET_25G = Link(bytes_per_s=0.9 * 25e9 / 8, latency_s=10e-6, buffer_bytes=64 << 20)
"""The network of Horovod's paper (arXiv 1802.05799, 2018). Its 25 Gb/s and Horovod's buffer size of that time are
published; the share of 0.9 that RoCE reaches and the latency of a hop are assumptions."""


def exchange_s(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return the duration of the exchange of all buffers, including the overlapping part."""
    buffers = -(-int(workload.gradient_bytes) // link.buffer_bytes)
    return _ring_s(workload.gradient_bytes, buffers, link, num_ranks)


def exposed_s(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return the time that the exchange adds to a step: what does not overlap, at least the last buffer."""
    last_bytes = workload.gradient_bytes % link.buffer_bytes or min(workload.gradient_bytes, link.buffer_bytes)
    unhidden_s = exchange_s(workload, link, num_ranks) - link.overlap * workload.compute_s
    return max(_ring_s(last_bytes, 1, link, num_ranks), unhidden_s)


def scaling_efficiency(workload: Workload, link: Link, num_ranks: int) -> float:
    """Return throughput(n) over n times throughput(1), from 0 to 1. Raises ValueError for less than one rank."""
    if num_ranks < 1:
        raise ValueError(f"num_ranks is {num_ranks}; it must be at least 1")
    if num_ranks == 1:
        return 1.0
    return workload.compute_s / (workload.compute_s + exposed_s(workload, link, num_ranks))


def _ring_s(num_bytes: float, buffers: int, link: Link, num_ranks: int) -> float:
    hops = 2 * (num_ranks - 1)
    return hops / num_ranks * num_bytes / link.bytes_per_s + buffers * hops * link.latency_s
