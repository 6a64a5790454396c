"""``landfall upload``: refuse files that the app would ignore before sending any; continue an interrupted upload."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import click

from cli.errors import CliError
from cli.options import DATASET_VERSION, OR_A_TWIN, TwinAddress, function_app_options, running_twin_of_this_clone
from cli.remote.api_client import ApiClient, ApiError
from cli.uploader import ShardUploader, listed, upload_all, upload_in_turn
from cli.validate.inputs import EMULATORS
from shared.safe_text import counted, one_line, public_url

if TYPE_CHECKING:
    from function_app.config.layouts import Layout

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
@click.argument("sources", metavar="PATH ...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=DATASET_VERSION, help="Dataset and version to upload as.")
@container_option
@click.option(
    "--account-url",
    help="URL of the data account, such as https://NAME.blob.core.windows.net (default: see above).",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files whose content differs.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with the number of files that were sent."
)
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
    as_json: bool,
) -> None:
    """Upload shards (files, or folders of files) as a dataset version.

    The data account is the first of these: --account-url (signed in by `az login` or a managed identity), the
    environment variable DataStorage (a connection string), DataStorage__blobServiceUri (a URL), or the local twin
    of this clone.

    If the pipeline's `data.layout` has a marker or a list of files, folders are uploaded with everything in them, and
    the marker, the list or the log of a Delta table is written last.

    Several shards are uploaded at a time. To continue an interrupted upload, repeat the command: shards that are
    complete are skipped, and only the missing blocks of a large shard are sent.
    """
    account, twin = data_account(account_url)
    intake = ask_for_intake(target[0], url, key, twin)
    shards = find_shards(sources, intake)
    parts = _Parts.of(shards, intake)
    refuse_ignored(parts.shards, target[1], intake=intake)
    with open_uploader(account, container) as uploader:
        num_there = _send(uploader, parts, intake, target, overwrite=overwrite, as_json=as_json)
    _report("/".join(target), len(parts.shards) - num_there, num_there, parts.last(intake), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What is uploaded, by what its order depends on."""

    shards: Mapping[str, Path]
    """And the files beside them."""
    log: Mapping[str, Path]
    """The log of a Delta table: the first commit comes last, or the checkpoints."""
    file_list: Path | None

    @classmethod
    def of(cls, files: Mapping[str, Path], intake: Intake) -> Self:
        """Take the log and the list out of the files."""
        of_log = sorted(
            filter(intake.is_of_log, files), key=lambda name: (name.endswith(".json"), name), reverse=True
        )
        apart = {*of_log, intake.manifest}
        return cls(
            shards={name: file for name, file in files.items() if name not in apart},
            log={name: files[name] for name in of_log},
            file_list=files.get(intake.manifest or ""),
        )

    def last(self, intake: Intake) -> str | None:
        """Return what is written after the shards; None where nothing is."""
        return intake.marker or (intake.manifest if self.file_list else None) or ("its log" if self.log else None)


def _send(
    uploader: ShardUploader,
    parts: _Parts,
    intake: Intake,
    target: tuple[str, str],
    *,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Upload in the order that the layout asks for; return how many shards were there already. Raises CliError."""
    names, files = list(parts.shards), list(parts.shards.values())
    num_there = upload_all(uploader, files, target, names=names, overwrite=overwrite, to_stderr=as_json)
    version = "/".join(target)
    if intake.marker:
        uploader.mark(f"{version}/{intake.marker}", is_new=num_there < len(files))
    # Until the first commit is there, or a checkpoint, none can be read, so the app sees all at once.
    upload_in_turn(uploader, parts.log, target, overwrite=overwrite)
    if intake.manifest:
        _upload_list(uploader, parts.file_list, f"{version}/{intake.manifest}")
    return num_there


def _report(version: str, num_sent: int, num_there: int, last: str | None, *, as_json: bool) -> None:
    """Say how many files were sent, what was written after them, and what comes next."""
    if as_json:
        click.echo(json.dumps({"version": version, "uploaded": num_sent, "were_there": num_there}))
        return
    there = f" ({num_there} were there already)" if num_there else ""
    end = f", and {one_line(last)} after them" if last else ""
    click.echo(f"Uploaded {counted(num_sent, 'file')} as {version}{there}{end}. Next: landfall status {version}")


def _upload_list(uploader: ShardUploader, file_list: Path | None, path: str) -> None:
    """Upload the list of a version's files even if it exists: without checksums, it is not valid for newer files."""
    if file_list is None:
        click.echo(
            f"{path}, the list of the version's files, is not among the uploaded files: upload it last.", err=True
        )
    else:
        uploader.upload(file_list, path, lambda _: None, overwrite=True)


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
        raise CliError(f"Several files have the same name: {listed(twice)}. One would replace the other: rename one.")
    return dict(found)


def _files_of(source: Path, intake: Intake) -> Iterator[tuple[str, Path]]:
    """Yield names and files of a source, without hidden ones and what a program that wrote the data left behind."""
    if not source.is_dir():
        yield source.name, source
    elif intake.takes_folders:
        for file in sorted(source.rglob("*")):
            name = file.relative_to(source).as_posix()
            if file.is_file() and (intake.is_of_log(name) or not intake.is_left_behind(name)):
                yield name, file
    else:
        shown_ones = [file for file in sorted(source.iterdir()) if not file.name.startswith(".")]
        if nested := [one_line(str(file)) for file in shown_ones if file.is_dir()]:
            raise CliError(
                f"{listed(nested)}: is a subfolder, and this pipeline's layout has none: pass the folders that "
                f"contain the shards directly."
            )
        yield from ((file.name, file) for file in shown_ones if file.is_file())


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The files that the function app accepts for a dataset; unknown until the app was asked."""

    pipeline: str = ""
    splits: Collection[str] | None = None
    layout: Layout | None = None
    """The pipeline's ``data.layout``; None for the default one."""

    @property
    def marker(self) -> str | None:
        """The name of the file that says that a version is complete, None if there is none."""
        return self._layout.marker if self._layout.kind == "marker" else None

    @property
    def manifest(self) -> str | None:
        """The name of the list of a version's files, None if there is none."""
        return self._layout.manifest if self._layout.kind == "manifest" else None

    def is_of_log(self, name: str) -> bool:
        """Whether a file belongs to the log of a Delta table."""
        return self._layout.kind == "delta" and self._layout.is_marker(name)

    @property
    def takes_folders(self) -> bool:
        """Whether shards may be in folders."""
        return self._layout.has_any_names

    def is_left_behind(self, name: str) -> bool:
        """Whether the function app ignores a file as a leftover of the program that wrote the data."""
        return self._layout.is_left_behind(name)

    def is_text(self, name: str) -> bool:
        """Whether a file may be next to the shards, as a text that the list may name."""
        return self._layout.is_text(name)

    def check(self, version: str, name: str) -> None:
        """Raise NotAShardError if the function app would ignore a file."""
        from function_app.domain.shard_paths import shard_of_version

        shard_of_version(version, name, splits=self.splits, pipeline=self.pipeline, layout=self._layout)

    @property
    def _layout(self) -> Layout:
        from function_app.config.layouts import Layout

        return self.layout or Layout()


def refuse_ignored(shards: Collection[str], version: str, *, intake: Intake) -> None:
    """Raise CliError if the function app would ignore a file, according to the app's own rules."""
    from function_app.domain.shard_paths import NotAShardError
    from shard_validation import COUNT_FILES

    problems = []
    for shard in shards:
        try:
            if shard not in COUNT_FILES and not intake.is_text(shard):
                intake.check(version, shard)
        except NotAShardError as error:
            problems.append(one_line(str(error)))
    if problems:
        raise CliError(
            f"Nothing was uploaded: the function app would ignore {len(problems)} of {len(shards)} files. "
            f"Rename them, or leave them out.\n  {listed(problems, separator=chr(10) + '  ')}"
        )


def ask_for_intake(dataset: str, url: str | None, key: str | None, twin: TwinAddress | None) -> Intake:
    """Return the files that the function app accepts for a dataset; print a note if it cannot be asked.

    Raises CliError if no pipeline is for the dataset, or the function app refuses the key.
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
        return _unknown(dataset, "its pipeline is out of service, and the shards wait until its file is corrected")
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
    click.echo(f"Could not check whether a pipeline accepts dataset {dataset}: {reason}", err=True)
    return Intake()


def data_account(account_url: str | None) -> tuple[str, TwinAddress | None]:
    """Return the data account, as a URL or a connection string, and the twin if the account is the twin's.

    Raises CliError if none is named and no twin runs.
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
    except ValueError as error:
        raise CliError(f"{name} is not a URL: {error}. It must look like {example}.") from error
    shown = repr(public_url(url)[:200])
    if host in EMULATORS and parts.scheme == "https":
        return url
    if host in EMULATORS:
        raise CliError(f"{name} {shown} is an emulator without https, which takes no sign-in: set DataStorage to its "
                       "connection string.")  # fmt: skip
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise CliError(f"{name} {shown} holds more than the account's address: it must look like {example}. "
                       "For a signature, set DataStorage to a connection string.")  # fmt: skip
    if parts.scheme != "https" or "." not in host or has_port or parts.path.strip("/"):
        raise CliError(f"{name} {shown} is not the address of a storage account: it must look like {example}.")
    if ".dfs." in host:
        raise CliError(f"{name} {shown} is the Data Lake address: use https://{host.replace('.dfs.', '.blob.')}.")
    return f"https://{host}"


def open_uploader(account: str, container: str) -> ShardUploader:
    """Return an uploader to a container of an account. Raises CliError if one of them is malformed."""
    from function_app.config.fields import CONTAINER_NAME

    if re.fullmatch(CONTAINER_NAME, container) is None:
        raise CliError(
            f"--container {container[:100]!r} is malformed: 3 to 63 lower-case letters, digits and single -."
        )
    is_url = account.startswith("https://")
    return ShardUploader.signed_in(account, container) if is_url else ShardUploader.connected(account, container)
