"""Documents: what the in-memory store and the one on Blob storage keep."""

from __future__ import annotations

from functools import partial

import pytest

from function_app.adapters.connections import StorageConnection
from function_app.adapters.documents import BlobDocumentStore
from function_app.domain.errors import DocumentTooLargeError
from function_app.ports import DocumentStore
from function_app.testing.stores import MemoryDocumentStore
from tests.contract.function_app.conftest import BOTH
from tests.support.threads import at_once

PATH = "manifests/digits/v1 ✓/g1-0123456789ab.json"


@pytest.fixture(params=BOTH)
def documents(request: pytest.FixtureRequest, unique: str) -> DocumentStore:
    if request.param == "memory":
        return MemoryDocumentStore()
    storage: StorageConnection = request.getfixturevalue("host_storage")
    return BlobDocumentStore(storage, unique)


def test_a_document_that_was_never_written_is_none(documents: DocumentStore) -> None:
    """Also where its container is not there yet."""
    assert documents.read(PATH, max_bytes=10) is None


def test_a_document_is_read_as_it_was_written(documents: DocumentStore) -> None:
    """The first write makes whatever it needs."""
    assert documents.write_once(PATH, b'{"shards": []}')
    assert b'{"shards": []}' == documents.read(PATH, max_bytes=14)


def test_a_document_is_written_once(documents: DocumentStore) -> None:
    """The second writer is told so, and changes nothing."""
    assert [True, False] == [documents.write_once(PATH, content) for content in (b"first", b"second")]
    assert b"first" == documents.read(PATH, max_bytes=100)


def test_an_empty_document_is_not_an_absent_one(documents: DocumentStore) -> None:
    """No bytes, but written."""
    documents.write_once(PATH, b"")
    assert b"" == documents.read(PATH, max_bytes=100)


def test_a_document_larger_than_allowed_is_not_read(documents: DocumentStore) -> None:
    """One byte too many is an error that names the document and the limit."""
    documents.write_once(PATH, b"x" * 101)
    with pytest.raises(DocumentTooLargeError, match=r"g1-0123456789ab\.json should be at most 100 bytes"):
        documents.read(PATH, max_bytes=100)


def test_a_document_may_be_written_over(documents: DocumentStore) -> None:
    """The last content stays, shorter or longer; the first write makes whatever it needs."""
    for content in (b"first", b"the second", b"3rd"):
        documents.write(PATH, content)
        assert content == documents.read(PATH, max_bytes=100)


def test_a_deleted_document_is_none(documents: DocumentStore) -> None:
    """However often it is deleted, and also where its container is not there yet."""
    documents.delete(PATH)
    documents.write(PATH, b"content")
    for _ in range(2):
        documents.delete(PATH)
    assert documents.read(PATH, max_bytes=10) is None


def test_of_twenty_writers_one_wins(documents: DocumentStore) -> None:
    """Twenty threads write the first document of a container at once; the winner's content stays."""
    contents = [f"writer {number}".encode() for number in range(20)]
    won = at_once([partial(documents.write_once, PATH, content) for content in contents])
    winners = [content for content, mine in zip(contents, won, strict=True) if mine]
    assert winners == [documents.read(PATH, max_bytes=100)]
