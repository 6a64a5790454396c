"""Azurite, Microsoft's storage emulator: its accounts, their addresses, and how it is started."""

from __future__ import annotations

import base64
import contextlib
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_azure.processes import ROOT, Process, Program, TwinError, clean_environment, wait_until

HOST_ACCOUNT = "devstoreaccount1"
HOST_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's published key, https://learn.microsoft.com/azure/storage/common/storage-use-azurite."""
DATA_ACCOUNT = "landfalldata"
AZURITE = "Azurite"
"""The program's name in messages."""
SERVICES = ("blob", "queue", "table")
DEFAULT_PORTS: Mapping[str, int] = {"blob": 10000, "queue": 10001, "table": 10002}
ANY_PORTS: Mapping[str, int] = dict.fromkeys(SERVICES, 0)
"""Azurite uses free ports and prints them."""
AZURITE_JS = ROOT / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"

_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, kw_only=True)
class Azurite:
    """A running Azurite with one or more accounts."""

    process: Process
    accounts: Mapping[str, str]
    """Account name to key."""
    ports: Mapping[str, int]
    """Service to port."""
    access_log: Path
    """Standard output, with one line per request in Apache's combined format."""

    def connection_string(self, account: str = HOST_ACCOUNT) -> str:
        """Return the connection string of an account, with the endpoints of all services."""
        return connection_string(account, self.accounts[account], self.ports)

    def blob_url(self, account: str = DATA_ACCOUNT) -> str:
        """Return the blob endpoint of an account, without a slash at the end."""
        return f"http://127.0.0.1:{self.ports['blob']}/{account}"

    def stop(self) -> None:
        """Stop Azurite and wait for its end."""
        self.process.stop()


def start_azurite(
    folder: Path, accounts: Mapping[str, str] | None = None, *, ports: Mapping[str, int] = ANY_PORTS
) -> Azurite:
    """Start Azurite with its data and logs in `folder`, and wait until it answers.

    `accounts` maps names to keys; the default is the host account and a data account with a random key. Raises
    TwinError if Azurite is not installed or does not start.
    """
    chosen = accounts or {HOST_ACCOUNT: HOST_ACCOUNT_KEY, DATA_ACCOUNT: random_account_key()}
    access_log = folder / "azurite-access.log"
    program = azurite_program(
        data=folder / "azurite", accounts=chosen, ports=ports, log=folder / "azurite.log", access_log=access_log
    )
    process = Process(program, guarded=False)
    process.await_ready()
    taken = wait_until(lambda: _three_ports(process.output()), what="Azurite to name its three ports")
    return Azurite(process=process, accounts=chosen, ports=taken, access_log=access_log)


@contextlib.contextmanager
def running_azurite(folder: Path, accounts: Mapping[str, str] | None = None) -> Iterator[Azurite]:
    """Run Azurite for the duration of the block. Raises TwinError like `start_azurite`."""
    azurite = start_azurite(folder, accounts)
    try:
        yield azurite
    finally:
        azurite.stop()


def azurite_program(
    *,
    data: Path,
    accounts: Mapping[str, str],
    ports: Mapping[str, int],
    log: Path,
    access_log: Path,
    script: Path = AZURITE_JS,
) -> Program:
    """Return Azurite's program. Raises TwinError if it is not installed."""
    node = shutil.which("node")
    if node is None or not script.is_file():
        raise TwinError(f"Azurite is not installed ({script}, run by node): run `make setup`.")
    options = ["--location", str(data), "--skipApiVersionCheck", "--disableTelemetry", "--loose"]
    for service in SERVICES:
        options += [f"--{service}Host", "127.0.0.1", f"--{service}Port", str(ports[service])]
    keys = ";".join(f"{name}:{key}" for name, key in accounts.items())
    return Program(
        name=AZURITE,
        command=[node, str(script), *options],
        environment={**clean_environment(), "AZURITE_ACCOUNTS": keys},
        log=log,
        stdout=access_log,
        ready="Azurite Table service is successfully listening",  # the last of the three to start
    )


def connection_string(account: str, key: str, ports: Mapping[str, int], services: Iterable[str] = SERVICES) -> str:
    """Return an account's connection string with the endpoints of some services."""
    endpoints = [
        f"{service.capitalize()}Endpoint=http://127.0.0.1:{ports[service]}/{account}" for service in services
    ]
    return ";".join(["DefaultEndpointsProtocol=http", f"AccountName={account}", f"AccountKey={key}", *endpoints])


def random_account_key() -> str:
    """Return a storage account key like Azure's: 64 random bytes in base64."""
    return base64.b64encode(secrets.token_bytes(64)).decode()


def _three_ports(output: str) -> dict[str, int] | None:
    found = {service.lower(): int(port) for service, port in _LISTENING.findall(output)}
    return found if len(found) == len(SERVICES) else None
