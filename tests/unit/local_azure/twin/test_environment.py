"""Children see no settings of other projects."""

from __future__ import annotations

from local_azure.twin.environment import clean_environment


def test_foreign_settings_are_left_out() -> None:
    """Credentials, other twins' settings and what makes the worker believe in Azure do not reach a child."""
    names = ["AZURE_CLIENT_SECRET", "AzureWebJobsStorage", "LANDFALL_URL", "CONTAINER_NAME", "https_proxy"]
    names += ["DataStorage__blobServiceUri", "REQUESTS_CA_BUNDLE", "IDENTITY_HEADER"]
    foreign = dict.fromkeys(names, "x")
    cleaned = clean_environment({**foreign, "HOME": "/home/somebody"})
    assert {"HOME": "/home/somebody", "NO_PROXY": "localhost,127.0.0.1", "PYTHONUNBUFFERED": "1"} == cleaned
