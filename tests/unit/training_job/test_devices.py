"""Which GPU a rank uses; there is none here, so TensorFlow's configuration is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from training_job.devices import pin_gpu
from training_job.errors import TrainingError


@dataclass(frozen=True)
class Gpu:
    """A device."""

    name: str


@dataclass
class Machine:
    """A node with GPUs, and what was asked of it in which order; its own ``experimental``, as TensorFlow's."""

    num_gpus: int
    asked: list[tuple[str, object]] = field(default_factory=list)

    @property
    def experimental(self) -> Machine:
        return self

    def list_physical_devices(self, device_type: str) -> Sequence[Gpu]:
        return [Gpu(f"/physical_device:{device_type}:{i}") for i in range(self.num_gpus)]

    def set_visible_devices(self, devices: Sequence[Gpu], device_type: str) -> None:
        self.asked.append((f"visible {device_type}", [gpu.name for gpu in devices]))

    def set_memory_growth(self, device: Gpu, enable: bool) -> None:  # noqa: FBT001 (TensorFlow's signature)
        self.asked.append((f"growth {device.name}", enable))


def test_a_rank_gets_the_gpu_of_its_local_rank() -> None:
    """It grows in it, and sees no other."""
    machine = Machine(4)
    assert "/physical_device:GPU:2" == pin_gpu(machine, 2)
    assert [("growth /physical_device:GPU:2", True), ("visible GPU", ["/physical_device:GPU:2"])] == machine.asked


def test_without_gpus_nothing_is_pinned() -> None:
    """A machine with processors only."""
    machine = Machine(0)
    assert (None, []) == (pin_gpu(machine, 1), machine.asked)


def test_more_ranks_than_gpus_are_refused() -> None:
    """Two ranks in one GPU would both be slow, and nobody would know why."""
    with pytest.raises(TrainingError, match=r"Local rank 2 should have a GPU of its own, but its node has 2"):
        pin_gpu(Machine(2), 2)
