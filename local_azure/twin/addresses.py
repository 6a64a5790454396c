"""Options, names and addresses: how a twin is started, and where each of its parts is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_azure.azurite import AZURITE_JS, DATA_ACCOUNT, HOST_ACCOUNT, HOST_ACCOUNT_KEY, connection_string
from local_azure.event_grid.config import DEFAULT_RETRY_SCHEDULE_S
from local_azure.processes import ROOT
from local_azure.twin.state import DEFAULT_PORTS, Ports, Secrets


@dataclass(frozen=True, kw_only=True)
class TwinOptions:
    """The defaults are those of `landfall up`; tests choose shorter delays and other ports."""

    base: Path = ROOT / ".landfall"
    """Folder of all twins of this clone."""
    pipelines: Path = ROOT / "pipelines"
    ports: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PORTS))
    """Port to try first for each service; a taken one is replaced by the next free one."""
    node_start_delay_s: float = 2.0
    node_idle_s: float = 120.0
    environment_build_s: float = 1.0
    reconcile_schedule: str = "0 * * * * *"
    """Every minute, because a person waits; a deployment sweeps less often."""
    claim_lease_s: int = 60
    """Seconds after which a sweep takes over the claims of a killed twin."""
    own_host: bool = False
    """Whether the user runs the Functions host, for example with `func start`."""
    sweep_grace_s: int = 10
    """The sweep skips what is younger, in seconds; a deployment needs more, as events may take minutes."""
    more_settings: Mapping[str, str] = field(default_factory=dict)
    """App settings that are added to the twin's own, or override them."""
    event_retry_schedule_s: tuple[float, ...] = DEFAULT_RETRY_SCHEDULE_S
    """Pauses before each delivery attempt of an event; after the last attempt it becomes a dead letter."""
    queue_lease_s: float = 30.0
    """Time after which the messages of a killed dev host are delivered to the next one."""
    fault: str | None = None
    """What goes wrong with every job: a name in ``FAULTS`` of the Azure ML emulator."""
    training_python: Path = ROOT / ".venv-training"
    """The virtual environment that stands for the training image."""
    azurite: Path = AZURITE_JS


QUARANTINE_CONTAINER = "quarantine"
"""For copies of rejected shards, where a pipeline wants them."""
DATA_CONTAINER, STATE_CONTAINER, RUNS_CONTAINER, WORKSPACE_CONTAINER = "datasets", "landfall", "runs", "azureml"
DEAD_LETTER_CONTAINER = "landfall-dead-letters"
QUEUES = ("shard-uploaded", "shard-uploaded-bulk", "training-requested", "run-changed", "sweep-requested")

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
RESOURCE_GROUP = "landfall-local"
WORKSPACE = "landfall-local"
FUNCTION_APP_IDENTITY = "00000000-0000-0000-0000-0000000000fa"
"""Client id under which the function app calls Azure ML; the log of calls shows it."""
OPERATOR_IDENTITY = "00000000-0000-0000-0000-00000000000c"
"""Client id under which environment and code are published."""
CLUSTER_IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/landfall-cluster"
)
"""The identity with which jobs mount datastores; it has roles on both accounts."""
PEOPLE_WEBHOOK = "people"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where each part of one twin is; all of it follows from the folder, the ports and the secrets."""

    folder: Path
    ports: Ports
    secrets: Secrets

    @property
    def functions_url(self) -> str:
        """The dev host: HTTP API and /admin."""
        return f"http://127.0.0.1:{self.ports['functions']}"

    @property
    def azure_ml_url(self) -> str:
        """The Azure ML emulator; by name, as its certificate is for a name."""
        return f"https://localhost:{self.ports['azure_ml']}"

    @property
    def event_grid_url(self) -> str:
        """The Event Grid emulator."""
        return f"http://127.0.0.1:{self.ports['event_grid']}"

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that the Azure ML emulator makes."""
        return self.folder / "azure_ml" / "ca.pem"

    @property
    def access_log(self) -> Path:
        """Azurite's log of requests, which the Event Grid emulator follows."""
        return self.logs / "azurite-access.log"

    @property
    def logs(self) -> Path:
        """Folder of every part's log."""
        return self.folder / "logs"

    @property
    def traces(self) -> Path:
        """Folder of the function app's traces, a file for each."""
        return self.folder / "traces"

    @property
    def local_settings(self) -> Path:
        """The app settings, for a Functions host that the user starts."""
        return self.folder / "local.settings.json"

    @property
    def host_connection(self) -> str:
        """Connection string of the host's account: blobs, queues, tables."""
        return connection_string(HOST_ACCOUNT, HOST_ACCOUNT_KEY, self.ports.numbers)

    @property
    def data_connection(self) -> str:
        """Connection string of the data account: blobs only, as a premium account has it."""
        return connection_string(DATA_ACCOUNT, self.secrets.data_account_key, self.ports.numbers, services=["blob"])

    @property
    def webhook_url(self) -> str:
        """The plain webhook that stands for the people's chat."""
        return f"{self.event_grid_url}/webhooks/{PEOPLE_WEBHOOK}"

    @property
    def identity(self) -> Mapping[str, str]:
        """What makes Microsoft's unmodified clients talk to the Azure ML emulator."""
        return {
            "AZUREML_DEV_URL_MFE": self.azure_ml_url,
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
            "IDENTITY_ENDPOINT": f"{self.azure_ml_url}/msi/token",
            "IDENTITY_HEADER": self.secrets.identity_header,
        }
