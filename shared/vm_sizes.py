"""GPU sizes of Azure ML compute, with the properties that matter for training.

Source: Microsoft's size and retirement pages, read in November 2026. Retirement dates are for public regions.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

Device = Literal["gpu", "cpu"]


@dataclass(frozen=True, kw_only=True)
class VmSize:
    """One VM size."""

    name: str
    num_gpus: int
    gpu: str
    gpu_memory_gb: int
    infiniband: bool
    retired: str | None = None
    """Date and place of the size's retirement, in words; None while it is available."""
    successor: str | None = None
    still_in: tuple[str, ...] = ()
    """Regions that still have the retired size."""


_NCV3_END = "retired 2025-09-30 in public regions"
_NCV3_RDMA_END = "retired in public regions in 2025; China North 3 and Jio India West until 2027-06-30"
_H100 = "Standard_NC40ads_H100_v5"

_SIZES = (
    VmSize(
        name="Standard_NC6s_v3",
        num_gpus=1,
        gpu="V100",
        gpu_memory_gb=16,
        infiniband=False,
        retired=_NCV3_END,
        successor=_H100,
    ),
    VmSize(
        name="Standard_NC12s_v3",
        num_gpus=2,
        gpu="V100",
        gpu_memory_gb=16,
        infiniband=False,
        retired=_NCV3_END,
        successor=_H100,
    ),
    VmSize(
        name="Standard_NC24s_v3",
        num_gpus=4,
        gpu="V100",
        gpu_memory_gb=16,
        infiniband=False,
        retired=_NCV3_END,
        successor=_H100,
    ),
    VmSize(
        name="Standard_NC24rs_v3",
        num_gpus=4,
        gpu="V100",
        gpu_memory_gb=16,
        infiniband=True,
        retired=_NCV3_RDMA_END,
        successor="Standard_ND96asr_v4",
        still_in=("chinanorth3", "jioindiawest"),
    ),
    VmSize(name="Standard_NC24ads_A100_v4", num_gpus=1, gpu="A100", gpu_memory_gb=80, infiniband=False),
    VmSize(name="Standard_NC48ads_A100_v4", num_gpus=2, gpu="A100", gpu_memory_gb=80, infiniband=False),
    VmSize(name="Standard_NC96ads_A100_v4", num_gpus=4, gpu="A100", gpu_memory_gb=80, infiniband=False),
    VmSize(name="Standard_NC40ads_H100_v5", num_gpus=1, gpu="H100", gpu_memory_gb=94, infiniband=False),
    VmSize(name="Standard_NC80adis_H100_v5", num_gpus=2, gpu="H100", gpu_memory_gb=94, infiniband=False),
    VmSize(name="Standard_ND40rs_v2", num_gpus=8, gpu="V100", gpu_memory_gb=32, infiniband=True),
    VmSize(name="Standard_ND96asr_v4", num_gpus=8, gpu="A100", gpu_memory_gb=40, infiniband=True),
    VmSize(name="Standard_ND96amsr_A100_v4", num_gpus=8, gpu="A100", gpu_memory_gb=80, infiniband=True),
    VmSize(name="Standard_ND96isr_H100_v5", num_gpus=8, gpu="H100", gpu_memory_gb=80, infiniband=True),
    VmSize(name="Standard_ND96isr_H200_v5", num_gpus=8, gpu="H200", gpu_memory_gb=141, infiniband=True),
    VmSize(name="Standard_NV36ads_A10_v5", num_gpus=1, gpu="A10", gpu_memory_gb=24, infiniband=False),
    VmSize(name="Standard_NV36adms_A10_v5", num_gpus=1, gpu="A10", gpu_memory_gb=24, infiniband=False),
    VmSize(name="Standard_NV72ads_A10_v5", num_gpus=2, gpu="A10", gpu_memory_gb=24, infiniband=False),
    VmSize(name="Standard_NC4as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC8as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC16as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC64as_T4_v3", num_gpus=4, gpu="T4", gpu_memory_gb=16, infiniband=False),
)
_BY_NAME = {size.name.lower(): size for size in _SIZES}
_NEWEST = 5
"""Newest version of a size in the table; Azure may have newer ones."""
_NAME = re.compile(
    r"Standard_(?P<family>[A-Z]{1,3})[0-9]+(-[0-9]+)?[a-z]*(_(?!v[0-9]+$)[A-Z][A-Za-z0-9]*)*(_v(?P<version>[0-9]{1,2}))?",
    re.IGNORECASE,
)
"""https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions"""


def vm_size(name: str) -> VmSize | None:
    """Return the properties of a size, None if it is not in the table. Names compare without case."""
    return _BY_NAME.get(name.lower())


def vm_size_names() -> tuple[str, ...]:
    """Return the names of the sizes in the table."""
    return tuple(size.name for size in _SIZES)


def retirement(name: str, region: str | None = None) -> str | None:
    """Return why a region no longer has a size, and its successor; None if the region may have it.

    Without a region, the size must be retired in all regions.
    """
    known = vm_size(name)
    if known is None or known.retired is None or (region in known.still_in if region else known.still_in):
        return None
    return f"{known.name} is {known.retired}; its successor is {known.successor}"


def checked_gpu(name: str) -> str:
    """Return the name of a GPU in the table. Raises ValueError for other names."""
    known = sorted({size.gpu for size in _SIZES})
    if name not in known:
        raise ValueError(f"must be a GPU of an Azure VM size: {', '.join(known)}")
    return name


def similar_sizes(name: str) -> str:
    """Return a suggestion for a name that is not in the table: similar names, or all names."""
    known = {each.lower(): each for each in vm_size_names()}
    near = difflib.get_close_matches(name.lower(), known, n=3)
    if near:
        return f"did you mean {', '.join(known[each] for each in near)}?"
    return f"known are {', '.join(known.values())}"


def checked_name(name: str) -> str:
    """Return the name of a size that may exist: it is in the table, has no GPUs, or is newer than the table.

    Raises ValueError with a suggestion for other names.
    """
    found = _NAME.fullmatch(name)
    is_gpu_size = found is not None and found["family"].upper().startswith("N")
    is_newer = found is not None and int(found["version"] or 0) > _NEWEST
    if found is None or (is_gpu_size and not is_newer and vm_size(name) is None):
        raise ValueError(f"must be an Azure VM size; {similar_sizes(name)}")
    return name


def device_of(name: str) -> Device:
    """Return the device of a rank: ``gpu`` if the size has GPUs.

    If a size is not in the table, its name decides: Microsoft's sizes with GPUs are in family N.
    """
    known = vm_size(name)
    has_gpus = known.num_gpus > 0 if known else name.lower().removeprefix("standard_").startswith("n")
    return "gpu" if has_gpus else "cpu"


def check_gpus(name: str, processes_per_node: int) -> None:
    """Raise ValueError if the processes of a node would have to share its GPUs."""
    known = vm_size(name)
    if known is not None and processes_per_node > known.num_gpus:
        raise ValueError(f"processes_per_node must be at most {known.num_gpus}, the number of GPUs of {known.name}")


def network_environment(name: str) -> dict[str, str]:
    """Return NCCL's environment for a size.

    Without InfiniBand, NCCL must not look for it; with InfiniBand nothing is set. If a size is not in the table, its
    name decides: an ``r`` among its feature letters means InfiniBand.
    """
    known = vm_size(name)
    infiniband = known.infiniband if known else _is_rdma_name(name)
    return {} if infiniband else {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}


def _is_rdma_name(name: str) -> bool:
    letters = name.lower().removeprefix("standard_").partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    return "r" in letters


def is_quota_of(quota: str, family: str, priority: str) -> bool:
    """Whether a quota of Azure ML limits a family's sizes in clusters with a priority, "dedicated" or "low".

    The list of sizes has the name `standardNCSv3Family`, the list of quotas
    `Standard NCSv3 Family Cluster Dedicated vCPUs`. Low priority has one quota for all families.
    """
    wanted = "lowpriority" if priority == "low" else _letters(family)
    found = _letters(quota)
    return wanted in found and ("lowpriority" in found) == (priority == "low")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
