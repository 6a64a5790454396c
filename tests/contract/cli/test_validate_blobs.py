"""`landfall validate` of URLs, against Azurite: signed, opened by the environment, and unreadable ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.blob import BlobSasPermissions, BlobServiceClient, generate_blob_sas

from function_app.ports import utcnow
from local_azure.azurite import DATA_ACCOUNT, Azurite
from tests.support.shards import framed, labelled
from tests.support.terminal import landfall

pytestmark = pytest.mark.azurite

SHARD = framed([labelled(i % 10) for i in range(20)])
NAMES = ["train-00000-of-00001.tfrecord", "50% größe ✓ #1?.tfrecord", "a/b c/%41.tfrecord"]


@pytest.fixture(scope="module")
def service(azurite: Azurite) -> Iterator[BlobServiceClient]:
    """The data account, with a valid shard under every name."""
    with BlobServiceClient.from_connection_string(azurite.connection_string(DATA_ACCOUNT)) as opened:
        container = opened.create_container("validated")
        for name in NAMES:
            container.upload_blob(name, SHARD)
        yield opened


def judged(capsys: pytest.CaptureFixture[str], *addresses: str) -> tuple[int | str | None, list[dict[str, Any]], str]:
    """Validate URLs; return the exit status, the objects and all output."""
    status, out, err = landfall(capsys, "validate", *addresses, "--json", "--processes", 1)
    return status, [json.loads(line) for line in out.splitlines()], out + err


@pytest.mark.parametrize("name", NAMES)
def test_what_the_environment_opens(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    azurite: Azurite,
    service: BlobServiceClient,
    name: str,
) -> None:
    """DataStorage opens a URL of its account, with any characters in the name."""
    monkeypatch.setenv("DataStorage", azurite.connection_string(DATA_ACCOUNT))
    url = service.get_blob_client("validated", name).url
    status, (one,), _ = judged(capsys, url)
    assert (0, "accepted", 20, url) == (status, one["verdict"], one["num_records"], one["shard"])


def test_a_signed_address(capsys: pytest.CaptureFixture[str], azurite: Azurite, service: BlobServiceClient) -> None:
    """The signature opens the blob and is never printed; a wrong one is reported as forbidden."""
    blob = service.get_blob_client("validated", NAMES[0])
    signature = generate_blob_sas(
        DATA_ACCOUNT,
        "validated",
        NAMES[0],
        account_key=azurite.accounts[DATA_ACCOUNT],
        permission=BlobSasPermissions(read=True),
        expiry=utcnow() + timedelta(hours=1),
    )
    status, (one,), output = judged(capsys, f"{blob.url}?{signature}")
    assert (0, "accepted", False) == (status, one["verdict"], "sig" in output)
    status, (one,), output = judged(capsys, f"{blob.url}?{signature[:-8]}AAAAAAA%3D")
    codes = [reason["code"] for reason in one["reasons"]]
    assert (1, ["source_forbidden"], False) == (status, codes, "sig" in output)


@pytest.mark.parametrize("path", ["datasets/nothing.tfrecord", "elsewhere/train-00000-of-00001.tfrecord"])
def test_what_is_not_there(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    azurite: Azurite,
    service: BlobServiceClient,
    path: str,
) -> None:
    """A misspelt name or container is reported as missing, not as a verdict, and the others are validated."""
    monkeypatch.setenv("DataStorage", azurite.connection_string(DATA_ACCOUNT))
    sound = service.get_blob_client("validated", NAMES[0]).url
    status, every, _ = judged(capsys, f"{azurite.blob_url()}/{path}", sound)
    assert (1, [["source_gone"], []]) == (status, [[reason["code"] for reason in one["reasons"]] for one in every])
