"""`landfall upload` against real storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import CliError
from cli.upload import ShardUploader, upload_all
from tests.support.twin import TwinUnderTest

pytestmark = pytest.mark.twin


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two files that are no shards of any pipeline's dataset."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    return sorted(tmp_path.iterdir())


def test_files_become_blobs_of_a_version(twin: TwinUnderTest, shards: list[Path]) -> None:
    """Each file lies below dataset and version, with its content."""
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        before = uploader.has("unknown/v1/")
        upload_all(uploader, shards, ("unknown", "v1"))
        after = uploader.has("unknown/v1/")
    content = twin.blobs.get_blob_client("datasets", "unknown/v1/b").download_blob().readall()
    assert (False, True, b"b" * 1000) == (before, after, content)


def test_a_shard_that_is_there_is_not_overwritten_unasked(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The error names the blob and both ways out; --overwrite replaces it."""
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        upload_all(uploader, shards, ("unknown", "v2"))
        with pytest.raises(CliError, match="unknown/v2/a exists already: pass --overwrite"):
            upload_all(uploader, shards, ("unknown", "v2"))
        upload_all(uploader, shards, ("unknown", "v2"), overwrite=True)


def test_a_container_that_is_not_there_is_one_sentence(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The account's own word, without a stack trace."""
    refused = pytest.raises(CliError, match=r"was not uploaded to http://127\.0\.0\.1:.*: The specified container")
    with ShardUploader.connected(twin.twin.places.data_connection, "nowhere") as uploader, refused:
        upload_all(uploader, shards, ("unknown", "v3"))


def test_progress_counts_every_byte_once(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The steps add up to the file's size."""
    steps: list[int] = []
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        uploader.upload(shards[0], "unknown/v4/a", steps.append, overwrite=False)
    assert 1000 == sum(steps)
