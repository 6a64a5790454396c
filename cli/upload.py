"""``landfall upload``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cli.dataset_argument import DATASET_VERSION
from cli.errors import CliError
from cli.progress_bar import progress_bar
from cli.target import running_twin_of_this_clone
from cli.uploading import ShardUploader


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=DATASET_VERSION, help="<dataset>/<version> to upload as.")
@click.option("--container", envvar="LANDFALL_DATA_CONTAINER", default="datasets", show_default=True)
@click.option("--account-url", help="Address of the data account, such as https://NAME.blob.core.windows.net.")
@click.option("--overwrite", is_flag=True, help="Replace shards that are there already.")
def upload(
    sources: tuple[Path, ...], target: tuple[str, str], container: str, account_url: str | None, *, overwrite: bool
) -> None:
    """Upload shards (files, or folders of them) as a dataset version.

    Where to: --account-url (you are signed in by `az login` or a managed identity), else the environment's
    DataStorage (a connection string) or DataStorage__blobServiceUri, else the local twin of this clone.
    """
    shards = find_shards(sources)
    with open_uploader(container, account_url) as uploader:
        upload_all(uploader, shards, target, overwrite=overwrite)
    click.echo(f"Uploaded {len(shards)} shards as {'/'.join(target)}. See: landfall status {'/'.join(target)}")


def find_shards(sources: tuple[Path, ...]) -> list[Path]:
    """Return the files to upload, in order of name. Raises CliError where there are none, or two of one name."""
    files = [f for s in sources for f in (sorted(s.iterdir()) if s.is_dir() else [s])]
    shards = [f for f in files if f.is_file() and not f.name.startswith(".")]
    if not shards:
        raise CliError(f"There is no file to upload in {', '.join(str(s) for s in sources)}.")
    names = [f.name for f in shards]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CliError(f"Several files have the same name: {', '.join(twice)}. A shard's name is its identity.")
    return shards


def upload_all(
    uploader: ShardUploader, shards: list[Path], target: tuple[str, str], *, overwrite: bool = False
) -> None:
    """Upload with a progress bar that counts bytes."""
    total = sum(shard.stat().st_size for shard in shards)
    with progress_bar(f"uploading {len(shards)} shards", total_bytes=total) as step:
        for shard in shards:
            uploader.upload(shard, "/".join((*target, shard.name)), step, overwrite=overwrite)


def open_uploader(container: str, account_url: str | None) -> ShardUploader:
    """Return an uploader to what the user named. Raises CliError where nothing is named and no twin runs."""
    if account_url is not None:
        return ShardUploader.signed_in(account_url, container)
    connection = os.environ.get("DataStorage")  # noqa: SIM112 - the Functions convention writes it so
    service_uri = os.environ.get("DataStorage__blobServiceUri")  # noqa: SIM112
    if connection:
        return ShardUploader.connected(connection, container)
    if service_uri:
        return ShardUploader.signed_in(service_uri, container)
    twin = running_twin_of_this_clone()
    if twin is None:
        raise CliError("Nowhere to upload to: give --account-url, or start a local twin with `landfall up`.")
    return ShardUploader.connected(twin.data_connection, container)
