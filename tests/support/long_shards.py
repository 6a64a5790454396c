"""Fast tests of long validations: small chunks, and a stopwatch that advances with every reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from function_app.domain.events import read_uploads
from function_app.domain.records import BlobFacts
from function_app.ingest.uploads import handle_upload
from function_app.services import TimeBudget
from function_app.testing.stores import MemoryShardSource, MemoryShardStore
from shard_validation import ShardSource
from tests.support.world import World


@dataclass
class Stopwatch:
    """A clock that advances with every reading, by default so that every chunk takes a second."""

    seconds: float = 0.0
    step_s: float = 1.0

    def __call__(self) -> float:
        """Advance, and return the seconds."""
        self.seconds += self.step_s
        return self.seconds


@dataclass(frozen=True)
class SmallChunks(MemoryShardSource):
    """A shard of many chunks; ``on_read`` is called with the offset before each read."""

    on_read: Callable[[int], None] = field(default=lambda _: None)
    chunk_bytes: int = 100

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        self.on_read(offset)
        return super().read(offset, length)


class SmallChunkStore(MemoryShardStore):
    """Remembers where each read began, and calls ``act`` before each read."""

    def __init__(self, source: MemoryShardStore) -> None:
        super().__init__()
        self.blobs = source.blobs
        self.offsets: list[int] = []
        self.act: Callable[[int], None] = lambda _: None

    def open(self, facts: BlobFacts) -> ShardSource:
        """See ShardStore."""
        return SmallChunks(self, facts, on_read=self._note)

    def _note(self, offset: int) -> None:
        self.offsets.append(offset)
        self.act(offset)


def long_world(budget_s: float = 12, checkpoint_every_s: float = 5) -> tuple[World, SmallChunkStore]:
    """Return a world in which every shard is long, and an execution validates only some of its chunks."""
    world = World()
    store = SmallChunkStore(world.shards)
    time_budget = TimeBudget(
        budget_s=budget_s, checkpoint_every_s=checkpoint_every_s, min_bytes=1, seconds=Stopwatch()
    )
    world.services = replace(world.services, shards=store, time_budget=time_budget)
    return world, store


def serve_uploads(world: World) -> int:
    """Handle everything in the two queues of uploads; return the number of messages."""
    num_messages = 0
    world.uploads.reappear()
    while waiting := world.uploads.messages or world.bulk.messages:
        num_messages += 1
        for upload in read_uploads(waiting[0]):
            handle_upload(upload, world.services)
        waiting.pop(0)
    return num_messages
