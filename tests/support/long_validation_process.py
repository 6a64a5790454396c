"""A program that validates one upload with the real adapters, in small slices; each line of input starts a slice.

    python -m tests.support.long_validation_process PATH < a line for each slice

Settings come from the environment, as in the function app. Printed are the offset of every read and, as ``slice``,
every checkpoint that was stored; ``done`` at the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from function_app.bootstrap import build_services
from function_app.domain.events import CREATED, Upload
from function_app.domain.records import BlobFacts
from function_app.ingest.uploads import handle_upload
from function_app.ports import DocumentStore, ShardStore, passed_over
from function_app.services import TimeBudget
from shard_validation import ShardSource

CHUNK_BYTES = 1 << 16
NUM_CHUNKS = 8
"""Chunks per slice."""


@dataclass
class ReportingSource:
    """Implements ShardSource: reports the offset of every read."""

    source: ShardSource
    chunk_bytes: int = CHUNK_BYTES

    @property
    def name(self) -> str:
        """See ShardSource."""
        return self.source.name

    @property
    def size_bytes(self) -> int:
        """See ShardSource."""
        return self.source.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        say(f"read {offset}")
        return self.source.read(offset, length)


@dataclass
class ReportingShards:
    """Implements ShardStore: opens shards of the real one as ReportingSource."""

    store: ShardStore

    def facts(self, path: str, *, content_up_to: int = 0) -> BlobFacts | None:
        """See ShardStore."""
        return self.store.facts(path, content_up_to=content_up_to)

    def open(self, facts: BlobFacts) -> ShardSource:
        """See ShardStore."""
        return ReportingSource(self.store.open(facts))

    def list(self, prefix: str, *, unlisted: Callable[[str], object] = passed_over) -> Iterator[BlobFacts]:
        """See ShardStore."""
        return self.store.list(prefix, unlisted=unlisted)


@dataclass
class WaitingDocuments:
    """Implements DocumentStore over the real one: waits for a line of input after every checkpoint."""

    store: DocumentStore

    def write_once(self, path: str, content: bytes) -> bool:
        """See DocumentStore."""
        return self.store.write_once(path, content)

    def write(self, path: str, content: bytes) -> None:
        """See DocumentStore."""
        self.store.write(path, content)
        say("slice")
        sys.stdin.readline()

    def delete(self, path: str) -> None:
        """See DocumentStore."""
        self.store.delete(path)

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See DocumentStore."""
        return self.store.read(path, max_bytes=max_bytes)

    def has_any(self, folder: str) -> bool:
        """See DocumentStore."""
        return self.store.has_any(folder)

    def names(self, folder: str, *, most: int) -> list[str]:
        """See DocumentStore."""
        return self.store.names(folder, most=most)


@dataclass
class Ticks:
    """A clock that advances a second with every reading: a slice has a fixed number of chunks on any machine."""

    _ticks: Iterator[int] = field(default_factory=count)

    def __call__(self) -> float:
        """Return the seconds."""
        return float(next(self._ticks))


def say(line: str) -> None:
    """Print a line for the process that started this one."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Handle the upload event of one shard."""
    services = build_services(os.environ)
    services = replace(
        services,
        shards=ReportingShards(services.shards),
        documents=WaitingDocuments(services.documents),
        time_budget=TimeBudget(min_bytes=1, checkpoint_every_s=NUM_CHUNKS, seconds=Ticks()),
    )
    upload = Upload(
        event_type=CREATED, api="PutBlob", container=services.data_container, path=sys.argv[1], event_id="1"
    )
    handle_upload(upload, services)
    say("done")


if __name__ == "__main__":
    main()
