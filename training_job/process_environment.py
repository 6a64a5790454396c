"""What has to be set for a process before TensorFlow and MPI are loaded into it."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from shared.training_options import MachineOptions, TrainingOptions
from training_job.allocator import limit_arenas

_DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "tensorflow",
    # Open MPI polls with a whole core while it waits; where every core computes that costs a third of the
    # throughput (measured: 0.60 against 0.95 of the ideal with two ranks on two cores).
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_ON_CPUS = {
    # Bytes that are gathered into one exchange: so many stay in a core's cache while they are copied, sent, added,
    # divided and copied back. Horovod's own 128 MiB are meant for networks and GPUs.
    "HOROVOD_FUSION_THRESHOLD": str(1 << 20),
    # Between ranks of one node two copies through shared memory, in cache, beat the kernel's one copy.
    "OMPI_MCA_smsc": "^cma",
}
_LONG_STEPS = {
    # Milliseconds between two rounds of Horovod's negotiation, each of which interrupts the thread that computes.
    # A step waits for two of them: where steps are short, that is most of what it takes (small CNN, one rank's step
    # 4.4 ms: two ranks took 6.0 with Horovod's own 1, 7.6 with 5 and 28 with 20).
    "HOROVOD_CYCLE_TIME": "20",
}
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
TIMELINE_FILE = "horovod_timeline.json"


def set_for(
    options: TrainingOptions,
    report: Path,
    environment: MutableMapping[str, str] = os.environ,
    driver: Path = _NVIDIA_DRIVER,
) -> None:
    """Set what the options ask for, and good defaults for what the caller's environment has left open.

    One of them is no variable, but holds for this process: its threads share as many arenas as it has cores.
    ``driver`` is there where the kernel has NVIDIA's driver, in containers too.
    """
    if options.timeline:
        report.mkdir(
            parents=True, exist_ok=True
        )  # Horovod opens the file as it starts, and says nothing if it cannot
    environment.update(_asked_for(options, report))
    # Horovod's autotuning leaves alone what stands in the environment, so there has to be nothing for it to tune.
    exchange = {} if driver.exists() or options.autotune else _on_cpus(options)
    for name, value in {**_DEFAULTS, **exchange}.items():
        environment.setdefault(name, value)
    limit_arenas(threads_per_rank(), environment)


def _on_cpus(options: TrainingOptions) -> dict[str, str]:
    """Return what suits ranks whose cores compute and exchange; steps are known to be long for keras.applications."""
    is_small = options.model_name == "small_cnn" or options.model_module
    return dict(_ON_CPUS) if is_small else {**_ON_CPUS, **_LONG_STEPS}


def _asked_for(options: MachineOptions, report: Path) -> dict[str, str]:
    """Return Horovod's knobs, as its documentation names them."""
    asked: dict[str, str] = {}
    if options.fusion_threshold_mb:
        asked["HOROVOD_FUSION_THRESHOLD"] = str(options.fusion_threshold_mb << 20)
    if options.cycle_time_ms:
        asked["HOROVOD_CYCLE_TIME"] = f"{options.cycle_time_ms:g}"
    if options.autotune:
        asked["HOROVOD_AUTOTUNE"] = "1"
    if options.timeline:
        asked["HOROVOD_TIMELINE"] = str(report / TIMELINE_FILE)
    return asked


def threads_per_rank() -> int:
    """Return how many cores this process may call its own: those it is bound to, or its share of the node's."""
    share = (os.cpu_count() or 1) // int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    return max(1, min(len(os.sched_getaffinity(0)), share))


def launched_rank() -> int:
    """Return this process's rank as the launcher states it, 0 without one: known before MPI is loaded."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def launched_world_size() -> int:
    """Return the number of ranks as the launcher states it, 1 without one."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def run_id() -> str:
    """Return the run's id as Azure ML states it, ``local`` elsewhere."""
    return os.environ.get("AZUREML_RUN_ID", "local")
