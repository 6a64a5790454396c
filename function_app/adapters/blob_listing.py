"""Listings of blobs. If one blob's name makes a listing fail, it is split by prefix, so that the others are listed.

Azurite answers 500 if a name has a control character; a proxy or a service may do the same for other reasons.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContainerClient

PLAIN = sorted({*string.ascii_letters, *string.digits, *"-._/"})
"""The characters of paths that Landfall reads, in the order of a listing."""
MAX_REQUESTS = 4000
"""Maximum extra requests of one listing, enough for a name of sixty characters. Beyond that the listing fails."""
MAX_FAILING = 8
"""If more characters after a prefix fail, storage itself is unavailable."""

_FOLDER_METADATA = "hdi_isfolder"
"""Metadata of the empty blobs that stand for folders. Accounts with a hierarchical namespace list them, and Hadoop
writes them to other accounts. In layouts that allow any file name they would count as files."""
_BROKEN_BY_A_NAME = 500
"""503 and similar statuses are temporary errors of the service, not caused by a name."""

Unlisted = Callable[[str], object]
"""Called with the prefix below which a blob cannot be listed."""


def list_blobs(container: ContainerClient, prefix: str, unlisted: Unlisted) -> Iterator[BlobProperties]:
    """Yield the blobs below a prefix, without markers of folders; one operation for every 5,000 blobs.

    If storage cannot list all of them, the blobs with plain names are yielded, and ``unlisted`` is called for each
    prefix below which a blob cannot be listed. Raises the SDK's errors.
    """
    from azure.core.exceptions import HttpResponseError

    last = ""
    try:
        for blob in container.list_blobs(name_starts_with=prefix, include=["metadata"]):
            last = blob.name
            if not _is_folder(blob):
                yield blob
    except HttpResponseError as error:
        if error.status_code != _BROKEN_BY_A_NAME:
            raise
        found = _Narrowed(container=container, unlisted=unlisted).below(prefix, error)
        # A listing is sorted by name.
        yield from (blob for blob in found if blob.name > last and not _is_folder(blob))


def _is_folder(blob: BlobProperties) -> bool:
    return str((blob.metadata or {}).get(_FOLDER_METADATA, "")).lower() == "true"


@dataclass(kw_only=True)
class _Narrowed:
    """One listing in parts."""

    container: ContainerClient
    unlisted: Unlisted
    num_requests: int = field(default=0, init=False)

    def below(self, prefix: str, error: Exception) -> list[BlobProperties]:
        """Return the blobs that can be listed below a prefix whose complete listing failed with ``error``."""
        found, failing = self._named(prefix), 0
        for character in PLAIN:
            part = self._part(prefix + character, error)
            if part is None:
                failing += 1
                if failing > MAX_FAILING:
                    raise error
                part = self.below(prefix + character, error)
            found += part
        if not failing:
            self.unlisted(prefix)
        return found

    def _named(self, path: str) -> list[BlobProperties]:
        """Return the blob with exactly this name, if there is one, because no longer prefix includes it."""
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return [self.container.get_blob_client(path).get_blob_properties()] if not path.endswith("/") else []
        except ResourceNotFoundError:
            return []

    def _part(self, prefix: str, error: Exception) -> list[BlobProperties] | None:
        """Return the blobs below a prefix, None if that is impossible. Raises ``error`` if no requests are left."""
        from azure.core.exceptions import HttpResponseError

        self.num_requests += 1
        if self.num_requests > MAX_REQUESTS:
            raise error
        try:
            return list(self.container.list_blobs(name_starts_with=prefix, include=["metadata"], retry_total=0))
        except HttpResponseError as own:
            if own.status_code != _BROKEN_BY_A_NAME:
                raise
            return None
