"""The directory in which a run executes: code, inputs, mounted outputs and logs, and the expanded command."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import ResourceNotFoundError

from local_azure.azure_ml.service import JobFailure
from local_azure.azure_ml.spec import JobSpec, expand
from local_azure.azure_ml.storage import BlobLocation, Catalogue, Storage, output_uri, resolve

_ALIAS_NOTE = "alias"  # file with the alias, so that the next start can remove it

logger = logging.getLogger(__name__)
_ALWAYS_FOLDERS = ("uri_folder", "mltable")  # a model may be a folder or a file
FileState = tuple[int, int]  # modification time in ns, size in bytes


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """Paths of one run. `alias` is a short path without blanks that links to `root`.

    The alias is necessary because commands have unquoted paths, and a socket's path below TMPDIR may have at most
    107 characters, but the state directory may have blanks and any depth.
    """

    root: Path
    alias: Path

    @classmethod
    def create(cls, root: Path) -> RunDirectory:
        """Create an empty run directory and its alias."""
        for name in ("wd", "inputs", "outputs", "logs/user_logs", "logs/system_logs", "tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        alias = Path(tempfile.mkdtemp(prefix="aml-")) / "r"
        alias.symlink_to(root)
        (root / _ALIAS_NOTE).write_text(str(alias))
        return cls(root=root, alias=alias)

    @classmethod
    def reopen(cls, root: Path) -> RunDirectory | None:
        """Return the directory of a run whose emulator was killed; None if it does not exist."""
        note = root / _ALIAS_NOTE
        return cls(root=root, alias=Path(note.read_text())) if note.exists() else None

    @property
    def user_logs(self) -> Path:
        """Folder of the ranks' logs."""
        return self.root / "logs" / "user_logs"

    @property
    def launcher_log(self) -> Path:
        """Log of mpirun itself."""
        return self.root / "logs" / "system_logs" / "launcher.txt"

    def remove_data(self) -> None:
        """Remove everything except the logs."""
        for name in ("wd", "inputs", "outputs", "mount", "tmp"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        if self.alias.is_symlink():  # An incomplete note leads to another folder.
            shutil.rmtree(self.alias.parent, ignore_errors=True)
        (self.root / _ALIAS_NOTE).unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A run ready to start."""

    directory: RunDirectory
    command: str
    inputs: Mapping[str, str]  # name → path or literal
    outputs: Mapping[str, str]
    mounts: list[OutputMount]


@dataclass(frozen=True, kw_only=True)
class Stager:
    """Copies a run's code and data into its directory. Every step raises JobFailure if something is missing."""

    run_name: str
    directory: RunDirectory
    storage: Storage
    catalogue: Catalogue

    def stage(self, spec: JobSpec, code_uri: str | None) -> Staged:
        """Download code and inputs, mount the outputs and expand the command."""
        if code_uri is not None:
            self._stage_code(code_uri)
        inputs = {name: self._stage_input(name, definition) for name, definition in spec.inputs.items()}
        mounts = [self._stage_output(name, definition) for name, definition in spec.outputs.items()]
        outputs = {mount.name: _aliased(mount.path, self.directory) for mount in mounts}
        command = expand(spec.command, inputs, outputs)
        return Staged(directory=self.directory, command=command, inputs=inputs, outputs=outputs, mounts=mounts)

    def _stage_code(self, code_uri: str) -> None:
        location = resolve(code_uri, self.catalogue)
        target = self.directory.root / "wd"
        if download_folder(self.storage, location, target):
            return
        if not self.storage.blob(location).exists():
            raise JobFailure(f"The code at {code_uri} holds no file.", inner="SnapshotNotFound")
        self.storage.download(location, inside(target, location.path.rpartition("/")[2]))

    def _stage_input(self, name: str, definition: Mapping[str, Any]) -> str:
        kind = definition["jobInputType"]
        if kind == "literal":
            return str(definition["value"])
        if definition.get("mode") == "Direct":
            return str(definition["uri"])
        location = resolve(definition["uri"], self.catalogue)
        path = mount_input(self.storage, name, kind, location, self.directory.root / "inputs" / name)
        return _aliased(path, self.directory)

    def _stage_output(self, name: str, definition: Mapping[str, Any]) -> OutputMount:
        location = resolve(output_uri(self.run_name, name, definition), self.catalogue)
        root = self.directory.root / "outputs" / name
        return OutputMount.open(self.storage, name, definition["jobOutputType"], location, root)


def _aliased(path: Path, directory: RunDirectory) -> str:
    return str(directory.alias / path.resolve().relative_to(directory.root.resolve()))


def inside(root: Path, relative: str) -> Path:
    """Return the path of a blob below `root`. Raises JobFailure if the path is outside of `root`."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise JobFailure(f"The blob name {relative!r} leads outside of the folder that is mounted.")
    return path


def download_folder(storage: Storage, location: BlobLocation, root: Path) -> int:
    """Download all blobs below `location` to `root`; return their number."""
    root.mkdir(parents=True, exist_ok=True)
    count = 0
    for relative in storage.names_below(location):
        if not relative.endswith("/"):
            storage.download(location.below(relative), inside(root, relative))
            count += 1
    return count


def mount_input(storage: Storage, name: str, kind: str, location: BlobLocation, root: Path) -> Path:
    """Download an input of a job, read-only; return the path for the command.

    Raises JobFailure if the location is empty, like the service's mount.
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
    """An output of a job: a folder or file whose changes are written to storage (rw_mount)."""

    name: str
    location: BlobLocation
    root: Path
    is_file: bool
    _seen: dict[str, FileState]

    @classmethod
    def open(cls, storage: Storage, name: str, kind: str, location: BlobLocation, root: Path) -> OutputMount:
        """Mount an output. Existing blobs are downloaded first."""
        mount = cls(name=name, location=location, root=root, is_file=kind == "uri_file", _seen={})
        root.mkdir(parents=True, exist_ok=True)
        if mount.is_file:
            with contextlib.suppress(ResourceNotFoundError):  # The job will write it.
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
        """Upload changed files since the last call, oldest first, and delete files that the job deleted.

        A job writes a pointer after the file that it names. In this order, storage has no pointer without its file.
        """
        states = dict(self._states())
        changed = [relative for relative, state in states.items() if self._seen.get(relative) != state]
        for relative in sorted(changed, key=lambda relative: states[relative]):
            self._upload(storage, relative)
        for relative in self._seen.keys() - states.keys():
            with contextlib.suppress(ResourceNotFoundError):  # already deleted
                storage.blob(self._blob(relative)).delete_blob()
        self._seen = states

    def _upload(self, storage: Storage, relative: str) -> None:
        try:
            with (self.root / relative).open("rb") as file:
                storage.blob(self._blob(relative)).upload_blob(file, overwrite=True, max_concurrency=2)
        except FileNotFoundError:
            logger.debug("output file %s went away before its upload; the next upload removes its blob", relative)

    def _blob(self, relative: str) -> BlobLocation:
        return self.location if self.is_file else self.location.below(relative)

    def _states(self) -> Iterator[tuple[str, FileState]]:
        for file in _files(self.root):
            with contextlib.suppress(FileNotFoundError):  # renamed or removed in the meantime
                status = file.stat()
                yield file.relative_to(self.root).as_posix(), (status.st_mtime_ns, status.st_size)


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())
