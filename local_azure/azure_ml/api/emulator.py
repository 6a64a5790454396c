"""All parts of a running emulator, as the handlers share them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from local_azure.azure_ml.api.call_log import CallLog
from local_azure.azure_ml.api.faults import Faults
from local_azure.azure_ml.execution import Workbench
from local_azure.azure_ml.executions import Executions
from local_azure.azure_ml.pool import ClusterPool
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.store import Store
from local_azure.azure_ml.tokens import TokenIssuer


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """Everything a handler may need."""

    bench: Workbench
    executions: Executions
    tokens: TokenIssuer
    calls: CallLog
    faults: Faults
    submission_lock: threading.Lock = field(default_factory=threading.Lock)  # one PUT decides a name at a time

    @property
    def settings(self) -> Settings:
        """How the emulator was told to run."""
        return self.bench.settings

    @property
    def store(self) -> Store:
        """Assets, computes and datastores."""
        return self.bench.store

    @property
    def runs(self) -> RunBook:
        """Runs."""
        return self.bench.runs

    @property
    def storage(self) -> Storage:
        """Blobs."""
        return self.bench.storage

    @property
    def pool(self) -> ClusterPool:
        """Clusters."""
        return self.bench.pool
