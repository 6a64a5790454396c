"""What more ranks bring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.scaling_model import ETHERNET_25G, Link, Workload, exchange_s, exposed_s, scaling_efficiency

BATCH = 64
"""Batch size of one GPU. Assumed, as are the rates below; the numbers of weights are the architectures' own."""
FLOAT_BYTES = 4


def on_pascal(images_per_s: float, weights: float) -> Workload:
    return Workload(compute_s=BATCH / images_per_s, gradient_bytes=weights * FLOAT_BYTES)


PAPER = pytest.mark.parametrize(
    ("workload", "published"),
    [
        (on_pascal(142, 23.85e6), 0.90),
        (on_pascal(132, 44.7e6), 0.90),
        (on_pascal(154, 138.4e6), 0.68),
    ],
    ids=["Inception V3", "ResNet-101", "VGG-16"],
)


@PAPER
def test_horovods_paper_comes_out_within_five_points(workload: Workload, published: float) -> None:
    """512 GPUs over 25 Gb/s (arXiv 1802.05799); single-GPU rates are about those of TensorFlow's P100 benchmarks."""
    assert pytest.approx(published, abs=0.05) == scaling_efficiency(workload, ETHERNET_25G, 512)


@PAPER
def test_the_paper_comes_out_at_the_published_line_rate_too(workload: Workload, published: float) -> None:
    """Nine tenths of the rate is an assumption that the result does not hang on; only the hop's latency is left."""
    line_rate = replace(ETHERNET_25G, bytes_per_s=25e9 / 8)
    assert pytest.approx(published, abs=0.05) == scaling_efficiency(workload, line_rate, 512)


def test_one_rank_exchanges_nothing() -> None:
    """Efficiency one, whatever the link."""
    assert 1.0 == scaling_efficiency(on_pascal(100, 1e9), Link(bytes_per_s=1, latency_s=1), 1)


def test_more_ranks_never_help_the_efficiency() -> None:
    """It falls or stays, from two ranks to a thousand."""
    found = [scaling_efficiency(on_pascal(154, 138.4e6), ETHERNET_25G, 1 << power) for power in range(11)]
    assert sorted(found, reverse=True) == found


def test_a_ring_moves_twice_the_gradient_less_one_share() -> None:
    """Four ranks, 8 bytes at 1 byte a second: 12 s, and six hops of a tenth each."""
    link, workload = Link(bytes_per_s=1, latency_s=0.1), Workload(compute_s=1, gradient_bytes=8)
    assert pytest.approx(12.6) == exchange_s(workload, link, 4)


def test_the_last_buffer_cannot_hide() -> None:
    """Even behind a backward pass that takes for ever."""
    workload = Workload(compute_s=1e6, gradient_bytes=8)
    assert pytest.approx(12.6) == exposed_s(workload, Link(bytes_per_s=1, latency_s=0.1), 4)


def test_what_carries_the_exchange_may_be_the_cores_that_compute() -> None:
    """Without overlap every buffer is paid for, whatever the backward pass takes."""
    link = Link(bytes_per_s=1, latency_s=0, overlap=0, buffer_bytes=4)
    assert pytest.approx(8) == exposed_s(Workload(compute_s=99, gradient_bytes=8), link, 2)


def test_no_rank_is_no_world() -> None:
    """The message has the number."""
    with pytest.raises(ValueError, match="num_ranks is 0; it must be at least 1"):
        scaling_efficiency(on_pascal(1, 1), ETHERNET_25G, 0)
