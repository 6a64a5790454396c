"""A folder in a storage account: the URLs of its blobs, and a local copy of the files that describe their layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli.errors import CliError
from cli.init.files import may_be_list
from cli.validate.inputs import ShardInput, is_beside, open_folder
from shard_validation.delta_log import LOG_FOLDER
from shard_validation.file_lists import MAX_LIST_BYTES
from shared.safe_text import mask_secrets, public_url, shown

MAX_BLOBS = 100_000
MAX_COPIED_BYTES = 128 << 20
"""Bytes of lists and logs together."""
MAX_NAME_CHARS = 200


def is_folder(argument: str) -> bool:
    """Return whether an argument is the URL of a folder."""
    return "://" in argument and argument.partition("?")[0].endswith("/")


def look_into(url: str, beside: Path) -> list[ShardInput]:
    """Return the blobs of a folder that may be shards, and copy lists, markers and a table's log into ``beside``.

    Raises CliError if the folder cannot be listed, is empty, or has more blobs than the limit.
    """
    from azure.core.exceptions import AzureError

    label = public_url(url)
    try:
        container, prefix = open_folder(url)
        with container:
            blobs = dict(_listed(container, prefix, label))
            _copy({name: blob for name, blob in blobs.items() if _is_copied(name, blob.size)}, container, beside)
    except (AzureError, ValueError, OSError) as error:
        reason = (mask_secrets(str(error)).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise CliError(f"{label}: cannot be read: {reason}.") from error
    if not blobs:
        raise CliError(f"{label}: there is no blob in this folder.")
    return list(_shards(url, label, blobs))


def _listed(container: Any, prefix: str, label: str) -> Iterator[tuple[str, Any]]:
    """Yield each blob with its path below the folder; directory markers of hierarchical accounts are skipped."""
    for number, blob in enumerate(container.list_blobs(name_starts_with=prefix, include=["metadata"])):
        if number == MAX_BLOBS:
            raise CliError(f"{label}: has more than {MAX_BLOBS:,} blobs, the limit for a version.")
        if blob.name != prefix and (blob.metadata or {}).get("hdi_isfolder") != "true":
            yield blob.name.removeprefix(prefix), blob


def _is_copied(path: str, size_bytes: int) -> bool:
    """Return whether a blob may describe the other blobs: it has a plain name, and is at the top or in a log."""
    name = path.removeprefix(f"{LOG_FOLDER}/")
    is_plain = name not in ("", ".", "..") and "/" not in name and name.isprintable() and len(name) <= MAX_NAME_CHARS
    return is_plain and size_bytes <= MAX_LIST_BYTES and (is_beside(path, _any_names()) or may_be_list(path))


def _copy(blobs: Mapping[str, Any], container: Any, beside: Path) -> None:
    if sum(blob.size for blob in blobs.values()) > MAX_COPIED_BYTES:
        raise CliError(
            f"{shown(next(iter(blobs)))} and what is beside it have more than {MAX_COPIED_BYTES >> 20} MiB: pass a "
            "local copy of the folder."
        )
    for path, blob in blobs.items():
        (beside / path).parent.mkdir(exist_ok=True)
        # An empty blob has no range that could be asked for.
        content = container.download_blob(blob.name, offset=0, length=blob.size).readall() if blob.size else b""
        (beside / path).write_bytes(content)


def _shards(url: str, label: str, blobs: Mapping[str, Any]) -> Iterator[ShardInput]:
    address, _, query = url.partition("?")
    for path in sorted(blobs):
        if not is_beside(path, _any_names()):
            location = f"{address}{quote(path)}{f'?{query}' if query else ''}"
            yield ShardInput(label=f"{label}{path}", location=location, is_url=True, path=path)


def _any_names() -> Any:
    from function_app.config.layouts import Layout

    return Layout(kind="marker")
