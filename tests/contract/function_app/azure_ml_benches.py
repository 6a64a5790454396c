"""Azure ML in two forms for the contract tests: in memory, and the emulator behind the real client."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from function_app.adapters.azure_ml import AzureMLJobs, AzureMLModels, WorkspaceClient
from function_app.domain.jobs import JobSpec
from function_app.ports import JobService, ModelRegistry
from function_app.testing.azure_ml import MemoryJobs, MemoryModels
from tests.support.azure_ml import (
    RESOURCE_GROUP,
    SUBSCRIPTION,
    TRAINING_ENVIRONMENT,
    WORKSPACE,
    WORKSPACE_ID,
    AzureMl,
)

_NAMES = (f"landfall-contract-{number}-a1" for number in itertools.count())
DATASTORES = (
    f"azureml://subscriptions/{SUBSCRIPTION}/resourcegroups/{RESOURCE_GROUP}/workspaces/{WORKSPACE}/datastores"
)
MODEL = {"model": {"type": "custom_model", "uri": f"{DATASTORES}/landfall_runs/paths/contract/model"}}
COMMANDS = {
    "Completed": "python -c \"print('the beginning'); print('x' * 5000); print('the end')\"",
    "Failed": "python -c \"import sys; print('about to fail'); sys.exit(1)\"",
    "Running": 'python -c "import time; time.sleep(600)"',
}
"""Status → a command that brings an emulated job to it."""


class Bench(Protocol):
    """A job service and a registry, with a way to end their jobs."""

    @property
    def jobs(self) -> JobService:
        """The jobs."""
        ...

    @property
    def models(self) -> ModelRegistry:
        """The models."""
        ...

    def reach(self, name: str, status: str) -> None:
        """Bring a job that was submitted with the status's command to that status."""
        ...

    def versions(self, model: str) -> list[str]:
        """Return the registered versions of a model."""
        ...


@dataclass
class MemoryBench:
    """The shipped doubles."""

    jobs: MemoryJobs = field(default_factory=MemoryJobs)
    models: MemoryModels = field(default_factory=MemoryModels)

    def reach(self, name: str, status: str) -> None:
        self.jobs.logs[name] = {"Completed": "the beginning\nthe end\n", "Failed": "about to fail\n"}.get(status, "")
        self.jobs.become(name, status, error="exit status 1" if status == "Failed" else None)

    def versions(self, model: str) -> list[str]:
        return [version for name, version in self.models.registered if name == model]


@dataclass
class EmulatorBench:
    """The real adapters, the real client, the emulator."""

    emulator: AzureMl
    client: WorkspaceClient
    jobs: JobService
    models: ModelRegistry

    @classmethod
    def of(cls, emulator: AzureMl, client: WorkspaceClient) -> EmulatorBench:
        """Build the bench from its parts."""
        return cls(emulator, client, AzureMLJobs(client), AzureMLModels(client))

    def reach(self, name: str, status: str) -> None:
        self.emulator.await_status(name, status)

    def versions(self, model: str) -> list[str]:
        return [str(one.version) for one in self.client.get().models.list(name=model)]


def job_spec(reaches: str = "Running", *, name: str | None = None, **members: Any) -> JobSpec:
    """Return the spec of a job with its own name and the command that brings it to a status."""
    if not (TRAINING_ENVIRONMENT / "bin" / "mpirun").exists():
        pytest.skip("needs .venv-training with Open MPI: run `make setup`")
    name = name or next(_NAMES)
    tags: Mapping[str, str] = {"landfall.run_id": name, "landfall.spec_hash": f"hash of {reaches}"}
    defaults: dict[str, Any] = {
        "display_name": "a job of the contract tests",
        "experiment": "landfall-contract",
        "command": COMMANDS[reaches],
        "environment_id": f"{WORKSPACE_ID}/environments/training/versions/1",
        "code_id": f"{WORKSPACE_ID}/codes/contract/versions/1",
        "compute": "cluster",
        "num_nodes": 1,
        "processes_per_node": 1,
        "shm_size": "1g",
        "timeout_s": 600,
        "inputs": {},
        "outputs": {},
        "environment_variables": {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "tags": tags,
    }
    return JobSpec(name=name, **(defaults | members))
