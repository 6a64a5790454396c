"""`landfall upload` on real Azurite: it continues where it was interrupted, and compares before it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Barrier, Lock
from typing import Any
from uuid import uuid4

import pytest
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient

from cli.errors import CliError
from cli.progress import Step
from cli.uploader import FILES_AT_ONCE, ShardUploader, _Content, upload_all
from local_azure.azurite import Azurite

pytestmark = pytest.mark.azurite

TARGET = ("digits", "v1")
LOCK = Lock()
BLOCK_BYTES = 64 << 10


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
    """Return name → ETag of every blob; the ETag changes with each write."""
    return {blob.name: blob.etag for blob in container.list_blobs()}


class Interrupted(ShardUploader):
    """An uploader that loses its connection after two shards."""

    num_left = 2

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """See ShardUploader."""
        with LOCK:
            if not self.num_left:
                raise KeyboardInterrupt
            self.num_left -= 1
        super().upload(file, path, step, overwrite=overwrite)


def test_a_repeated_upload_goes_on_where_the_first_was_interrupted(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """Existing blobs are neither sent nor changed: a new ETag would be a new upload to the function app."""
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


class Meeting(ShardUploader):
    """Sends no file before as many uploads as may run concurrently have begun."""

    begun = Barrier(FILES_AT_ONCE, timeout=300)

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """See ShardUploader."""
        self.begun.wait()
        super().upload(file, path, step, overwrite=overwrite)


def test_several_files_are_sent_at_a_time_and_the_rate_is_said(
    azurite: Azurite, container: ContainerClient, shards: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Sequential uploads would wait for ever."""
    with Meeting.connected(azurite.connection_string(), container.container_name) as uploader:
        upload_all(uploader, shards, TARGET)
    assert (FILES_AT_ONCE, True) == (len(etags(container)), "MB/s" in capsys.readouterr().out)


def test_a_shard_with_another_content_is_found_before_the_first_byte(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """This includes a shard of the same size, and one without a stated checksum; --overwrite replaces them."""
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
        assert 3 == upload_all(uploader, shards, TARGET, overwrite=True)
    assert (1, 4, True) == (len(before), len(replaced), before.items().isdisjoint(replaced.items()))
    # Equal content is not written again, because a new ETag would be validated again.
    assert {f"digits/v1/{shards[1].name}"} == {name for name, _ in replaced.items() - etags(container).items()}


def test_a_container_that_is_not_there_is_found_before_the_first_byte(azurite: Azurite, shards: list[Path]) -> None:
    """The error is that of the account, without a stack trace."""
    refused = pytest.raises(CliError, match="cannot be listed, so nothing was uploaded: The specified container")
    with ShardUploader.connected(azurite.connection_string(), "nowhere") as uploader, refused:
        upload_all(uploader, shards, TARGET)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of four blocks, the last of which is short."""
    monkeypatch.setattr("cli.uploader.BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr("cli.uploader.BLOCKS_AT_ONCE", 1)
    path = tmp_path / "train-00000-of-00001.tfrecord"
    path.write_bytes(Random(7).randbytes(3 * BLOCK_BYTES + 1))  # noqa: S311 (any bytes that differ will do)
    return path


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of each block that is sent, all with their MD5."""
    lengths = list[int]()
    stage = BlobClient.stage_block

    def staged(self: BlobClient, block_id: str, data: bytes, *, validate_content: bool) -> Any:
        assert validate_content
        lengths.append(len(data))
        return stage(self, block_id, data, validate_content=validate_content)

    monkeypatch.setattr(BlobClient, "stage_block", staged)
    return lengths


def test_of_a_large_file_only_the_missing_blocks_are_sent_again(
    azurite: Azurite, container: ContainerClient, large: Path, sent: list[int]
) -> None:
    """There is no blob before it is complete. A file that has changed meanwhile is sent again."""
    connection, done = azurite.connection_string(), list[int]()

    def lost(num_bytes: int) -> None:
        done.append(num_bytes)
        if len(done) == 2:
            raise KeyboardInterrupt

    with (
        ShardUploader.connected(connection, container.container_name) as uploader,
        pytest.raises(KeyboardInterrupt),
    ):
        uploader.upload(large, f"digits/v1/{large.name}", lost, overwrite=False)
    blob = container.get_blob_client(f"digits/v1/{large.name}")
    kept = [block.size for block in blob.get_block_list("uncommitted")[1]]
    assert ([], sorted(sent)) == (list(container.list_blobs()), sorted(kept))
    sent.clear()
    with ShardUploader.connected(connection, container.container_name) as uploader:
        assert 0 == upload_all(uploader, [large], TARGET)
        assert sum(sent) == large.stat().st_size - sum(kept) > 0
        assert large.read_bytes() == blob.download_blob().readall()
        assert 1 == upload_all(uploader, [large], TARGET)
        large.write_bytes(large.read_bytes()[::-1])
        with pytest.raises(CliError, match="exists already: pass --overwrite"):
            upload_all(uploader, [large], TARGET)
        sent.clear()
        upload_all(uploader, [large], TARGET, overwrite=True)
    assert (4, large.read_bytes()) == (len(sent), blob.download_blob().readall())


def test_a_file_that_changes_while_it_is_uploaded_becomes_no_blob(
    azurite: Azurite, container: ContainerClient, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blob would be a mixture. A small file is sent as it was when it was checked, or not at all."""
    content = large.read_bytes()
    meddled = list[int]()

    def meddle(num_bytes: int) -> None:
        meddled.append(num_bytes)
        large.write_bytes(content[: 2 * BLOCK_BYTES] + b"other")

    with ShardUploader.connected(azurite.connection_string(), container.container_name) as uploader:
        with pytest.raises(CliError, match="it changed while it was uploaded, so its blob was not written"):
            uploader.upload(large, "digits/v1/x", meddle, overwrite=False)
        whole = _Content.of(large)
        large.write_bytes(b"small")
        monkeypatch.setattr(_Content, "of", lambda _file: replace(whole, blocks=whole.blocks[-1:]))
        with pytest.raises(CliError, match="it changed while it was uploaded, so its blob was not written"):
            uploader.upload(large, "digits/v1/x", meddle, overwrite=False)
    assert ([BLOCK_BYTES], []) == (meddled[:1], list(container.list_blobs()))


def test_a_file_that_cannot_be_read_is_named(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """The upload stops, and a repeated one continues."""
    shards[0].unlink()
    refused = pytest.raises(CliError, match=f"{shards[0]}: cannot be read: .* No such file")
    with ShardUploader.connected(azurite.connection_string(), container.container_name) as uploader, refused:
        upload_all(uploader, shards, TARGET)


def test_the_marker_is_written_last_and_again_only_after_another_shard(
    azurite: Azurite, container: ContainerClient, shards: list[Path]
) -> None:
    """A marker that is written again stands for other files, so repeating the same upload does not write it."""
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
