"""Children see no settings of other projects."""

from __future__ import annotations

import os

import pytest

from local_azure.twin.environment import clean_environment, keep_loopback_direct


def test_foreign_settings_are_left_out() -> None:
    """Credentials, other twins' settings and what makes the worker believe in Azure do not reach a child."""
    names = ["AZURE_CLIENT_SECRET", "AzureWebJobsStorage", "LANDFALL_URL", "CONTAINER_NAME", "https_proxy"]
    names += ["DataStorage__blobServiceUri", "REQUESTS_CA_BUNDLE", "IDENTITY_HEADER"]
    foreign = dict.fromkeys(names, "x")
    cleaned = clean_environment({**foreign, "HOME": "/home/somebody"})
    assert {"HOME": "/home/somebody", "NO_PROXY": "localhost,127.0.0.1", "PYTHONUNBUFFERED": "1"} == cleaned


def test_loopback_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user exempts already stays exempt; asking twice adds nothing."""
    monkeypatch.setenv("NO_PROXY", "intranet")
    monkeypatch.setenv("no_proxy", "")
    keep_loopback_direct()
    keep_loopback_direct()
    assert ("intranet,localhost,127.0.0.1", "localhost,127.0.0.1") == (os.environ["NO_PROXY"], os.environ["no_proxy"])
