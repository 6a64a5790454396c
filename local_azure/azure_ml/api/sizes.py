"""VM sizes and quotas of the emulator's region, and the refusal of clusters with sizes that it does not have."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.workspace import COMPUTES
from shared.vm_sizes import checked_name, retirement, vm_size, vm_size_names

CPU_SIZES = ("Standard_D2s_v3", "Standard_D4s_v3", "Standard_D8s_v5", "Standard_DS3_v2")
LIMIT_VCPUS = 10_000
"""Quota of each family. A new subscription in Azure has no GPU quota."""
LOW_PRIORITY_QUOTA = "Total Cluster LowPriority Regional vCPUs"
_NAME = re.compile(r"Standard_([A-Z]+)(\d+)([a-z]*)((?:_[A-Z]\w*?)?)(?:_(v\d+))?", re.IGNORECASE)


def list_sizes(emulator: Emulator, call: Call) -> Answer:
    """List the sizes of the region."""
    _check_reader(emulator, call, "vmSizes")
    return Answer(body={"value": [_described(name) for name in _offered(emulator.settings.location)]})


def list_usages(emulator: Emulator, call: Call) -> Answer:
    """List the region's quotas and their usage by clusters: one for each family, and one for low priority."""
    _check_reader(emulator, call, "usages")
    offered = {name.lower(): name for name in _offered(emulator.settings.location)}
    names = dict.fromkeys(_quota_name(name, "Dedicated") for name in offered.values())
    used: Counter[str] = Counter()
    for compute in emulator.store.below(COMPUTES, f"/subscriptions/{call.path.split('/')[2]}/"):
        own = compute["properties"].get("properties") or {}
        size = offered.get(own["vmSize"].lower(), own["vmSize"])  # Sizes compare without case.
        nodes = len(emulator.pool.snapshot(compute["id"]).nodes)
        used[_quota_name(size, own["vmPriority"])] += nodes * int(_described(size)["vCPUs"])
    return Answer(body={"value": [_usage(name, used[name]) for name in (*names, LOW_PRIORITY_QUOTA)]})


def _check_reader(emulator: Emulator, call: Call, kind: str) -> None:
    """Raise ServiceError 403, like Azure Resource Manager, if the caller has no role on the subscription."""
    caller, scope = emulator.tokens.caller(call.headers.get("Authorization")), "/".join(call.path.split("/")[:3])
    if caller not in emulator.settings.subscription_readers:
        raise ServiceError(
            403,
            "AuthorizationFailed",
            f"The client '{caller}' with object id '{caller}' does not have authorization to perform action "
            f"'Microsoft.MachineLearningServices/locations/{kind}/read' over scope '{scope}' or the scope is "
            "invalid. If access was recently granted, please refresh your credentials.",
        )


def _quota_name(size: str, priority: str) -> str:
    return (
        LOW_PRIORITY_QUOTA if priority != "Dedicated" else f"Standard {_family(size)} Family Cluster Dedicated vCPUs"
    )


def check_size(name: str | None, location: str) -> None:
    """Raise ServiceError if the region has no such size, with the text of a recorded refusal.

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
    """Return the family of a size, such as `NCSv3` for Standard_NC6s_v3; Azure's own spelling varies."""
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


def _usage(name: str, used: int) -> dict[str, Any]:
    return {
        "unit": "Count",
        "currentValue": used,
        "limit": LIMIT_VCPUS,
        "name": {"value": name, "localizedValue": name},
    }
