"""How the emulators and the dev host are started, by the twin and by tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_azure.processes import Program, clean_environment, module_command

AZURE_ML = "the Azure ML emulator"
EVENT_GRID = "the Event Grid emulator"
FUNCTIONS_HOST = "the Functions dev host"
"""Names of the programs in messages."""
ANY_PORT = 0
"""The server takes a free port; its ready line says which."""
_LISTENING = "listening http"


def azure_ml_program(
    *,
    log: Path,
    state: Path,
    storage: Mapping[str, str],
    identity_header: str,
    topic_key: str = "",
    port: int = ANY_PORT,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Program:
    """Return the Azure ML emulator. `storage`: account to connection string, the host's account first."""
    return Program(
        name=AZURE_ML,
        command=[*module_command("local_azure.azure_ml", port=port, state=state), *options],
        environment={
            **clean_environment(),
            "LANDFALL_TWIN_STORAGE": json.dumps(dict(storage)),
            "LANDFALL_TWIN_TOPIC_KEY": topic_key,
            "IDENTITY_HEADER": identity_header,
            **(variables or {}),
        },
        log=log,
        ready=_LISTENING,
        grace_s=8.0,
    )


def event_grid_program(
    *, log: Path, config: Path, settings: Mapping[str, str], topic_key: str, port: int = ANY_PORT
) -> Program:
    """Return the Event Grid emulator. `settings` hold the storage connections that the configuration names."""
    return Program(
        name=EVENT_GRID,
        command=module_command("local_azure.event_grid", port=port, config=config),
        environment={**clean_environment(), **settings, "LANDFALL_TWIN_TOPIC_KEY": topic_key},
        log=log,
        ready=_LISTENING,
    )


def functions_host_program(
    *, log: Path, root: Path, settings: Mapping[str, str], port: int = ANY_PORT, options: Sequence[str] = ()
) -> Program:
    """Return the dev host with the function app in `root`, whose app settings are `settings`."""
    return Program(
        name=FUNCTIONS_HOST,
        command=[*module_command("local_azure.functions_host", root=root, port=port), *options],
        environment={**clean_environment(), **settings},
        log=log,
        ready=_LISTENING,
    )


def listening_url(ready_line: str) -> str:
    """Return the address in an emulator's ready line, without a slash at the end."""
    return ready_line.rpartition(" ")[2]
