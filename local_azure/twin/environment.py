"""The environment that the twin's processes see: this one, without what would lead them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping

FOREIGN_PREFIXES = ("AZURE", "ARM_", "IDENTITY_", "MSI_", "LANDFALL_", "DataStorage", "WEBSITE_", "FUNCTIONS_")
"""A developer's own Azure settings, another project's or another twin's, must not reach ours (AZURE… covers
AZUREML_… and AzureWebJobsStorage in upper case)."""
FOREIGN = (
    "CONTAINER_NAME",
    "PYTHON_SCRIPT_FILE_NAME",
    "PYTHONPATH",
    "PYTHONHOME",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)
"""CONTAINER_NAME makes the Functions worker believe that it is in Azure."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
"""Everything is on loopback."""


def clean_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a copy of the environment without foreign settings, to add one's own to."""
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if not _is_foreign(name)}
    return {**kept, "NO_PROXY": "localhost,127.0.0.1", "PYTHONUNBUFFERED": "1"}


def keep_loopback_direct() -> None:
    """Have this process's own clients reach loopback without a proxy, whatever proxy the user has."""
    for name in ("NO_PROXY", "no_proxy"):
        exempt = [part for part in os.environ.get(name, "").split(",") if part]
        os.environ[name] = ",".join(dict.fromkeys([*exempt, "localhost", "127.0.0.1"]))


def _is_foreign(name: str) -> bool:
    upper = name.upper()
    prefixes = tuple(p.upper() for p in FOREIGN_PREFIXES)
    return upper.startswith(prefixes) or upper in FOREIGN or name.lower() in PROXIES
