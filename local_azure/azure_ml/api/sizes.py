"""VM sizes and quotas of the emulator's region, and the refusal of a cluster that the region has no nodes for."""

from __future__ import annotations

import re
from typing import Any

from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.service import ServiceError
from shared.vm_sizes import checked_name, retirement, vm_size, vm_size_names

CPU_SIZES = ("Standard_D2s_v3", "Standard_D4s_v3", "Standard_D8s_v5", "Standard_DS3_v2")
LIMIT_VCPUS = 10_000
"""Quota of each family; a real subscription begins with none for GPUs."""
_NAME = re.compile(r"Standard_([A-Z]+)(\d+)([a-z]*)((?:_[A-Z]\w*?)?)(?:_(v\d+))?", re.IGNORECASE)


def list_sizes(emulator: Emulator, _call: Call) -> Answer:
    """List the sizes of the region."""
    return Answer(body={"value": [_described(name) for name in _offered(emulator.settings.location)]})


def list_usages(emulator: Emulator, _call: Call) -> Answer:
    """List the quotas of the region: one for each family, and one for low priority."""
    families = dict.fromkeys(_family(name) for name in _offered(emulator.settings.location))
    names = [f"Standard {family} Family Cluster Dedicated vCPUs" for family in families]
    return Answer(body={"value": [_usage(name) for name in (*names, "Total Cluster LowPriority Regional vCPUs")]})


def check_size(name: str | None, location: str) -> None:
    """Raise ServiceError where the region has no such size, with the words of a recorded refusal.

    Source: github.com/Azure/MachineLearningNotebooks, issue 1169.
    """
    try:
        refused = name is None or retirement(checked_name(name), location) is not None
    except ValueError:
        refused = True
    if refused:
        raise ServiceError(
            400,
            "InvalidPropertyValue",
            f"The specified value {name} for property Cluster.Properties.VMSize is not a supported VM size. See "
            f"additional details for supported VM sizes: {','.join(map(str.upper, _offered(location)))}",
        )


def _offered(location: str) -> list[str]:
    return [*CPU_SIZES, *(name for name in vm_size_names() if retirement(name, location) is None)]


def _family(name: str) -> str:
    """Return the family of a size, as in `NCSv3` for Standard_NC6s_v3; Azure's own spelling varies."""
    found = _NAME.fullmatch(name)
    letters, _, features, accelerator, version = found.groups() if found else (name, "", "", "", "")
    return f"{letters}{features.upper()}{accelerator.strip('_')}{version or ''}"


def _described(name: str) -> dict[str, Any]:
    known, found = vm_size(name), _NAME.fullmatch(name)
    return {
        "name": name,
        "family": f"standard{_family(name)}Family",
        "vCPUs": int(found[2]) if found else 1,
        "gpus": known.num_gpus if known else 0,
        "lowPriorityCapable": True,
        "supportedComputeTypes": ["AmlCompute", "ComputeInstance"],
    }


def _usage(name: str) -> dict[str, Any]:
    return {
        "unit": "Count",
        "currentValue": 0,
        "limit": LIMIT_VCPUS,
        "name": {"value": name, "localizedValue": name},
    }
