"""What can be chosen about a twin."""

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
    """Every minute: somebody waits. A deployment has no reason to look so often."""
    claim_lease_s: int = 60
    """What a killed twin was at is taken over by the first sweep after so long."""
    own_host: bool = False
    """True: whoever starts the twin runs a Functions host of their own, such as `func start`."""
    sweep_grace_s: int = 10
    """What is younger is left alone by the sweep; in Azure, where events may take minutes, it is more."""
    more_settings: Mapping[str, str] = field(default_factory=dict)
    """App settings beside those that the twin's parts need, or in their place."""
    event_retry_schedule_s: tuple[float, ...] = DEFAULT_RETRY_SCHEDULE_S
    """Pauses before each delivery of an event; after the last one it is given up."""
    queue_lease_s: float = 30.0
    """After so long the message of a killed dev host is delivered to the next one."""
    training_python: Path = ROOT / ".venv-training"
    """The virtual environment that stands for the training image."""
    azurite: Path = AZURITE_JS
