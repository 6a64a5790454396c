"""Options of a twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_azure.azurite import AZURITE_JS
from local_azure.event_grid.config import DEFAULT_RETRY_SCHEDULE_S
from local_azure.ports import DEFAULTS
from local_azure.processes import ROOT


@dataclass(frozen=True, kw_only=True)
class TwinOptions:
    """The defaults are those of `landfall up`; tests choose shorter delays and other ports."""

    base: Path = ROOT / ".landfall"
    """Folder of all twins of this clone."""
    pipelines: Path = ROOT / "pipelines"
    ports: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULTS))
    """Where to look for free ports, by name."""
    node_start_delay_s: float = 2.0
    node_idle_s: float = 120.0
    environment_build_s: float = 1.0
    reconcile_schedule: str = "0 * * * * *"
    """Every minute, as a person waits; a deployment sweeps less often."""
    claim_lease_s: int = 60
    """The first sweep after this time takes over what a killed twin was doing."""
    own_host: bool = False
    """True where the user runs the Functions host, such as `func start`."""
    sweep_grace_s: int = 10
    """The sweep leaves alone what is younger; more in Azure, where events may take minutes."""
    more_settings: Mapping[str, str] = field(default_factory=dict)
    """App settings that are added to the twin's own, or override them."""
    event_retry_schedule_s: tuple[float, ...] = DEFAULT_RETRY_SCHEDULE_S
    """Pauses before each delivery of an event; after the last one it becomes a dead letter."""
    queue_lease_s: float = 30.0
    """The message of a killed dev host is delivered to the next one after this time."""
    training_python: Path = ROOT / ".venv-training"
    """The virtual environment that stands for the training image."""
    azurite: Path = AZURITE_JS
