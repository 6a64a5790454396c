"""`landfall upload` on a real Azurite: it goes on where it was interrupted, and looks before it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from cli.errors import CliError
from cli.progress import Step
from cli.upload import ShardUploader, upload_all
from local_azure.azurite import Azurite

pytestmark = pytest.mark.azurite

TARGET = ("digits", "v1")


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    """A new container."""
    service = BlobServiceClient.from_connection_string(azurite.connection_string())
    with closing(service):
        yield service.create_container(f"c{uuid4().hex}")


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Four files of different content and size."""
    paths = [tmp_path / f"train-0000{index}-of-00004.tfrecord" for index in range(4)]
    for index, path in enumerate(paths):
        path.write_bytes(bytes([index]) * (1000 + index))
    return paths


def etags(container: ContainerClient) -> dict[str, str]:
    """Name → ETag of every blob, which changes with each write."""
    return {blob.name: blob.etag for blob in container.list_blobs()}


class Interrupted(ShardUploader):
    """Loses its connection after two shards."""

    num_left = 2

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """See ShardUploader."""
        if not self.num_left:
            raise KeyboardInterrupt
        self.num_left -= 1
        super().upload(file, path, step, overwrite=overwrite)


def test_a_repeated_upload_goes_on_where_the_first_was_interrupted(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """What is there is neither sent nor changed: a new ETag would be a new upload to the function app."""
    connection = azurite.connection_string()
    with (
        Interrupted.connected(connection, container.container_name) as uploader,
        pytest.raises(KeyboardInterrupt),
    ):
        upload_all(uploader, shards, TARGET)
    before = etags(container)
    with ShardUploader.connected(connection, container.container_name) as uploader:
        num_there = [upload_all(uploader, shards, TARGET) for _ in range(2)]
    after = etags(container)
    assert (2, [2, 4], 4) == (len(before), num_there, len(after))
    assert before.items() <= after.items()
    assert shards[3].read_bytes() == container.download_blob(f"digits/v1/{shards[3].name}").readall()


def test_a_shard_with_another_content_is_found_before_the_first_byte(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """Also one of the same size, and one whose uploader stated no checksum; --overwrite replaces all."""
    container.upload_blob(f"digits/v1/{shards[2].name}", shards[2].read_bytes())
    with ShardUploader.connected(azurite.connection_string(), container.container_name) as uploader:
        with pytest.raises(CliError, match=f"digits/v1/{shards[2].name} exists already: pass --overwrite"):
            upload_all(uploader, shards, TARGET)
        before = etags(container)
        upload_all(uploader, shards, TARGET, overwrite=True)
        replaced = etags(container)
        shards[1].write_bytes(b"x" * 1001)
        with pytest.raises(CliError, match=f"digits/v1/{shards[1].name} exists already"):
            upload_all(uploader, shards, TARGET)
    assert (1, 4, True) == (len(before), len(replaced), before.items().isdisjoint(replaced.items()))


def test_a_container_that_is_not_there_is_found_before_the_first_byte(azurite: Azurite, shards: list[Path]) -> None:
    """The account's own word, without a stack trace."""
    refused = pytest.raises(CliError, match="cannot be listed, so nothing was uploaded: The specified container")
    with ShardUploader.connected(azurite.connection_string(), "nowhere") as uploader, refused:
        upload_all(uploader, shards, TARGET)


def test_a_file_that_changes_while_it_is_uploaded_is_reported(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """Its blob may hold a mixture, and its stated checksum is wrong."""

    def meddle(_num_bytes: int) -> None:
        shards[0].write_bytes(b"other")

    refused = pytest.raises(CliError, match="it changed while it was uploaded")
    with ShardUploader.connected(azurite.connection_string(), container.container_name) as uploader, refused:
        uploader.upload(shards[0], "digits/v1/x", meddle, overwrite=False)


def test_the_marker_is_written_last_and_again_only_after_another_shard(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """A marker that is written again stands for other files: a repeated upload of the same ones leaves it alone."""
    names = [f"split=train/{shard.name}" for shard in shards]
    with ShardUploader.connected(azurite.connection_string(), container.container_name) as uploader:
        upload_all(uploader, shards[:3], TARGET, names=names[:3])
        uploader.mark("digits/v1/_SUCCESS", is_new=True)
        first = etags(container)
        uploader.mark(
            "digits/v1/_SUCCESS", is_new=upload_all(uploader, shards[:3], TARGET, names=names[:3]) < len(first) - 1
        )
        assert first == etags(container)
        upload_all(uploader, shards, TARGET, names=names)
        uploader.mark("digits/v1/_SUCCESS", is_new=True)
        before = etags(container)
        uploader.mark("digits/v1/_SUCCESS", is_new=False)
        assert before == etags(container)
    assert [f"digits/v1/{name}" for name in sorted(names)] == [name for name in etags(container) if "=" in name]
    written = {blob.name: blob.last_modified for blob in container.list_blobs()}
    assert (max(written.values()), True) == (
        written["digits/v1/_SUCCESS"],
        first["digits/v1/_SUCCESS"] != etags(container)["digits/v1/_SUCCESS"],
    )
