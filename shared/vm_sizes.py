"""GPU sizes of Azure ML compute, with the properties that decide how to train on them.

Source: Microsoft's size and retirement pages, read in November 2026. Retirement dates are for public regions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class VmSize:
    """One VM size."""

    name: str
    num_gpus: int
    gpu: str
    gpu_memory_gb: int
    infiniband: bool
    retired: str | None = None
    """When and where the size was retired, in words; None while it is available."""
    successor: str | None = None


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
    VmSize(name="Standard_NC4as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC8as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC16as_T4_v3", num_gpus=1, gpu="T4", gpu_memory_gb=16, infiniband=False),
    VmSize(name="Standard_NC64as_T4_v3", num_gpus=4, gpu="T4", gpu_memory_gb=16, infiniband=False),
)
_BY_NAME = {size.name.lower(): size for size in _SIZES}


def vm_size(name: str) -> VmSize | None:
    """Return what is known about a size (names compare without case), or None for one not in the table."""
    return _BY_NAME.get(name.lower())


def vm_size_names() -> tuple[str, ...]:
    """Return the names of the sizes in the table."""
    return tuple(size.name for size in _SIZES)


def network_environment(name: str) -> dict[str, str]:
    """Return NCCL's environment for a size.

    Without InfiniBand, NCCL must not look for it; with InfiniBand nothing is set. For a size that is not in the
    table, Microsoft's naming decides: an ``r`` among its feature letters means InfiniBand.
    """
    known = vm_size(name)
    infiniband = known.infiniband if known else _is_rdma_name(name)
    return {} if infiniband else {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}


def _is_rdma_name(name: str) -> bool:
    letters = name.lower().removeprefix("standard_").partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")
    return "r" in letters
