"""When ranks of one node exchange by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from shared.training_options import TrainingOptions
from training_job.collective import World
from training_job.exchange.node_exchange import joined, suits


def world(size: int, num_nodes: int = 1) -> World:
    return World(rank=0, size=size, local_rank=0, num_nodes=num_nodes)


@pytest.mark.parametrize("size", [2, 4, 64])
def test_on_one_node_without_gpus_ranks_do_it_themselves(size: int) -> None:
    """As many as pairs of pairs make."""
    assert suits(TrainingOptions(), world(size), None)


@pytest.mark.parametrize("size", [3, 6, 12])
def test_numbers_that_do_not_pair_go_through_horovod(size: int) -> None:
    """Somebody would be left over in a round."""
    assert not suits(TrainingOptions(), world(size), None)


def test_several_nodes_and_gpus_go_through_horovod() -> None:
    """It has the network's and the GPU's ways."""
    assert (False, False) == (
        suits(TrainingOptions(), world(4, num_nodes=2), None),
        suits(TrainingOptions(), world(2), "/physical_device:GPU:0"),
    )


@pytest.mark.parametrize(
    "option",
    [
        {"exchange": "horovod"},
        {"fp16_compression": True},
        {"fusion_threshold_mb": 8},
        {"cycle_time_ms": 5.0},
        {"autotune": True},
        {"timeline": True},
    ],
)
def test_who_asks_for_what_only_horovod_has_gets_horovod(option: dict[str, Any]) -> None:
    """A timeline without gradients, or a setting without effect, would be a riddle."""
    assert not suits(TrainingOptions(**option), world(2), None)


def test_one_rank_has_nobody_to_exchange_with() -> None:
    """Nothing is opened."""
    assert joined(TrainingOptions(), world(1), None) is None
