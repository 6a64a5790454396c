"""The emulator's settings from flags and environment, which are checked before it starts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from local_azure.azure_ml.cluster import Delays
from local_azure.azure_ml.faults import FAULTS, NamedFault, fault_named


class LogAddresses(StrEnum):
    """Addresses of a job's logs in the run history. Which of the last two Azure ML has without keys is unknown."""

    SIGNED = "signed"
    """Addresses that anyone can read, as with storage that accepts keys."""
    UNSIGNED = "unsigned"
    """Addresses that storage refuses to read without an identity."""
    NONE = "none"


class SettingsError(Exception):
    """Flags or environment are missing or wrong; the message names every problem."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of an emulator. Durations are in seconds."""

    port: int  # 0 for a free port
    state: Path
    location: str
    environments: Mapping[str, Path]  # name of an environment asset → virtual environment that stands for it
    storage: Mapping[str, str]  # account → connection string
    storage_identities: frozenset[str]  # ARM ids, in lower case, of identities that may read and write the accounts
    identity_header: str  # secret with which an app requests tokens from App Service
    delays: Delays
    node_idle_s: float | None  # overrides every compute's own setting
    environment_build_s: float
    sync_interval_s: float
    cancel_grace_s: float
    events_endpoint: str | None
    topic_key: str | None
    fault: NamedFault | None  # the fault of every job
    log_addresses: LogAddresses
    log_readers: frozenset[str]  # client ids of identities that may read the workspace's storage
    storage_writers: frozenset[str]  # client ids of identities that may write to it
    subscription_readers: frozenset[str]  # client ids of identities that may read the region's sizes and quotas
    mount_seed: int  # seed for the errors of outputs


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises SettingsError, which names every problem."""
    flags = _parser().parse_args(arguments)
    problems: list[str] = []
    settings = Settings(
        port=flags.port,
        state=flags.state.resolve(),
        location=flags.location,
        environments=_environments(flags.python_environment, problems),
        storage=_storage(environment.get("LANDFALL_TWIN_STORAGE"), problems),
        storage_identities=frozenset(one.lower() for one in flags.storage_identity),
        identity_header=environment.get("IDENTITY_HEADER", ""),
        delays=Delays(start_s=flags.node_start_delay_s, leave_s=flags.node_leave_delay_s),
        node_idle_s=flags.node_idle_s,
        environment_build_s=flags.environment_build_s,
        sync_interval_s=flags.sync_interval_s,
        cancel_grace_s=flags.cancel_grace_s,
        events_endpoint=flags.events_endpoint,
        topic_key=environment.get("LANDFALL_TWIN_TOPIC_KEY"),
        fault=fault_named(flags.fault) if flags.fault else None,
        log_addresses=LogAddresses(flags.log_addresses),
        log_readers=frozenset([*flags.log_reader, *flags.storage_writer]),
        storage_writers=frozenset(flags.storage_writer),
        subscription_readers=frozenset(flags.subscription_reader),
        mount_seed=flags.mount_seed,
    )
    if not settings.identity_header:
        problems.append("IDENTITY_HEADER must hold the secret that callers of /msi/token present")
    if problems:
        raise SettingsError("; ".join(problems))
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_azure.azure_ml", description="Azure ML emulator")
    add = parser.add_argument
    add("--port", type=int, required=True, help="port on localhost; 0 takes a free one")
    add("--state", type=Path, required=True, help="directory for state, certificates and run directories")
    add("--location", default="westeurope", help="region that the workspace is in; it decides on the VM sizes")
    add("--python-environment", action="append", default=[], metavar="NAME=VENV", help="environment asset")
    add("--storage-identity", action="append", default=[], metavar="ARM_ID", help="identity with roles on storage")
    add("--node-start-delay-s", type=float, default=2.0, help="until a new node is idle")
    add("--node-leave-delay-s", type=float, default=1.0, help="until a leaving node is gone")
    add("--node-idle-s", type=float, help="idle time before scale-down, in place of each compute's own")
    add("--environment-build-s", type=float, default=1.0, help="time an environment's first use takes")
    add("--sync-interval-s", type=float, default=1.0, help="between uploads of logs and outputs")
    add("--cancel-grace-s", type=float, default=4.0, help="between SIGTERM and SIGKILL of a canceled job")
    add("--fault", choices=list(FAULTS), help="what goes wrong with every job")
    add("--log-addresses", choices=list(LogAddresses), default=LogAddresses.NONE, help="addresses of jobs' logs")
    add("--log-reader", action="append", default=[], metavar="CLIENT_ID", help="identity that may read the logs")
    add("--storage-writer", action="append", default=[], metavar="CLIENT_ID", help="identity that may write files")
    add("--subscription-reader", action="append", default=[], metavar="CLIENT_ID", help="identity that reads quotas")
    add("--mount-seed", type=int, default=0, help="seed of the errors that writing an output meets now and then")
    add("--events-endpoint", help="topic to publish run events to")
    return parser


def _environments(pairs: Sequence[str], problems: list[str]) -> dict[str, Path]:
    found = {}
    for pair in pairs:
        name, _, directory = pair.partition("=")
        if not (Path(directory) / "bin" / "python").exists():
            problems.append(f"--python-environment {pair}: expected NAME=VENV with VENV/bin/python")
        found[name] = Path(directory).absolute()
    return found


def _storage(text: str | None, problems: list[str]) -> dict[str, str]:
    try:
        accounts = json.loads(text or "")
    except json.JSONDecodeError:
        accounts = None
    if not isinstance(accounts, dict) or not accounts:
        problems.append("LANDFALL_TWIN_STORAGE must be JSON {account: connection string}, the host account first")
        return {}
    return {str(name): str(connection) for name, connection in accounts.items()}
