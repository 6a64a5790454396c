"""Jobs and models of Azure ML: what is submitted, its status, and what is registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SPEC_HASH_TAG = "landfall.spec_hash"
"""The tag that tells whether an existing job of the same name is the one that was submitted."""


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where jobs run, and what was registered there at deployment."""

    subscription_id: str
    resource_group: str
    name: str
    environment_id: str
    """Full ARM id with its version, as is ``code_id``."""
    code_id: str
    data_datastore: str
    state_datastore: str
    runs_datastore: str

    def datastore_uri(self, datastore: str, path: str) -> str:
        """Return the full ``azureml://`` uri of a path in a datastore, valid from any workspace."""
        where = f"subscriptions/{self.subscription_id}/resourcegroups/{self.resource_group}/workspaces/{self.name}"
        return f"azureml://{where}/datastores/{datastore}/paths/{path}"


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One Azure ML command job, fully resolved; every id is a full ARM id, every uri a full datastore uri."""

    name: str
    display_name: str
    experiment: str
    command: str
    environment_id: str
    code_id: str
    compute: str
    num_nodes: int
    processes_per_node: int
    shm_size: str
    timeout_s: int
    inputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_file | uri_folder, uri}; read-only mounts."""
    outputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_folder | custom_model, uri}; read-write mounts."""
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as Azure ML sees it."""

    name: str
    status: str
    """Azure ML's status: ``Queued``, ``Running``, ``Completed`` …"""
    tags: Mapping[str, str] = field(default_factory=dict)
    studio_url: str | None = None
    error: str | None = None
    """The service's message for a failed job, where it has one."""
    error_code: str | None = None
    """The service's error codes, outermost first: ``UserError/ExecutionFailed``."""


@dataclass(frozen=True, kw_only=True)
class ModelRegistration:
    """A model version to register. The version is explicit, so repeating the call changes nothing."""

    name: str
    version: str
    path: str
    """``azureml://jobs/<run_id>/outputs/model``."""
    description: str
    tags: Mapping[str, str]
    """Lineage: run, dataset version, fingerprint, code, metrics."""
