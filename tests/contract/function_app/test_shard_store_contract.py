"""Shards: behaviour of the in-memory store and of Blob storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from function_app.adapters.blobs import BlobShardStore
from function_app.adapters.connections import StorageConnection
from function_app.domain.records import BlobFacts
from function_app.ports import ShardStore, utcnow
from function_app.testing.stores import MemoryShardStore
from shard_validation import SourceChangedError, SourceGoneError
from tests.contract.function_app.conftest import BOTH
from tests.support.threads import at_once

PATH = "digits/v1/train-00000-of-00001.tfrecord"

STRANGE_NAMES = [
    "with space.tfrecord",
    "50%.tfrecord",
    "%41%2F%25.tfrecord",
    "größe ✓ \U0001f600.tfrecord",
    "a+b=c&d?e#f;g.tfrecord",
    "it's (1).tfrecord",
]


@dataclass(frozen=True)
class Shards:
    """A store, and the actions of its data owner."""

    store: ShardStore
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]

    def upload(self, path: str, content: bytes) -> BlobFacts:
        """Upload a shard; return its facts."""
        self.put(path, content)
        facts = self.store.facts(path)
        if facts is None:
            raise LookupError(path)
        return facts


@pytest.fixture(params=BOTH)
def shards(request: pytest.FixtureRequest, unique: str) -> Shards:
    if request.param == "memory":
        memory = MemoryShardStore()
        return Shards(store=memory, put=memory.put, delete=memory.delete)
    storage: StorageConnection = request.getfixturevalue("data_storage")
    container = storage.blob_service.create_container(unique)
    put = partial(container.upload_blob, overwrite=True)
    return Shards(store=BlobShardStore(storage, unique), put=put, delete=container.delete_blob)


def test_facts_of_an_absent_blob_are_none(shards: Shards) -> None:
    """A missing blob is no error."""
    assert shards.store.facts(PATH) is None


def test_facts_say_what_is_there(shards: Shards) -> None:
    """Path, size, a normalised ETag, and a time with a zone."""
    before = utcnow()
    facts = shards.upload(PATH, b"12345")
    assert (PATH, 5) == (facts.path, facts.size_bytes)
    assert facts.etag == facts.etag.strip('"').upper() != ""
    assert abs((facts.last_modified - before).total_seconds()) < 60


@pytest.mark.parametrize("size", [0, 1, 10, 11])
def test_facts_hold_the_content_of_a_small_shard(shards: Shards, size: int) -> None:
    """The facts have the same content as a read; a larger shard is read from storage, from its beginning."""
    content = bytes(range(size))
    without = shards.upload(PATH, content)
    facts = shards.store.facts(PATH, content_up_to=10)
    assert facts is not None
    assert (without, None) == (facts, without.content)
    assert (facts.content or b"") == (content if size <= 10 else b"")
    source = shards.store.open(facts)
    assert ("train-00000-of-00001.tfrecord", size) == (source.name, source.size_bytes)
    assert content == source.read(0, size)


def test_a_held_shard_is_not_read_again(shards: Shards) -> None:
    """The content belongs to its ETag, whatever has happened since."""
    shards.upload(PATH, b"before")
    facts = shards.store.facts(PATH, content_up_to=10)
    assert facts is not None
    shards.delete(PATH)
    assert b"before" == shards.store.open(facts).read(0, 6)
    assert shards.store.facts(PATH, content_up_to=10) is None


def test_every_upload_has_an_etag_of_its_own(shards: Shards) -> None:
    """This includes an upload of the same bytes."""
    assert shards.upload(PATH, b"same").etag != shards.upload(PATH, b"same").etag


def test_a_shard_is_read_by_ranges(shards: Shards) -> None:
    """The name is the last part of the path."""
    source = shards.store.open(shards.upload(PATH, bytes(range(100))))
    parts = [source.read(offset, length) for offset, length in ((0, 10), (90, 10), (50, 0))]
    assert [bytes(range(10)), bytes(range(90, 100)), b""] == parts
    assert ("train-00000-of-00001.tfrecord", 100) == (source.name, source.size_bytes)


def test_an_empty_shard_is_read_without_a_word(shards: Shards) -> None:
    """No range can be requested of an empty blob."""
    source = shards.store.open(shards.upload(PATH, b""))
    assert (0, b"") == (source.size_bytes, source.read(0, 0))


def test_a_shard_larger_than_one_request_is_read_whole(shards: Shards) -> None:
    """Above 32 MiB the client sends several requests for one content."""
    content = bytes(range(256)) * (40 << 12)
    assert content == shards.store.open(shards.upload(PATH, content)).read(0, len(content))


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_names_hold_any_character(shards: Shards, name: str) -> None:
    """Special characters of URLs are kept in uploads, listings, lookups and reads."""
    path = f"digits/v1/{name}"
    facts = shards.upload(path, b"content")
    assert ([facts], b"content") == (list(shards.store.list("digits/v1/")), shards.store.open(facts).read(0, 7))


def test_a_listing_has_the_blobs_below_a_prefix(shards: Shards) -> None:
    """They are sorted by name, with the same facts as single lookups."""
    facts = [shards.upload(f"digits/v1/train-{n:05}-of-00003", b"x" * n) for n in (2, 0, 1)]
    shards.upload("digits/v10/train-00000-of-00001", b"x")
    assert sorted(facts, key=lambda f: f.path) == list(shards.store.list("digits/v1/"))


def test_a_shard_overwritten_before_the_first_read_is_not_read(shards: Shards) -> None:
    """The looked-up content no longer exists."""
    facts = shards.upload(PATH, b"before")
    shards.put(PATH, b"after!")
    with pytest.raises(SourceChangedError, match="train-00000-of-00001"):
        shards.store.open(facts).read(0, 6)


def test_a_shard_overwritten_between_two_reads_is_not_read_on(shards: Shards) -> None:
    """Halves of two contents are not a content."""
    source = shards.store.open(shards.upload(PATH, b"before"))
    assert b"bef" == source.read(0, 3)
    shards.put(PATH, b"after!")
    with pytest.raises(SourceChangedError, match="train-00000-of-00001"):
        source.read(3, 3)


def test_a_shard_overwritten_with_a_shorter_one_has_changed(shards: Shards) -> None:
    """A range beyond the end says so, too."""
    facts = shards.upload(PATH, b"x" * 100)
    shards.put(PATH, b"y")
    with pytest.raises(SourceChangedError, match="train-00000-of-00001"):
        shards.store.open(facts).read(50, 50)


@pytest.mark.parametrize("read_before", [False, True])
def test_a_deleted_shard_is_gone(shards: Shards, *, read_before: bool) -> None:
    """This holds whether or not the reading had begun."""
    source = shards.store.open(shards.upload(PATH, b"content"))
    if read_before:
        source.read(0, 1)
    shards.delete(PATH)
    with pytest.raises(SourceGoneError, match="train-00000-of-00001"):
        source.read(1, 6)


def test_a_shard_is_read_from_several_threads(shards: Shards) -> None:
    """Each thread gets its own range."""
    content = bytes(range(200))
    source = shards.store.open(shards.upload(PATH, content))
    parts = at_once([partial(source.read, offset, 10) for offset in range(0, 200, 10)])
    assert content == b"".join(parts)


def test_a_name_that_cannot_be_listed_keeps_no_other_from_being_listed(shards: Shards) -> None:
    """Azurite answers 500 for the whole folder. The longest plain prefix of the name is reported."""
    names = ["a-of-2", "a-of-2.tfrecord", "b-of-2.tfrecord"]
    for name in (*names, "a\x1b[31m-of-2.tfrecord"):
        shards.put(f"digits/1/{name}", b"")
    shards.put("digits/2/a-of-1.tfrecord", b"")
    found, unlisted = list[str](), list[str]()
    found += (facts.path for facts in shards.store.list("digits/", unlisted=unlisted.append))
    expected = [*(f"digits/1/{name}" for name in names), "digits/2/a-of-1.tfrecord"]
    assert (expected, ["digits/1/a"]) == (found, unlisted)


@pytest.mark.azurite
def test_blobs_that_stand_for_folders_are_not_listed(data_storage: StorageConnection, unique: str) -> None:
    """Data Lake accounts list them and Hadoop writes them; their names have no meaning."""
    container = data_storage.blob_service.create_container(unique)
    container.upload_blob("digits/v1/day=3", b"", metadata={"hdi_isfolder": "true"})
    for name in ("digits/v1/day=3/a.parquet", "digits/v1/day=4"):
        container.upload_blob(name, b"x", metadata={"other": "true"})
    listed = [facts.path for facts in BlobShardStore(data_storage, unique).list("digits/")]
    assert ["digits/v1/day=3/a.parquet", "digits/v1/day=4"] == listed
