"""Which devices this process may use, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from training_job.errors import TrainingError


class DeviceConfig(Protocol):
    """The part of ``tf.config`` that is needed; a test has its own."""

    def list_physical_devices(self, device_type: str) -> Sequence[Any]:
        """Return the devices of one type."""
        ...

    def set_visible_devices(self, devices: Sequence[Any], device_type: str) -> None:
        """Hide all others of the type."""
        ...

    @property
    def experimental(self) -> Any:
        """Where ``set_memory_growth`` is."""
        ...


def pin_gpu(config: DeviceConfig, local_rank: int) -> str | None:
    """Give this process the GPU of its local rank, growing in it as needed; return its name, None without GPUs.

    Raises TrainingError where a node has more ranks than GPUs.
    """
    gpus = config.list_physical_devices("GPU")
    if not gpus:
        return None
    if local_rank >= len(gpus):
        raise TrainingError(
            f"Local rank {local_rank} should have a GPU of its own, but its node has {len(gpus)}. "
            f"Set processes_per_node to the number of GPUs."
        )
    # Growth has to be asked for before anything touches the device, and only of the one that stays visible.
    config.experimental.set_memory_growth(gpus[local_rank], enable=True)
    config.set_visible_devices([gpus[local_rank]], "GPU")
    return str(gpus[local_rank].name)
