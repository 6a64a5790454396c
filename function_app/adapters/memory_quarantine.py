"""Quarantine in memory: shipped for tests and trials, under the adapter's contract tests."""

from __future__ import annotations

from function_app.adapters.memory_stores import MemoryShardStore
from function_app.ports import BlobFacts


class MemoryQuarantine:
    """Implements Quarantine; ``blobs`` are there to be asserted on."""

    def __init__(self, shards: MemoryShardStore) -> None:
        self.shards = shards
        self.blobs: dict[tuple[str, str], bytes] = {}
        """By container and path."""

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See Quarantine."""
        content = self.shards.open(facts).read(0, facts.size_bytes)
        if (container, path) in self.blobs:
            return False
        self.blobs[container, path] = content
        return True

    def note(self, container: str, path: str, content: bytes) -> None:
        """See Quarantine."""
        self.blobs[container, path] = content
