"""The identity with which blobs are read by URL."""

from __future__ import annotations

import pytest
from azure.identity import DefaultAzureCredential

from cli.validate.inputs import _credential
from function_app.adapters.connections import STORAGE_SUFFIX
from function_app.domain.errors import SettingsError


@pytest.mark.parametrize(
    ("suffix", "host", "is_sent"),
    [
        (None, "acme.blob.core.windows.net", True),
        (None, "acme.blob.core.chinacloudapi.cn", False),
        (None, "core.windows.net.example", False),
        (None, "acmecore.windows.net", False),
        ("core.chinacloudapi.cn", "acme.blob.core.chinacloudapi.cn", True),
        ("core.chinacloudapi.cn", "acme.blob.core.windows.net", False),
    ],
)
def test_an_identity_is_sent_only_to_storage_of_its_cloud(
    monkeypatch: pytest.MonkeyPatch,
    suffix: str | None,
    host: str,
    is_sent: bool,  # noqa: FBT001 -- a table's column
) -> None:
    """Any other server would receive a token; an address with a signature needs none."""
    monkeypatch.delenv(STORAGE_SUFFIX, raising=False)
    if suffix is not None:
        monkeypatch.setenv(STORAGE_SUFFIX, suffix)
    found = [_credential(f"https://{host}/c/b{query}") for query in ("", "?sig=x")]
    assert [is_sent, False] == [isinstance(one, DefaultAzureCredential) for one in found]


def test_a_domain_that_would_fit_every_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single label, such as a top-level domain, is none of storage."""
    monkeypatch.setenv(STORAGE_SUFFIX, "net")
    with pytest.raises(SettingsError, match="LANDFALL_STORAGE_SUFFIX is 'net'"):
        _credential("https://acme.blob.core.windows.net/c/b")
