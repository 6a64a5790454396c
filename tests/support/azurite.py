"""Azurite for tests: the storage emulator of the local twin, on free ports and in a folder of its own."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, ServerProcess, child_environment, start_process, wait_until

HOST_ACCOUNT = "devstoreaccount1"
HOST_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's published development key: https://learn.microsoft.com/azure/storage/common/storage-use-azurite."""

DATA_ACCOUNT = "landfalldata"

_LISTENING = re.compile(r"Azurite (Blob|Queue|Table) service is successfully listening at http://127\.0\.0\.1:(\d+)")


def random_account_key() -> str:
    """A storage account key as Azure makes them: 64 random bytes in base64."""
    return base64.b64encode(os.urandom(64)).decode()


@dataclass(frozen=True, kw_only=True)
class Azurite:
    """A running Azurite with one or more accounts."""

    process: ServerProcess
    accounts: Mapping[str, str]
    """Account name to key."""
    ports: Mapping[str, int]
    """``blob``, ``queue`` and ``table`` to port."""
    access_log: Path
    """Standard output: one line per request, in Apache's combined style."""

    def connection_string(self, account: str = HOST_ACCOUNT) -> str:
        """The full connection string of ``account``, with all three endpoints."""
        endpoints = "".join(
            f"{service.capitalize()}Endpoint=http://127.0.0.1:{port}/{account};"
            for service, port in self.ports.items()
        )
        key = self.accounts[account]
        return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};{endpoints}"

    def blob_url(self, account: str = DATA_ACCOUNT) -> str:
        """The blob endpoint of ``account``, without a slash at the end."""
        return f"http://127.0.0.1:{self.ports['blob']}/{account}"

    def stop(self) -> None:
        """End it and wait for its end."""
        self.process.stop()


def start_azurite(tmp_dir: Path, accounts: Mapping[str, str] | None = None) -> Azurite:
    """Start Azurite with its data and log under ``tmp_dir``; skip the test where node or Azurite is absent.

    ``accounts`` maps names to keys; by default the host account and a data account with a random key.
    """
    chosen = accounts or {HOST_ACCOUNT: HOST_ACCOUNT_KEY, DATA_ACCOUNT: random_account_key()}
    log = tmp_dir / "azurite.log"
    environment = child_environment(AZURITE_ACCOUNTS=";".join(f"{name}:{key}" for name, key in chosen.items()))
    process = start_process(_command(tmp_dir / "azurite"), log=log, environment=environment)
    process.wait_for_line("Azurite Table service is successfully listening")
    ports = wait_until(lambda: _three_ports(log), what="Azurite to name its three ports")
    return Azurite(process=process, accounts=chosen, ports=ports, access_log=log)


def _command(location: Path) -> list[str]:
    node = shutil.which("node")
    script = REPOSITORY / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
    if node is None:
        pytest.skip("needs node on the PATH to run Azurite")
    if not script.is_file():
        pytest.skip("needs Azurite: run `npm ci` in the repository's root")
    return [
        *(node, str(script), "--location", str(location)),
        *("--blobHost", "127.0.0.1", "--blobPort", "0"),
        *("--queueHost", "127.0.0.1", "--queuePort", "0"),
        *("--tableHost", "127.0.0.1", "--tablePort", "0"),
        *("--skipApiVersionCheck", "--disableTelemetry", "--loose"),
    ]


def _three_ports(log: Path) -> dict[str, int] | None:
    found = _LISTENING.findall(log.read_text(encoding="utf-8", errors="replace"))
    return {service.lower(): int(port) for service, port in found} if len(found) == 3 else None
