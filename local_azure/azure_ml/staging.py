"""The place where a run runs: code, inputs, outputs and logs in one directory, and the command filled in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_azure.azure_ml.errors import JobFailure
from local_azure.azure_ml.expansion import expand
from local_azure.azure_ml.mounts import OutputMount, download_folder, inside, mount_input
from local_azure.azure_ml.spec import JobSpec
from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.uris import Catalogue, resolve
from local_azure.azure_ml.workspace import output_uri

_ALIAS_NOTE = "alias"  # file that remembers the alias, for whoever has to clear up


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """Paths of one run. `alias` is a short path without blanks that leads to `root`.

    A command names its paths unquoted, and sockets below TMPDIR may have 107 characters at most: neither
    fits a state directory of any name and depth.
    """

    root: Path
    alias: Path

    @classmethod
    def create(cls, root: Path) -> RunDirectory:
        """Make an empty run directory and its alias."""
        for name in ("wd", "inputs", "outputs", "logs/user_logs", "logs/system_logs", "tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        alias = Path(tempfile.mkdtemp(prefix="aml-")) / "r"
        alias.symlink_to(root)
        (root / _ALIAS_NOTE).write_text(str(alias))
        return cls(root=root, alias=alias)

    @classmethod
    def reopen(cls, root: Path) -> RunDirectory | None:
        """Find the directory of a run whose emulator was killed; None where the run had not got that far."""
        note = root / _ALIAS_NOTE
        return cls(root=root, alias=Path(note.read_text())) if note.exists() else None

    @property
    def user_logs(self) -> Path:
        """Where ranks write."""
        return self.root / "logs" / "user_logs"

    @property
    def launcher_log(self) -> Path:
        """What mpirun itself says."""
        return self.root / "logs" / "system_logs" / "launcher.txt"

    def remove_data(self) -> None:
        """Remove everything but the logs."""
        for name in ("wd", "inputs", "outputs", "tmp"):
            shutil.rmtree(self.root / name, ignore_errors=True)
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
    """Brings what a run needs to where it runs. Every step raises JobFailure for what is missing."""

    run_name: str
    directory: RunDirectory
    storage: Storage
    catalogue: Catalogue

    def stage(self, spec: JobSpec, code_uri: str | None) -> Staged:
        """Bring code and inputs down, mount the outputs and fill in the command."""
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
