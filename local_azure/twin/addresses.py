"""Options, names and addresses of a twin and its parts."""

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
    """Options of a twin. The defaults are for `landfall up`; tests use shorter delays and other ports."""

    base: Path = ROOT / ".landfall"
    """Folder of all twins of this clone."""
    pipelines: Path = ROOT / "pipelines"
    ports: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PORTS))
    """Port to try first for each service; the next free port is used if it is taken."""
    node_start_delay_s: float = 2.0
    node_idle_s: float = 120.0
    environment_build_s: float = 1.0
    reconcile_schedule: str = "0 * * * * *"
    """Schedule of the sweep: every minute, because a person waits. A deployment sweeps less often."""
    claim_lease_s: int = 60
    """Seconds after which a sweep takes over the claims of a killed twin."""
    own_host: bool = False
    """Whether the user starts the Functions host, for example with `func start`."""
    sweep_grace_s: int = 10
    """Seconds before the sweep checks an item; a deployment needs more, because events may take minutes."""
    more_settings: Mapping[str, str] = field(default_factory=dict)
    """App settings that are added to the twin's settings, or override them."""
    event_retry_schedule_s: tuple[float, ...] = DEFAULT_RETRY_SCHEDULE_S
    """Pauses before each delivery attempt of an event; after the last attempt it becomes a dead letter."""
    queue_lease_s: float = 30.0
    """Time after which the messages of a killed dev host are delivered again."""
    fault: str | None = None
    """Fault of every job: a name in ``FAULTS`` of the Azure ML emulator."""
    training_python: Path = ROOT / ".venv-training"
    """The virtual environment that stands for the training image."""
    azurite: Path = AZURITE_JS


QUARANTINE_CONTAINER = "quarantine"
"""Container for copies of rejected shards, if a pipeline keeps them."""
DATA_CONTAINER, STATE_CONTAINER, RUNS_CONTAINER, WORKSPACE_CONTAINER = "datasets", "landfall", "runs", "azureml"
DEAD_LETTER_CONTAINER = "landfall-dead-letters"
QUEUES = ("shard-uploaded", "shard-uploaded-bulk", "training-requested", "run-changed", "sweep-requested")

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
RESOURCE_GROUP = "landfall-local"
WORKSPACE = "landfall-local"
FUNCTION_APP_IDENTITY = "00000000-0000-0000-0000-0000000000fa"
"""Client id with which the function app calls Azure ML, as in the log of calls."""
OPERATOR_IDENTITY = "00000000-0000-0000-0000-00000000000c"
"""Client id with which environment and code are published."""
CLUSTER_IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/landfall-cluster"
)
"""Identity with which jobs mount datastores; it has roles on both accounts."""
PEOPLE_WEBHOOK = "people"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Addresses and paths of a twin's parts, derived from the folder, the ports and the secrets."""

    folder: Path
    ports: Ports
    secrets: Secrets

    @property
    def functions_url(self) -> str:
        """Address of the dev host, for the HTTP API and /admin."""
        return f"http://127.0.0.1:{self.ports['functions']}"

    @property
    def azure_ml_url(self) -> str:
        """Address of the Azure ML emulator, by host name because of its certificate."""
        return f"https://localhost:{self.ports['azure_ml']}"

    @property
    def event_grid_url(self) -> str:
        """Address of the Event Grid emulator."""
        return f"http://127.0.0.1:{self.ports['event_grid']}"

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that the Azure ML emulator creates."""
        return self.folder / "azure_ml" / "ca.pem"

    @property
    def access_log(self) -> Path:
        """Azurite's log of requests, which the Event Grid emulator follows."""
        return self.logs / "azurite-access.log"

    @property
    def logs(self) -> Path:
        """Folder with the logs of all parts."""
        return self.folder / "logs"

    @property
    def traces(self) -> Path:
        """Folder with the function app's traces, one file each."""
        return self.folder / "traces"

    @property
    def local_settings(self) -> Path:
        """File with the app settings, for a Functions host that the user starts."""
        return self.folder / "local.settings.json"

    @property
    def host_connection(self) -> str:
        """Connection string of the host's account, for blobs, queues and tables."""
        return connection_string(HOST_ACCOUNT, HOST_ACCOUNT_KEY, self.ports.numbers)

    @property
    def data_connection(self) -> str:
        """Connection string of the data account, which has only blobs, like a premium account."""
        return connection_string(DATA_ACCOUNT, self.secrets.data_account_key, self.ports.numbers, services=["blob"])

    @property
    def webhook_url(self) -> str:
        """The plain webhook that stands for a chat."""
        return f"{self.event_grid_url}/webhooks/{PEOPLE_WEBHOOK}"

    @property
    def identity(self) -> Mapping[str, str]:
        """Variables that make Microsoft's unmodified clients use the Azure ML emulator."""
        return {
            "AZUREML_DEV_URL_MFE": self.azure_ml_url,
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
            "IDENTITY_ENDPOINT": f"{self.azure_ml_url}/msi/token",
            "IDENTITY_HEADER": self.secrets.identity_header,
        }
