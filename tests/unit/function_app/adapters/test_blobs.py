"""Writes of blobs: which refusals of storage mean that a blob exists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from function_app.adapters.blobs import BlobDocumentStore, BlobRejectedCopies
from function_app.adapters.connections import StorageConnection, read_connection
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import BlobFacts
from function_app.ports import utcnow
from shared.errors import LandfallError

FACTS = BlobFacts(path="digits/v1/train-00000-of-00001.tfrecord", etag="0X1", size_bytes=1, last_modified=utcnow())
Refusing = Callable[[str], StorageConnection]


class Conflict(ThreadingHTTPServer):
    """Answers every write with 409 and one code, and every other request with 200."""

    code = ""


class Handler(BaseHTTPRequestHandler):
    server: Conflict

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(409)
        self.send_header("x-ms-error-code", self.server.code)
        self.end_headers()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"0X1"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    """Connections to a storage account whose writes all fail with a code."""
    with Conflict(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/acme"
        settings = {"X": f"AccountName=acme;AccountKey=YQ==;BlobEndpoint={endpoint}"}
        with closing(StorageConnection(read_connection(settings, "X", ("blob",)))) as storage:

            def with_code(code: str) -> StorageConnection:
                server.code = code
                return storage

            yield with_code
        server.shutdown()


CONFLICTS = pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ContainerBeingDeleted", ServiceUnavailableError),
        ("BlobImmutableDueToPolicy", StorageRefusedError),
    ],
)


@CONFLICTS
def test_a_document_that_was_not_written_is_an_error(
    refusing: Refusing, code: str, expected: type[LandfallError]
) -> None:
    """The SDK raises ResourceExistsError for every 409, and a lost manifest would not be written again."""
    documents = BlobDocumentStore(refusing(code), "landfall")
    with pytest.raises(expected, match=r"write landfall/a\.json"):
        documents.write_once("a.json", b"{}")
    with pytest.raises(expected, match=r"write landfall/a\.json"):
        documents.write("a.json", b"{}")


@CONFLICTS
def test_a_copy_that_was_not_made_is_an_error(refusing: Refusing, code: str, expected: type[LandfallError]) -> None:
    """A rejected shard would have no copy, although its history says so."""
    copies = BlobRejectedCopies(refusing(code), "datasets")
    with pytest.raises(expected, match="to rejected"):
        copies.copy(FACTS, "rejected", "a")


def test_a_blob_that_exists_is_not_written_again(refusing: Refusing) -> None:
    """The other writer won."""
    existing = refusing("BlobAlreadyExists")
    assert BlobDocumentStore(existing, "landfall").write_once("a.json", b"{}") is False
    assert BlobRejectedCopies(existing, "datasets").copy(FACTS, "rejected", "a") is False


def test_a_copy_that_is_under_way_is_not_started_again(refusing: Refusing) -> None:
    """Storage may copy many gigabytes for a while after the call, and a retry meets that copy."""
    copies = BlobRejectedCopies(refusing("PendingCopyOperation"), "datasets")
    assert copies.copy(FACTS, "rejected", "a") is False
