"""The identity that the app shows to Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential


def credential(client_id: str | None) -> TokenCredential:
    """Return the user-assigned identity, or whatever azure-identity finds where none is named."""
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

    return ManagedIdentityCredential(client_id=client_id) if client_id else DefaultAzureCredential()
