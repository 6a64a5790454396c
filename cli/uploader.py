"""Upload files to a container, several at a time, in blocks that a repeated upload does not send again."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, ContainerClient, LinearRetry
from crc32c import crc32c

from cli.errors import CliError
from cli.progress import Step, uploading_bar
from shared.crc import combined_crc32c, crc32c_of_file
from shared.safe_text import counted, public_url

BLOCK_BYTES = 8 << 20
FILES_AT_ONCE = 4
BLOCKS_AT_ONCE = 8
"""Blocks of all files together. Each is in memory while it is sent."""
STORAGE_SCOPE = "https://storage.azure.com/.default"
CRC_METADATA = "landfall_crc32c"
"""Metadata of an uploaded blob, by which a repeated upload knows that the content exists."""
MAX_LISTED = 5


def upload_all(
    uploader: ShardUploader,
    shards: Sequence[Path],
    target: tuple[str, str],
    *,
    names: Sequence[str] = (),
    overwrite: bool = False,
    to_stderr: bool = False,
) -> int:
    """Upload with a progress bar that counts bytes; return how many files already existed and were skipped.

    ``names`` are the names within the version, by default those of the files. Raises CliError for the first file that
    fails; the others are not started, and a repeated upload continues.
    """
    folder = "/".join(target)
    paths = {f"{folder}/{name}": shard for name, shard in zip(names or [s.name for s in shards], shards, strict=True)}
    left = dict(_not_there(paths, uploader.existing(f"{folder}/"), overwrite=overwrite))
    if not left:
        return len(shards)
    total = sum(map(_num_bytes, left.values()))
    with (
        uploading_bar(f"uploading {counted(len(left), 'file')}", total_bytes=total, to_stderr=to_stderr) as step,
        ThreadPoolExecutor(FILES_AT_ONCE) as files,
    ):
        try:
            _finish(
                [files.submit(uploader.upload, file, path, step, overwrite=overwrite) for path, file in left.items()]
            )
        except BaseException:
            uploader.abandon()
            raise
    return len(shards) - len(left)


def upload_in_turn(
    uploader: ShardUploader, files: Mapping[str, Path], target: tuple[str, str], *, overwrite: bool
) -> None:
    """Upload files by their names within the version, one after the other; skip those that exist.

    Raises CliError.
    """
    folder = "/".join(target)
    paths = {f"{folder}/{name}": file for name, file in files.items()}
    left = dict(_not_there(paths, uploader.existing(f"{folder}/"), overwrite=overwrite)) if paths else {}
    for path, file in left.items():
        uploader.upload(file, path, lambda _: None, overwrite=overwrite)


def _not_there(
    paths: Mapping[str, Path], existing: Mapping[str, str | None], *, overwrite: bool
) -> Iterator[tuple[str, Path]]:
    """Yield the files whose content must be uploaded.

    Raises CliError, before any file is uploaded, if one exists with another content and may not be replaced.
    """
    others = []
    for path, shard in paths.items():
        if path not in existing:
            yield path, shard
        elif existing[path] is None or existing[path] != _crc(shard):
            others.append(path)
            if overwrite:
                yield path, shard
    if others and not overwrite:
        exist = "exists" if len(others) == 1 else "exist"
        raise CliError(f"{listed(others)} {exist} already: pass --overwrite, or choose another version.")


def _finish(running: Sequence[Future[None]]) -> None:
    """Wait for all, or for the first that fails, whose error is raised after those that wait are canceled."""
    done, waiting = wait(running, return_when=FIRST_EXCEPTION)
    for future in waiting:
        future.cancel()
    for future in done:
        future.result()


class ShardUploader:
    """Uploads shards to one container."""

    def __init__(self, service: BlobServiceClient, container: str) -> None:
        self._service = service
        self._blocks = ThreadPoolExecutor(BLOCKS_AT_ONCE)
        self.container: ContainerClient = service.get_container_client(container)

    @classmethod
    def connected(cls, connection: str, container: str) -> ShardUploader:
        """Open an account by connection string. Raises CliError for a malformed one."""
        try:
            service = BlobServiceClient.from_connection_string(connection, retry_policy=_retries())
        except ValueError as error:
            raise CliError(f"DataStorage is not a storage connection string: {error}") from error
        return cls(service, container)

    @classmethod
    def signed_in(cls, account_url: str, container: str) -> ShardUploader:
        """Open an account with the identity of this machine, as by `az login`. Raises CliError without one."""
        from azure.identity import DefaultAzureCredential

        # It logs a paragraph for each way to sign in that it has tried.
        logging.getLogger("azure.identity").setLevel(logging.ERROR)
        credential = DefaultAzureCredential()
        try:
            credential.get_token(STORAGE_SCOPE)  # the client would try for a while
        except ClientAuthenticationError as error:
            raise CliError(f"Not signed in to Azure: run `az login`. {_first_line(error)}") from error
        return cls(BlobServiceClient(account_url, credential, retry_policy=_retries()), container)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.shutdown(cancel_futures=True)
        self.container.close()
        self._service.close()

    def abandon(self) -> None:
        """Start no further block. Running uploads fail."""
        self._blocks.shutdown(wait=False, cancel_futures=True)

    def has(self, prefix: str) -> bool:
        """Return whether a blob exists below a prefix. Raises CliError if the account refuses."""
        try:
            return next(iter(self.container.list_blob_names(name_starts_with=prefix)), None) is not None
        except AzureError as error:
            raise CliError(f"{self._service.url} cannot be listed: {_first_line(error)}") from error

    def existing(self, prefix: str) -> dict[str, str | None]:
        """Return the blobs below a prefix with the CRC32C that their uploader stated, None if it stated none.

        Raises CliError if the account or the container does not exist or refuses.
        """
        try:
            blobs = self.container.list_blobs(name_starts_with=prefix, include=["metadata"])
            return {blob.name: (blob.metadata or {}).get(CRC_METADATA) for blob in blobs}
        except AzureError as error:
            where = public_url(self.container.url)
            raise CliError(f"{where} cannot be listed, so nothing was uploaded: {_first_line(error)}") from error

    def mark(self, path: str, *, is_new: bool) -> None:
        """Write an empty marker after the shards, unless one that is not older exists; ``is_new`` always writes it.

        Raises CliError.
        """
        try:
            written = {} if is_new else self._written(path.rpartition("/")[0] + "/")
            if path not in written or written[path] < max(written.values()):
                self.container.upload_blob(path, b"", overwrite=True)
        except AzureError as error:
            raise CliError(f"{path} was not written to {self._service.url}: {_first_line(error)}") from error

    def _written(self, prefix: str) -> dict[str, datetime]:
        return {blob.name: blob.last_modified for blob in self.container.list_blobs(name_starts_with=prefix)}

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """Upload one file, calling ``step`` with the number of bytes of each block that is stored.

        The file is read twice, so that the blob is written only if it has the stated CRC32C. Storage compares each
        block with its MD5. Raises CliError if the blob exists and must stay, the file changes or cannot be read, or
        the account refuses.
        """
        try:
            with _named_in_errors(file):
                self._send(_Content.of(file), path, step, overwrite=overwrite)
        except AzureError as error:
            if getattr(error, "error_code", None) == "BlobAlreadyExists":
                raise CliError(f"{path} exists already: pass --overwrite, or choose another version.") from error
            raise CliError(f"{path} was not uploaded to {self._service.url}: {_first_line(error)}") from error

    def _send(self, content: _Content, path: str, step: Step, *, overwrite: bool) -> None:
        blob = self.container.get_blob_client(path)
        options: dict[str, Any] = {"metadata": {CRC_METADATA: content.crc}}
        if len(content.blocks) > 1:
            self._send_blocks(blob, content, step)
            if not overwrite:
                options["match_condition"] = MatchConditions.IfMissing
            blob.commit_block_list([BlobBlock(block.id) for block in content.blocks], **options)
        else:
            data = b"".join(map(content.read, content.blocks))
            blob.upload_blob(data, overwrite=overwrite, validate_content=True, **options)
            step(len(data))

    def _send_blocks(self, blob: BlobClient, content: _Content, step: Step) -> None:
        """Send the blocks that storage does not have. Storage keeps uncommitted blocks for a week."""
        try:
            _, kept = blob.get_block_list("uncommitted")
        except ResourceNotFoundError:
            kept = []
        there = {(block.id, block.size) for block in kept}

        def send(block: _Block) -> None:
            if (block.id, block.num_bytes) not in there:
                blob.stage_block(block.id, content.read(block), validate_content=True)
            step(block.num_bytes)

        _finish([self._blocks.submit(send, block) for block in content.blocks])


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A part of a file. Its name differs from the names of blocks of any other content."""

    id: str
    offset: int
    num_bytes: int
    crc: int


@dataclass(frozen=True, kw_only=True)
class _Content:
    """A file as it was when it was read for the first time."""

    file: Path
    crc: str
    blocks: Sequence[_Block]

    @classmethod
    def of(cls, file: Path) -> _Content:
        """Read a file. Raises OSError."""
        crcs = list[tuple[int, int]]()
        with file.open("rb", buffering=0) as reader:
            while data := reader.read(BLOCK_BYTES):
                crcs.append((crc32c(data), len(data)))
        crc = f"{reduce(lambda whole, block: combined_crc32c(whole, *block), crcs, 0):08x}"
        # Storage asks for ids of one length within a blob; these have that of the SDK's own.
        blocks = [
            _Block(id=f"{crc}{number:040d}", offset=number * BLOCK_BYTES, num_bytes=num_bytes, crc=block_crc)
            for number, (block_crc, num_bytes) in enumerate(crcs)
        ]
        return cls(file=file, crc=crc, blocks=blocks)

    def read(self, block: _Block) -> bytes:
        """Return a block. Raises CliError if it has changed."""
        with self.file.open("rb", buffering=0) as reader:
            data = os.pread(reader.fileno(), block.num_bytes, block.offset)
        if crc32c(data) != block.crc or len(data) != block.num_bytes:
            raise CliError(f"{self.file}: it changed while it was uploaded, so its blob was not written. Try again.")
        return data


def _retries() -> LinearRetry:
    """Return the retries of the client; by default, it would look for a mistyped account for a minute."""
    return LinearRetry(backoff=2, retry_total=4, random_jitter_range=0)


def _num_bytes(file: Path) -> int:
    with _named_in_errors(file):
        return file.stat().st_size


def _crc(file: Path) -> str:
    with _named_in_errors(file):
        return crc32c_of_file(file)


@contextmanager
def _named_in_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CliError(f"{file}: cannot be read: {error}") from error


def listed(names: list[str], separator: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = [f"and {len(names) - MAX_LISTED:,} more"] if len(names) > MAX_LISTED else []
    return separator.join([*names[:MAX_LISTED], *more])


def _first_line(error: AzureError) -> str:
    return str(error).splitlines()[0] if str(error) else repr(error)
