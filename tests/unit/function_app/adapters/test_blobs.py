"""Writes of blobs: which refusals of storage mean that a blob exists."""

from __future__ import annotations

import io
from typing import Any

import pytest
import requests
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from function_app.adapters.blobs import BlobDocumentStore, BlobRejectedCopies
from function_app.adapters.connections import StorageConnection, read_connection
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import BlobFacts
from function_app.ports import utcnow
from shared.errors import LandfallError

ACCOUNT = {"X": "AccountName=acme;AccountKey=YQ==;BlobEndpoint=https://acme.example"}
FACTS = BlobFacts(path="digits/v1/train-00000-of-00001.tfrecord", etag="0X1", size_bytes=1, last_modified=utcnow())


class Conflict(HTTPAdapter):
    """Answers every write with 409 and one code, and every other request with 200."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """See HTTPAdapter."""
        answer = requests.Response()
        answer.raw = HTTPResponse(io.BytesIO(), preload_content=False)
        if request.method == "PUT":
            answer.status_code, answer.headers["x-ms-error-code"] = 409, self.code
        else:
            answer.status_code, answer.headers["ETag"] = 200, '"0X1"'
        return answer


def connection(code: str) -> StorageConnection:
    session = requests.Session()
    session.mount("https://", Conflict(code))
    transport = RequestsTransport(session=session, session_owner=False)
    return StorageConnection(read_connection(ACCOUNT, "X", ("blob",)), transport=transport)


CONFLICTS = pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ContainerBeingDeleted", ServiceUnavailableError),
        ("BlobImmutableDueToPolicy", StorageRefusedError),
    ],
)


@CONFLICTS
def test_a_document_that_was_not_written_is_an_error(code: str, expected: type[LandfallError]) -> None:
    """The SDK raises ResourceExistsError for every 409, and a lost manifest would not be written again."""
    documents = BlobDocumentStore(connection(code), "landfall")
    with pytest.raises(expected, match=r"write landfall/a\.json"):
        documents.write_once("a.json", b"{}")
    with pytest.raises(expected, match=r"write landfall/a\.json"):
        documents.write("a.json", b"{}")


@CONFLICTS
def test_a_copy_that_was_not_made_is_an_error(code: str, expected: type[LandfallError]) -> None:
    """A rejected shard would have no copy, although its history says so."""
    copies = BlobRejectedCopies(connection(code), "datasets")
    with pytest.raises(expected, match="to rejected"):
        copies.copy(FACTS, "rejected", "a")


def test_a_blob_that_exists_is_not_written_again() -> None:
    """The other writer won."""
    existing = connection("BlobAlreadyExists")
    assert BlobDocumentStore(existing, "landfall").write_once("a.json", b"{}") is False
    assert BlobRejectedCopies(existing, "datasets").copy(FACTS, "rejected", "a") is False


def test_a_copy_that_is_under_way_is_not_started_again() -> None:
    """Storage may copy many gigabytes for a while after the call, and a retry meets that copy."""
    copies = BlobRejectedCopies(connection("PendingCopyOperation"), "datasets")
    assert copies.copy(FACTS, "rejected", "a") is False
