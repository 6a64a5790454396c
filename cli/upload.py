"""``landfall upload``: what would be ignored is refused before the first byte, and a repeated upload goes on."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import click
from azure.core.exceptions import AzureError, ClientAuthenticationError, ResourceExistsError
from azure.storage.blob import BlobServiceClient, ContainerClient, LinearRetry

from cli.api_client import ApiClient, ApiError
from cli.errors import CliError
from cli.options import DATASET_VERSION, OR_A_TWIN, TwinAddress, function_app_options, running_twin_of_this_clone
from cli.progress import Step, uploading_bar
from shared.crc import crc32c_of_file
from shared.safe_text import one_line, public_url

if TYPE_CHECKING:
    from function_app.config.layouts import Layout

MAX_BLOCK_BYTES = 8 << 20
STORAGE_SCOPE = "https://storage.azure.com/.default"
CONCURRENCY = 4
"""Blocks of one shard that are uploaded at the same time."""
CRC_METADATA = "landfall_crc32c"
"""Metadata of an uploaded blob: by it, a repeated upload knows that the content is there."""
MAX_LISTED = 5
EMULATORS = ("127.0.0.1", "localhost")
"""Hosts on which an account's name is a part of the path."""
container_option = click.option(
    "--container",
    envvar="LANDFALL_DATA_CONTAINER",
    show_envvar=True,
    default="datasets",
    help="Container of the data account.",
)
UNAUTHORIZED = "unauthorized"
"""See ApiError.code."""


@click.command(epilog="Example: landfall upload shards --to digits/2026-11-20")
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=DATASET_VERSION, help="Dataset and version to upload as.")
@container_option
@click.option(
    "--account-url",
    help="URL of the data account, such as https://NAME.blob.core.windows.net (default: see above).",
)
@click.option("--overwrite", is_flag=True, help="Replace shards that exist already.")
@function_app_options
def upload(
    sources: tuple[Path, ...],
    target: tuple[str, str],
    *,
    container: str,
    account_url: str | None,
    url: str | None,
    key: str | None,
    overwrite: bool,
) -> None:
    """Upload shards (files, or folders of files) as a dataset version.

    The data account is the first of these: --account-url (signed in by `az login` or a managed identity), the
    environment variable DataStorage (a connection string), DataStorage__blobServiceUri (a URL), or the local twin
    of this clone.

    Where the pipeline's `data.layout` has a marker, folders are uploaded with all that is in them, and the marker is
    written last.

    An upload that was interrupted is continued by the same command: shards that are there already are left alone.
    """
    account, twin = data_account(account_url)
    intake = ask_for_intake(target[0], url, key, twin)
    shards = find_shards(sources, intake)
    refuse_ignored(shards, target[1], intake=intake)
    version = "/".join(target)
    with open_uploader(account, container) as uploader:
        num_there = upload_all(uploader, list(shards.values()), target, names=list(shards), overwrite=overwrite)
        if intake.marker:
            uploader.mark(f"{version}/{intake.marker}", is_new=num_there < len(shards))
    there = f" ({num_there} were there already)" if num_there else ""
    click.echo(f"Uploaded {len(shards) - num_there} shards as {version}{there}. Next: landfall status {version}")


def find_shards(sources: tuple[Path, ...], intake: Intake | None = None) -> dict[str, Path]:
    """Return the files to upload by their names in the version, folders in order of name.

    Raises CliError for no file, for two files of one name, and for a folder in a folder where the pipeline's layout
    has none.
    """
    found = [file for source in sources for file in _files_of(source, intake or Intake())]
    if not found:
        raise CliError(f"{', '.join(str(s) for s in sources)}: there is no file to upload.")
    names = Counter(name for name, _ in found)
    if twice := sorted(name for name, num in names.items() if num > 1):
        raise CliError(
            f"Several files have the same name: {_listed(twice)}. One would replace the other: rename one."
        )
    return dict(found)


def _files_of(source: Path, intake: Intake) -> Iterator[tuple[str, Path]]:
    """Yield names and files of a source, without hidden ones and what a program that wrote the data left behind."""
    if not source.is_dir():
        yield source.name, source
    elif intake.takes_folders:
        for file in sorted(source.rglob("*")):
            name = file.relative_to(source).as_posix()
            if file.is_file() and not intake.is_left_behind(name):
                yield name, file
    else:
        shown_ones = [file for file in sorted(source.iterdir()) if not file.name.startswith(".")]
        if nested := [one_line(str(file)) for file in shown_ones if file.is_dir()]:
            raise CliError(
                f"{_listed(nested)}: a folder within a folder. A version has no folders: pass the folders of its "
                "shards."
            )
        yield from ((file.name, file) for file in shown_ones if file.is_file())


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What the function app takes for a dataset; unknown as long as it was not asked."""

    pipeline: str = ""
    splits: Collection[str] | None = None
    layout: Layout | None = None
    """The pipeline's ``data.layout``; None for the default one."""

    @property
    def marker(self) -> str | None:
        """The name of the file that says that a version is whole, None where there is none."""
        return self._layout.marker if self._layout.kind == "marker" else None

    @property
    def takes_folders(self) -> bool:
        """Whether shards may lie in folders."""
        return self._layout.has_any_names

    def is_left_behind(self, name: str) -> bool:
        """Whether the function app takes a file for what a writer leaves behind."""
        return self._layout.is_left_behind(name)

    def check(self, version: str, name: str) -> None:
        """Raise NotAShardError where the function app would ignore a file."""
        from function_app.domain.shard_paths import shard_of_version

        shard_of_version(version, name, splits=self.splits, pipeline=self.pipeline, layout=self._layout)

    @property
    def _layout(self) -> Layout:
        from function_app.config.layouts import Layout

        return self.layout or Layout()


def refuse_ignored(shards: Collection[str], version: str, *, intake: Intake) -> None:
    """Raise CliError where the function app would never look at a file, by the rule that it applies itself."""
    from function_app.domain.shard_paths import NotAShardError
    from shard_validation import COUNT_FILES

    problems = []
    for shard in shards:
        try:
            if shard not in COUNT_FILES:
                intake.check(version, shard)
        except NotAShardError as error:
            problems.append(one_line(str(error)))
    if problems:
        raise CliError(
            f"Nothing was uploaded: the function app would ignore {len(problems)} of {len(shards)} files. "
            f"Rename them, or leave them out.\n  {_listed(problems, separator=chr(10) + '  ')}"
        )


def ask_for_intake(dataset: str, url: str | None, key: str | None, twin: TwinAddress | None) -> Intake:
    """Return what the function app takes for a dataset; say so where it cannot be asked.

    Raises CliError where no pipeline is for the dataset, or the function app refuses the key.
    """
    from function_app.domain.shard_paths import without_pipeline

    if url is None and twin is None:
        return _unknown(dataset, "pass --url or set LANDFALL_URL")
    address, key = (
        (url, key) if url is not None else (twin.functions_url, key or twin.function_key) if twin else ("", "")
    )
    try:
        with ApiClient(address, key) as client:
            pipelines = client.pipelines()
    except CliError as error:
        if isinstance(error, ApiError) and error.code == UNAUTHORIZED:
            raise
        return _unknown(dataset, error.message)
    by_dataset = {each["dataset"]: each for each in pipelines}
    found = by_dataset.get(dataset)
    if found is None and None in by_dataset:
        return _unknown(dataset, "a pipeline file without a readable dataset is out of service")
    if found is None:
        raise CliError(f"Nothing was uploaded: {without_pipeline(dataset, by_dataset)}.")
    if found["state"] == "out_of_service":
        return _unknown(dataset, "its pipeline is out of service, and the shards wait until its file is mended")
    return Intake(pipeline=found["pipeline"], splits=found["splits"], layout=_layout(found))


def _layout(found: Mapping[str, Any]) -> Layout | None:
    """Return the layout that the function app states. Raises CliError for one that this version does not know."""
    from function_app.config.layouts import Layout

    try:
        return Layout.model_validate(found["layout"]) if found.get("layout") else None
    except ValueError as error:
        raise CliError(
            f"This version of landfall does not know the app's data.layout {found['layout']!r:.200}. Install "
            "the function app's version."
        ) from error


def _unknown(dataset: str, reason: str) -> Intake:
    click.echo(f"Not checked whether a pipeline takes shards of {dataset}: {reason}", err=True)
    return Intake()


def upload_all(
    uploader: ShardUploader,
    shards: Sequence[Path],
    target: tuple[str, str],
    *,
    names: Sequence[str] = (),
    overwrite: bool = False,
) -> int:
    """Upload with a progress bar that counts bytes; return how many shards were there already and left alone.

    ``names`` are those within the version, by default the names of the files.
    """
    folder = "/".join(target)
    paths = {f"{folder}/{name}": shard for name, shard in zip(names or [s.name for s in shards], shards, strict=True)}
    left = paths if overwrite else dict(_not_there(paths, uploader.existing(f"{folder}/")))
    if not left:
        return len(shards)
    total = sum(shard.stat().st_size for shard in left.values())
    with uploading_bar(f"uploading {len(left)} shards", total_bytes=total) as step:
        for path, shard in left.items():
            uploader.upload(shard, path, step, overwrite=overwrite)
    return len(shards) - len(left)


def _not_there(paths: Mapping[str, Path], existing: Mapping[str, str | None]) -> Iterator[tuple[str, Path]]:
    """Yield the shards to upload. Raises CliError where one exists with another content, before any is uploaded."""
    others = []
    for path, shard in paths.items():
        if path not in existing:
            yield path, shard
        elif existing[path] is None or existing[path] != _crc(shard):
            others.append(path)
    if others:
        raise CliError(f"{_listed(others)} exists already: pass --overwrite, or choose another version.")


def data_account(account_url: str | None) -> tuple[str, TwinAddress | None]:
    """Return the data account, as a URL or a connection string, and the twin if it is the twin's.

    Raises CliError where none is named and no twin runs.
    """
    if account_url is not None:
        return checked_account_url(account_url, "--account-url"), None
    connection = os.environ.get("DataStorage")  # noqa: SIM112 - the Functions convention writes it so
    service_uri = os.environ.get("DataStorage__blobServiceUri")  # noqa: SIM112
    if connection:
        return connection, None
    if service_uri:
        return checked_account_url(service_uri, "DataStorage__blobServiceUri"), None
    twin = running_twin_of_this_clone()
    if twin is None:
        raise CliError(f"No storage account: pass --account-url{OR_A_TWIN}.")
    return twin.data_connection, twin


def checked_account_url(url: str, name: str) -> str:
    """Return the URL of a storage account. Raises CliError for anything else, without repeating a signature."""
    example = "https://NAME.blob.core.windows.net"
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname or "", parts.port is not None
        if host in EMULATORS:
            return url
    except ValueError as error:
        raise CliError(f"{name} is no URL: {error}. It must look like {example}.") from error
    shown = repr(public_url(url)[:200])
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise CliError(f"{name} {shown} holds more than the account's address: it must look like {example}. "
                       "For a signature, set DataStorage to a connection string.")  # fmt: skip
    if parts.scheme != "https" or "." not in host or has_port or parts.path.strip("/"):
        raise CliError(f"{name} {shown} is not the address of a storage account: it must look like {example}.")
    if ".dfs." in host:
        raise CliError(f"{name} {shown} is the Data Lake address: use https://{host.replace('.dfs.', '.blob.')}.")
    return f"https://{host}"


def open_uploader(account: str, container: str) -> ShardUploader:
    """Return an uploader to a container of an account. Raises CliError where one of them is malformed."""
    from function_app.config.fields import CONTAINER_NAME

    if re.fullmatch(CONTAINER_NAME, container) is None:
        raise CliError(
            f"--container {container[:100]!r} is malformed: 3 to 63 lower-case letters, digits and single -."
        )
    is_url = account.startswith("https://")
    return ShardUploader.signed_in(account, container) if is_url else ShardUploader.connected(account, container)


class ShardUploader:
    """Uploads shards to one container."""

    def __init__(self, service: BlobServiceClient, container: str) -> None:
        self._service = service
        self.container: ContainerClient = service.get_container_client(container)

    @classmethod
    def connected(cls, connection: str, container: str) -> ShardUploader:
        """Open an account by connection string. Raises CliError for a malformed one."""
        try:
            service = BlobServiceClient.from_connection_string(connection, **_options())
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
        return cls(BlobServiceClient(account_url, credential, **_options()), container)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.container.close()
        self._service.close()

    def has(self, prefix: str) -> bool:
        """Return whether a blob exists below a prefix. Raises CliError where the account refuses."""
        try:
            return next(iter(self.container.list_blob_names(name_starts_with=prefix)), None) is not None
        except AzureError as error:
            raise CliError(f"{self._service.url} cannot be listed: {_first_line(error)}") from error

    def existing(self, prefix: str) -> dict[str, str | None]:
        """Return the blobs below a prefix with the CRC32C that their uploader stated, None where it stated none.

        Raises CliError where the account or the container does not exist or refuses.
        """
        try:
            blobs = self.container.list_blobs(name_starts_with=prefix, include=["metadata"])
            return {blob.name: (blob.metadata or {}).get(CRC_METADATA) for blob in blobs}
        except AzureError as error:
            where = public_url(self.container.url)
            raise CliError(f"{where} cannot be listed, so nothing was uploaded: {_first_line(error)}") from error

    def mark(self, path: str, *, is_new: bool) -> None:
        """Write an empty marker after the shards; leave one alone that is not older, unless ``is_new``.

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
        """Upload one file, calling `step` with the bytes done.

        Raises CliError where the blob exists and must stay, the file changes or cannot be read, or the account
        refuses.
        """
        options: dict[str, Any] = {"max_concurrency": CONCURRENCY, "progress_hook": _differences(step)}
        try:
            before = file.stat()
            options["metadata"] = {CRC_METADATA: _crc(file)}
            with file.open("rb") as content:
                self.container.upload_blob(path, content, overwrite=overwrite, **options)
            after = file.stat()
            if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
                raise CliError(f"{file}: it changed while it was uploaded; upload it again with --overwrite.")
        except OSError as error:
            raise CliError(f"{file}: cannot be read: {error}") from error
        except ResourceExistsError as error:
            raise CliError(f"{path} exists already: pass --overwrite, or choose another version.") from error
        except AzureError as error:
            raise CliError(f"{path} was not uploaded to {self._service.url}: {_first_line(error)}") from error


def _options() -> dict[str, Any]:
    """Return options of the client; by default, it would look for a mistyped account for a minute."""
    retry = LinearRetry(backoff=2, retry_total=4, random_jitter_range=0)
    return {"max_block_size": MAX_BLOCK_BYTES, "retry_policy": retry}


def _crc(file: Path) -> str:
    try:
        return crc32c_of_file(file)
    except OSError as error:
        raise CliError(f"{file}: cannot be read: {error}") from error


def _listed(names: list[str], separator: str = ", ") -> str:
    more = [f"and {len(names) - MAX_LISTED:,} more"] if len(names) > MAX_LISTED else []
    return separator.join([*names[:MAX_LISTED], *more])


def _differences(step: Step) -> Callable[[int, int | None], None]:
    """Turn the SDK's hook, which gets all bytes so far, into one that gets the bytes since the last call."""
    done = 0

    def report(current: int, _total: int | None) -> None:
        nonlocal done
        step(current - done)
        done = current

    return report


def _first_line(error: AzureError) -> str:
    return str(error).splitlines()[0] if str(error) else repr(error)
