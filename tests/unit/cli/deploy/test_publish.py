"""`landfall publish`: its options."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.main import landfall

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/cluster"


@pytest.mark.parametrize(
    "identity", ["landfall-cluster", "11111111-2222-3333-4444-555555555555", IDENTITY + "/x", ""]
)
def test_what_is_no_identity_is_refused_before_azure_is_asked(identity: str) -> None:
    """The message says which command prints it."""
    arguments = ["--subscription", "s", "--resource-group", "g", "--workspace", "w", "--cluster-identity", identity]
    result = CliRunner().invoke(landfall, ["publish", *arguments])
    assert (2, True) == (result.exit_code, "az identity show --query id" in " ".join(result.output.split()))
