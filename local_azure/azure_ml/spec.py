"""A command job to run, read from the properties in a client's PUT."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local_azure.azure_ml.service import ServiceError, duration_s
from shared.job_arguments import SIMULATED

_PLACEHOLDER = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z_][\w.-]*?)\s*\}\}")
_ANY = re.compile(r"\$\{\{.*?\}\}")


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The command to run, with its nodes and data."""

    command: str
    environment_id: str
    compute_id: str
    code_id: str | None
    inputs: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Mapping[str, Any]]
    instance_count: int
    distribution: str | None  # Mpi, PyTorch or TensorFlow; None: the command runs once
    processes_per_instance: int | None  # None without a distribution
    timeout_s: float | None
    environment_variables: Mapping[str, str]


def job_spec(properties: Mapping[str, Any]) -> JobSpec:
    """Read a job that fits the schema. Raises ServiceError 400 for violations that the schema cannot express."""
    inputs, outputs = _members(properties, "inputs"), _members(properties, "outputs")
    _check_placeholders(properties["command"], inputs, outputs)
    _check_variables(_members(properties, "environmentVariables"))
    return JobSpec(
        command=properties["command"],
        environment_id=properties["environmentId"],
        compute_id=_compute_id(properties),
        code_id=properties.get("codeId"),
        inputs=inputs,
        outputs=outputs,
        instance_count=int(_members(properties, "resources").get("instanceCount") or 1),
        distribution=(properties.get("distribution") or {}).get("distributionType"),
        processes_per_instance=_processes(properties),
        timeout_s=_timeout_s(properties),
        environment_variables=_members(properties, "environmentVariables"),
    )


def _members(properties: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    members: Mapping[str, Any] = properties.get(name) or {}
    return members


def _compute_id(properties: Mapping[str, Any]) -> str:
    compute_id = properties.get("computeId")
    if not compute_id:
        raise ServiceError(400, "UserError", "A computeId is required: this emulator has no serverless compute.")
    return str(compute_id)


def _processes(properties: Mapping[str, Any]) -> int | None:
    distribution = properties.get("distribution")
    if not distribution:
        return None
    if distribution["distributionType"] == "TensorFlow":
        return _workers_per_instance(distribution, int(_members(properties, "resources").get("instanceCount") or 1))
    return int(distribution.get("processCountPerInstance") or 1)


def _workers_per_instance(distribution: Mapping[str, Any], instances: int) -> int:
    """Return 1. Raises ServiceError 400 for other numbers, which the service's documents do not describe."""
    if distribution.get("parameterServerCount"):
        raise ServiceError(400, "UserError", "distribution.parameterServerCount: this emulator runs workers only.")
    workers = distribution.get("workerCount") or instances
    if workers != instances:
        raise ServiceError(
            400,
            "UserError",
            f"distribution.workerCount: {workers} workers do not fit {instances} nodes, one each.",
        )
    return 1


def _timeout_s(properties: Mapping[str, Any]) -> float | None:
    text = _members(properties, "limits").get("timeout")
    try:
        return None if text is None else duration_s(text)
    except ValueError as error:
        raise ServiceError(400, "UserError", f"limits.timeout: {error}.") from error


def _check_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables that only the emulator may set, and that no job may set in the service either."""
    taken = sorted(name for name in variables if name.startswith(SIMULATED))
    if taken:
        raise ServiceError(
            400, "UserError", f"environmentVariables: {', '.join(taken)} is set by this emulator alone."
        )


def _check_placeholders(command: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    unknown = unknown_placeholders(command, set(inputs), set(outputs))
    if unknown:
        raise ServiceError(
            400, "UserError", f"The command refers to {', '.join(unknown)}, which is no input or output of the job."
        )


def expand(command: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Replace every placeholder by its value. Raises KeyError with the first placeholder that has no value."""
    values = {"inputs": inputs, "outputs": outputs}
    return _PLACEHOLDER.sub(lambda match: values[match[1]][match[2]], command)


def unknown_placeholders(command: str, inputs: set[str], outputs: set[str]) -> list[str]:
    """Return the placeholders of `command` that are neither an input nor an output of the job, in order."""
    known = {"inputs": inputs, "outputs": outputs}
    unknown = []
    for match in _ANY.finditer(command):
        placeholder = _PLACEHOLDER.fullmatch(match[0])
        if placeholder is None or placeholder[2] not in known[placeholder[1]]:
            unknown.append(match[0])
    return unknown
