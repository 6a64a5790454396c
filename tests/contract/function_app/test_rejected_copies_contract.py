"""Copies of rejected shards: behaviour of the in-memory store and of Blob storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest

from function_app.adapters.blobs import BlobRejectedCopies, BlobShardStore
from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.domain.records import BlobFacts
from function_app.ports import RejectedCopies, ShardStore
from function_app.testing.stores import MemoryRejectedCopies, MemoryShardStore
from shard_validation import SourceChangedError, SourceGoneError
from tests.contract.function_app.conftest import BOTH
from tests.support.threads import at_once

PATH = "digits/v1/train-00000-of-00001.tfrecord"
MISSING = "no-such-container"
COPY = f"{PATH}@0X1"


@dataclass(frozen=True)
class Ward:
    """A store of rejected copies, the shards that it copies, and its container as seen from outside."""

    rejected_copies: RejectedCopies
    shards: ShardStore
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]
    container: str
    read: Callable[[str], bytes]

    def upload(self, content: bytes, path: str = PATH) -> BlobFacts:
        """Upload a shard; return its facts."""
        self.put(path, content)
        facts = self.shards.facts(path)
        if facts is None:
            raise LookupError(path)
        return facts


@pytest.fixture(params=BOTH)
def ward(request: pytest.FixtureRequest, unique: str) -> Ward:
    own = f"{unique}-q"
    if request.param == "memory":
        memory = MemoryShardStore()
        kept = MemoryRejectedCopies(memory)
        kept.missing_containers.add(MISSING)
        return Ward(kept, memory, memory.put, memory.delete, own, lambda path: kept.blobs[own, path])
    storage: StorageConnection = request.getfixturevalue("data_storage")
    source = storage.blob_service.create_container(unique)
    storage.blob_service.create_container(own)
    return Ward(
        rejected_copies=BlobRejectedCopies(storage, unique),
        shards=BlobShardStore(storage, unique),
        put=partial(source.upload_blob, overwrite=True),
        delete=source.delete_blob,
        container=own,
        read=lambda path: storage.blob_service.get_blob_client(own, path).download_blob().readall(),
    )


@pytest.mark.parametrize("size_bytes", [0, 7, 40 << 20])
def test_a_shard_is_copied_and_stays_where_it_is(ward: Ward, size_bytes: int) -> None:
    """The first copy creates the container; the content does not pass through this process."""
    facts = ward.upload(b"x" * size_bytes)
    assert ward.rejected_copies.copy(facts, ward.container, COPY)
    assert (size_bytes, facts) == (len(ward.read(COPY)), ward.shards.facts(PATH))


def test_a_copy_that_is_there_stays(ward: Ward) -> None:
    """A repetition changes nothing, and reports it."""
    facts = ward.upload(b"content")
    assert [True, False] == [ward.rejected_copies.copy(facts, ward.container, COPY) for _ in range(2)]
    assert b"content" == ward.read(COPY)


def test_other_content_is_not_copied(ward: Ward) -> None:
    """The judged content no longer exists."""
    facts = ward.upload(b"before")
    ward.put(PATH, b"after")
    with pytest.raises(SourceChangedError, match="train-00000-of-00001"):
        ward.rejected_copies.copy(facts, ward.container, COPY)


def test_a_deleted_shard_is_gone(ward: Ward) -> None:
    """There is nothing left to copy."""
    facts = ward.upload(b"content")
    ward.delete(PATH)
    with pytest.raises(SourceGoneError, match="train-00000-of-00001"):
        ward.rejected_copies.copy(facts, ward.container, COPY)


def test_names_hold_any_character(ward: Ward) -> None:
    """Source and copy are addressed by URL, encoded once."""
    path = "digits/v1/größe ✓ 50%25 #1?.tfrecord"
    facts = ward.upload(b"content", path)
    ward.rejected_copies.copy(facts, ward.container, f"{path}@{facts.etag}")
    assert b"content" == ward.read(f"{path}@{facts.etag}")


def test_a_note_is_written_over(ward: Ward) -> None:
    """The copy beside it has created the container."""
    ward.rejected_copies.copy(ward.upload(b"content"), ward.container, COPY)
    for text in (b"[1]", b"[]"):
        ward.rejected_copies.note(ward.container, f"{COPY}.json", text)
    assert b"[]" == ward.read(f"{COPY}.json")


def test_ten_copies_at_once_are_one(ward: Ward) -> None:
    """This holds even if all of them find no container."""
    facts = ward.upload(b"content")
    made = at_once([partial(ward.rejected_copies.copy, facts, ward.container, COPY) for _ in range(10)])
    assert ([True], b"content") == ([one for one in made if one], ward.read(COPY))


def test_facts_that_never_were_are_not_copied(ward: Ward) -> None:
    """The ETag decides, not the path."""
    facts = replace(ward.upload(b"content"), etag="0X0")
    with pytest.raises(SourceChangedError, match="the blob was overwritten: its ETag was 0X0"):
        ward.rejected_copies.copy(facts, ward.container, COPY)


def test_a_container_that_is_missing_is_named_with_its_fix(ward: Ward) -> None:
    """The app does not create it: that would need a role on the whole account."""
    facts = ward.upload(b"bad")
    fix = f"container {MISSING} does not exist in the data account; create it, and give .* Contributor on it"
    for _ in range(2):
        with pytest.raises(StorageRefusedError, match=fix):
            ward.rejected_copies.copy(facts, MISSING, COPY)
