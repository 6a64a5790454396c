"""Uploads: an error in a version is reported with its place and blocks training; `landfall upload` itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import CliError
from cli.uploader import ShardUploader, upload_all
from local_azure.processes import wait_until
from tests.support.twin import WITHIN_S, TwinUnderTest
from tests.twin.shards import flip_bit, whole_version

pytestmark = pytest.mark.twin

DAMAGED = "train-00001-of-00002.tfrecord"


def test_a_flipped_bit_is_found_and_a_corrected_upload_trains(twin: TwinUnderTest) -> None:
    """The shard is rejected with record and offset, and no run starts; the valid shard over it leads to a run."""
    shards = whole_version()
    record_bytes = len(shards[DAMAGED]) // 5
    in_third_record = 2 * record_bytes + 14
    twin.upload("steady/damaged", {**shards, DAMAGED: flip_bit(shards[DAMAGED], offset=in_third_record)})
    rejected = wait_until(
        lambda: twin.rejected("steady/damaged"), what="the shard to be rejected", timeout_s=WITHIN_S
    )
    twin.await_quiet()
    reason = rejected[0]["reasons"][0]
    assert (DAMAGED, 2, 2 * record_bytes, []) == (
        rejected[0]["shard"],
        reason["record_index"],
        reason["byte_offset"],
        twin.runs("steady/damaged"),
    )
    twin.upload("steady/damaged", {DAMAGED: shards[DAMAGED]})
    assert ("registered", []) == (twin.await_settled("steady/damaged")["state"], twin.rejected("steady/damaged"))


def test_an_incomplete_version_starts_nothing_and_names_what_is_missing(twin: TwinUnderTest) -> None:
    """The API names the missing shards, and a split that has none."""
    twin.upload("steady/incomplete", {DAMAGED: whole_version()[DAMAGED]})
    wait_until(lambda: twin.version("steady/incomplete"), what="the shard to be validated", timeout_s=WITHIN_S)
    twin.await_quiet()
    version = twin.version("steady/incomplete")
    missing = {split: described["missing"] for split, described in version["splits"].items()}
    expected = {
        "train": ["train-00000-of-00002"],
        "validation": ["validation-*: no shard of this split has arrived yet"],
    }
    assert ("open", [], expected) == (version["state"], version["runs"], missing)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two files that belong to no pipeline's dataset."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    return sorted(tmp_path.iterdir())


def test_files_become_blobs_of_a_version(twin: TwinUnderTest, shards: list[Path]) -> None:
    """Each file is stored below dataset and version, with its content."""
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        before = uploader.has("unknown/v1/")
        upload_all(uploader, shards, ("unknown", "v1"))
        after = uploader.has("unknown/v1/")
    content = twin.blobs.get_blob_client("datasets", "unknown/v1/b").download_blob().readall()
    assert (False, True, b"b" * 1000) == (before, after, content)


def test_a_shard_that_is_there_is_not_overwritten_unasked(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The error names the blob and both solutions; --overwrite replaces the blob."""
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        upload_all(uploader, shards, ("unknown", "v2"))
        shards[0].write_bytes(b"c" * 1000)
        with pytest.raises(CliError, match="unknown/v2/a exists already: pass --overwrite"):
            upload_all(uploader, shards, ("unknown", "v2"))
        upload_all(uploader, shards, ("unknown", "v2"), overwrite=True)


def test_a_container_that_is_not_there_is_one_sentence(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The error of the storage account is shown without a stack trace."""
    refused = pytest.raises(
        CliError, match=r"http://127\.0\.0\.1:.* cannot be listed, so nothing was uploaded: The specified container"
    )
    with ShardUploader.connected(twin.twin.places.data_connection, "nowhere") as uploader, refused:
        upload_all(uploader, shards, ("unknown", "v3"))


def test_progress_counts_every_byte_once(twin: TwinUnderTest, shards: list[Path]) -> None:
    """The reported steps add up to the file's size."""
    steps: list[int] = []
    with ShardUploader.connected(twin.twin.places.data_connection, "datasets") as uploader:
        uploader.upload(shards[0], "unknown/v4/a", steps.append, overwrite=False)
    assert 1000 == sum(steps)
