"""Logs of a run: files that grow on disk, mirrored into append blobs while they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from local_azure.azure_ml.storage import Storage
from local_azure.azure_ml.uris import BlobLocation

CONTAINER = "azureml"
_BLOCK_BYTES = 4 << 20  # the largest append that every API version takes


def log_location(storage: Storage, run_name: str, log_file: str) -> BlobLocation:
    """Blob of a log file, where Azure ML keeps it."""
    path = f"ExperimentRun/dcid.{run_name}/{log_file}"
    return BlobLocation(account=storage.workspace_account, container=CONTAINER, path=path)


@dataclass(kw_only=True)
class LogMirror:
    """Copies every *.txt below `root` to the run's log blobs; remembers how far it got."""

    storage: Storage
    run_name: str
    root: Path
    _sent_bytes: dict[str, int] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Log files that have a blob, in order."""
        return sorted(self._sent_bytes)

    def send_new(self) -> None:
        """Append what the files gained since the last time."""
        for file in sorted(self.root.rglob("*.txt")):
            self._send(file, file.relative_to(self.root).as_posix())

    def _send(self, file: Path, name: str) -> None:
        location = log_location(self.storage, self.run_name, name)
        if name not in self._sent_bytes:
            self.storage.writable_container(location)
            self.storage.blob(location).create_append_blob()
            self._sent_bytes[name] = 0
        for block in _blocks(file, self._sent_bytes[name]):
            self.storage.blob(location).append_block(block)
            self._sent_bytes[name] += len(block)


def _blocks(file: Path, offset: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(offset)
        while block := stream.read(_BLOCK_BYTES):
            yield block
