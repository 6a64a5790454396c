"""Settings of a process that must be made before TensorFlow and MPI are loaded or use a device.

Environment variables, the number of malloc's arenas, the visible GPU; and what the launcher says about this process.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from shared.job_arguments import MachineOptions, TrainingOptions
from training_job.errors import MissingResourcesError

_DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "tensorflow",
    # A waiting rank of Open MPI polls with a whole core. If every core computes, that costs a third of the
    # throughput.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_ON_CPUS = {
    # Bytes that are gathered into one allreduce. This many stay in a core's cache while they are copied, sent, added,
    # divided and copied back; Horovod's own 128 MiB are meant for networks and GPUs.
    "HOROVOD_FUSION_THRESHOLD": str(1 << 20),
}
_LONG_STEPS = {
    # Milliseconds between two rounds of Horovod's negotiation, each of which interrupts the thread that computes.
    # A step waits for two rounds, so this suits long steps only; docs/decisions.md has the measurements.
    "HOROVOD_CYCLE_TIME": "20",
}
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
TIMELINE_FILE = "horovod_timeline.json"
_M_ARENA_MAX = -8
"""A constant of glibc's malloc.h."""


def set_for(
    options: TrainingOptions,
    local: Path,
    environment: MutableMapping[str, str] = os.environ,
    driver: Path = _NVIDIA_DRIVER,
) -> None:
    """Set what the options request, and good defaults for variables that the environment does not set yet.

    ``local`` is a folder on this node's disk, for Horovod's timeline: Horovod writes it as it goes, and reports no
    error if it cannot. Also limits this process to as many malloc arenas as it has cores. ``driver`` exists where
    the kernel has NVIDIA's driver, in containers too.
    """
    environment.update(_requested(options, local))
    # Horovod's autotuning leaves alone what the environment sets, so nothing may be set for it.
    on_cpus = {} if driver.exists() or options.autotune else _on_cpus(options)
    for name, value in {**_DEFAULTS, **on_cpus}.items():
        environment.setdefault(name, value)
    limit_arenas(threads_per_rank(), environment)


def _on_cpus(options: TrainingOptions) -> dict[str, str]:
    """Return settings for ranks whose cores also communicate; steps of keras.applications are known to be long."""
    may_be_short = options.model_name == "small_cnn" or options.model_module
    return dict(_ON_CPUS) if may_be_short else {**_ON_CPUS, **_LONG_STEPS}


def _requested(options: MachineOptions, local: Path) -> dict[str, str]:
    """Return Horovod's variables, as its documentation names them."""
    requested: dict[str, str] = {}
    if options.fusion_threshold_mb:
        requested["HOROVOD_FUSION_THRESHOLD"] = str(options.fusion_threshold_mb << 20)
    if options.cycle_time_ms:
        requested["HOROVOD_CYCLE_TIME"] = f"{options.cycle_time_ms:g}"
    if options.autotune:
        requested["HOROVOD_AUTOTUNE"] = "1"
    if options.timeline:
        requested["HOROVOD_TIMELINE"] = str(local / TIMELINE_FILE)
    return requested


def limit_arenas(number: int, environment: Mapping[str, str] = os.environ) -> None:
    """Let all threads share ``number`` arenas of glibc's malloc, unless the caller's environment sets a number.

    Every epoch starts new threads that read and decode. glibc gives each the arena that happens to be free, up to
    eight for every core, and memory freed in one arena is not reused in another: without a limit a rank grows with
    every epoch. Must be called early, because threads keep their arenas.
    """
    if "MALLOC_ARENA_MAX" in environment or "glibc.malloc.arena_max" in environment.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no arenas
        mallopt(_M_ARENA_MAX, number)


class DeviceConfig(Protocol):
    """The part of ``tf.config`` that is needed."""

    def list_physical_devices(self, device_type: str) -> Sequence[Any]:
        """Return the devices of one type."""
        ...

    def set_visible_devices(self, devices: Sequence[Any], device_type: str) -> None:
        """Hide all other devices of the type."""
        ...

    @property
    def experimental(self) -> Any:
        """The object that has ``set_memory_growth``."""
        ...


def pin_gpu(config: DeviceConfig, local_rank: int) -> str | None:
    """Give this process the GPU of its local rank, with memory that grows as needed; return the GPU's name.

    Returns None on a node without GPUs. Raises MissingResourcesError if a node has more ranks than GPUs.
    """
    gpus = config.list_physical_devices("GPU")
    if not gpus:
        return None
    if local_rank >= len(gpus):
        raise MissingResourcesError(
            f"Local rank {local_rank} has no GPU of its own: its node has {len(gpus)}. "
            f"Set processes_per_node to the number of GPUs."
        )
    # Growth has to be set before anything touches the device, and only for the one that stays visible.
    config.experimental.set_memory_growth(gpus[local_rank], enable=True)
    config.set_visible_devices([gpus[local_rank]], "GPU")
    return str(gpus[local_rank].name)


def threads_per_rank() -> int:
    """Return the number of cores for this process: those it is bound to, or its share of the node's."""
    share = (os.cpu_count() or 1) // int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    return max(1, min(len(os.sched_getaffinity(0)), share))


@dataclass(frozen=True, kw_only=True)
class Launched:
    """The launcher's information about this process, before MPI or TensorFlow is loaded."""

    by: Literal["mpirun", "tensorflow", "pytorch"] | None
    """None if no launcher started it."""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Number of ranks on this node."""


def launched() -> Launched:
    """Return what Open MPI's variables say, or those that Azure ML sets for TensorFlow and PyTorch."""
    variables = os.environ
    if {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"} & variables.keys():
        return Launched(
            by="mpirun",
            rank=int(variables.get("OMPI_COMM_WORLD_RANK", "0")),
            world_size=int(variables.get("OMPI_COMM_WORLD_SIZE", "1")),
            local_rank=int(variables.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")),
            local_size=int(variables.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1")),
        )
    if "TF_CONFIG" in variables:
        config = json.loads(variables["TF_CONFIG"])
        return Launched(by="tensorflow", rank=config["task"]["index"], world_size=len(config["cluster"]["worker"]))
    if "RANK" in variables and "WORLD_SIZE" in variables:
        size, nodes = int(variables["WORLD_SIZE"]), int(variables.get("AZUREML_NODE_COUNT", "1"))
        return Launched(
            by="pytorch",
            rank=int(variables["RANK"]),
            world_size=size,
            local_rank=int(variables.get("LOCAL_RANK", "0")),
            local_size=size // nodes,  # Azure ML states no other
        )
    return Launched(by=None)


def launched_rank() -> int:
    """Return this process's rank as the launcher states it, 0 without a launcher; known before MPI is loaded."""
    return launched().rank


def launched_world_size() -> int:
    """Return the number of ranks as the launcher states it, 1 without a launcher."""
    return launched().world_size


def run_id() -> str:
    """Return the run's id as Azure ML states it, ``local`` elsewhere."""
    return os.environ.get("AZUREML_RUN_ID", "local")
