"""Data of a job on disk: inputs brought down, outputs written through to storage while they grow."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from azure.core.exceptions import ResourceNotFoundError

from local_azure.azure_ml.errors import JobFailure
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.uris import BlobLocation

logger = logging.getLogger(__name__)

_ALWAYS_FOLDERS = ("uri_folder", "mltable")  # a model may be a folder or a file
FileState = tuple[int, int]  # modification time in ns, size in bytes


def inside(root: Path, relative: str) -> Path:
    """Path of a blob below `root`; JobFailure for a name that would lead outside of it."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise JobFailure(f"The blob name {relative!r} leads outside of the folder that is mounted.")
    return path


def download_folder(storage: Storage, location: BlobLocation, root: Path) -> int:
    """Bring every blob below `location` to `root`; gives their number."""
    root.mkdir(parents=True, exist_ok=True)
    count = 0
    for relative in storage.names_below(location):
        if not relative.endswith("/"):
            storage.download(location.below(relative), inside(root, relative))
            count += 1
    return count


def mount_input(storage: Storage, name: str, kind: str, location: BlobLocation, root: Path) -> Path:
    """Bring an input of a job to disk, read-only; gives the path for the command.

    JobFailure where there is nothing at the location, as the service's mount has it.
    """
    path = root
    if kind == "uri_file" or not download_folder(storage, location, root):
        if kind in _ALWAYS_FOLDERS or location.path.endswith("/") or not location.path:
            raise _missing_input(name, location)
        path = inside(root, location.path.rpartition("/")[2])
        try:
            storage.download(location, path)
        except ResourceNotFoundError as error:
            raise _missing_input(name, location) from error
    for file in _files(root):
        file.chmod(0o444)
    return path


def _missing_input(name: str, location: BlobLocation) -> JobFailure:
    return JobFailure(
        f"Input {name!r} cannot be mounted: there is no blob at {location.path!r} in container "
        f"{location.container!r} of storage account {location.account!r}.",
        inner="ScriptExecution.StreamAccess.NotFound",
    )


@dataclass(kw_only=True)
class OutputMount:
    """An output of a job: a folder, or a file, whose changes go to storage (rw_mount)."""

    name: str
    location: BlobLocation
    root: Path
    is_file: bool
    _seen: dict[str, FileState]

    @classmethod
    def open(cls, storage: Storage, name: str, kind: str, location: BlobLocation, root: Path) -> OutputMount:
        """Mount an output; what storage already holds there appears in the folder first."""
        mount = cls(name=name, location=location, root=root, is_file=kind == "uri_file", _seen={})
        root.mkdir(parents=True, exist_ok=True)
        if mount.is_file:
            with contextlib.suppress(ResourceNotFoundError):  # nothing there yet: the job will write it
                storage.download(location, mount.path)
        else:
            download_folder(storage, location, root)
        mount._seen = dict(mount._states())
        storage.writable_container(location)
        return mount

    @property
    def path(self) -> Path:
        """Path for the command."""
        return self.root / self.location.path.rpartition("/")[2] if self.is_file else self.root

    def write_through(self, storage: Storage) -> None:
        """Upload what changed since the last time, oldest first, and remove what the job removed.

        Oldest first, because a pointer to a file is written after the file: storage then never holds a
        pointer to what it does not have.
        """
        states = dict(self._states())
        changed = [relative for relative, state in states.items() if self._seen.get(relative) != state]
        for relative in sorted(changed, key=lambda relative: states[relative]):
            self._upload(storage, relative)
        for relative in self._seen.keys() - states.keys():
            with contextlib.suppress(ResourceNotFoundError):  # gone already: what was wanted
                storage.blob(self._blob(relative)).delete_blob()
        self._seen = states

    def _upload(self, storage: Storage, relative: str) -> None:
        try:
            with (self.root / relative).open("rb") as file:
                storage.blob(self._blob(relative)).upload_blob(file, overwrite=True, max_concurrency=2)
        except FileNotFoundError:
            logger.debug("output file %s went away before its upload; the next look removes its blob", relative)

    def _blob(self, relative: str) -> BlobLocation:
        return self.location if self.is_file else self.location.below(relative)

    def _states(self) -> Iterator[tuple[str, FileState]]:
        for file in _files(self.root):
            with contextlib.suppress(FileNotFoundError):  # renamed or removed while we look
                status = file.stat()
                yield file.relative_to(self.root).as_posix(), (status.st_mtime_ns, status.st_size)


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())
