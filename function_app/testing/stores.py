"""Shards, documents and the queue in memory, for tests and trials. They pass the adapters' contract tests."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

from function_app.adapters.blobs import check_size, held_content, no_container
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.domain.events import QueuedMessage, TrainingRequest
from function_app.domain.records import BlobFacts
from function_app.ports import Clock, passed_over, utcnow
from shard_validation import ShardSource, SourceChangedError, SourceGoneError

_PLAIN = re.compile(r"[A-Za-z0-9._/-]*")


class MemoryShardStore:
    """Implements ShardStore; ``put`` and ``delete`` are the data owner's actions."""

    def __init__(self, clock: Clock = utcnow) -> None:
        self.blobs: dict[str, tuple[BlobFacts, bytes]] = {}
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def put(self, path: str, content: bytes) -> BlobFacts:
        """Upload a blob. Every upload gets a new ETag, even with the same bytes."""
        with self._lock:
            etag = f"0X{next(self._numbers):016X}"
            facts = BlobFacts(path=path, etag=etag, size_bytes=len(content), last_modified=self._clock())
            self.blobs[path] = (facts, content)
            return facts

    def delete(self, path: str) -> None:
        """Delete a blob."""
        with self._lock:
            del self.blobs[path]

    def facts(self, path: str, *, content_up_to: int = 0) -> BlobFacts | None:
        """See ShardStore."""
        with self._lock:
            if path not in self.blobs:
                return None
            facts, content = self.blobs[path]
        return replace(facts, content=content) if 0 < len(content) <= content_up_to else facts

    def open(self, facts: BlobFacts) -> ShardSource:
        """See ShardStore."""
        return MemoryShardSource(self, facts) if facts.content is None else held_content(facts)

    def list(self, prefix: str, *, unlisted: Callable[[str], object] = passed_over) -> Iterator[BlobFacts]:
        """See ShardStore. Names with control characters cannot be listed, as on Azurite."""
        with self._lock:
            found = [facts for path, (facts, _) in sorted(self.blobs.items()) if path.startswith(prefix)]
        bad = [facts.path for facts in found if not facts.path.isprintable()]
        for beginning in sorted({_PLAIN.match(path)[0] for path in bad}):  # type: ignore[index]  # matches any text
            unlisted(beginning)
        return iter([facts for facts in found if not bad or _PLAIN.fullmatch(facts.path)])


@dataclass(frozen=True)
class MemoryShardSource:
    """Implements ShardSource, pinned to one content like a blob."""

    store: MemoryShardStore
    facts: BlobFacts

    @property
    def name(self) -> str:
        """Last segment of the path."""
        return self.facts.path.rpartition("/")[2]

    @property
    def size_bytes(self) -> int:
        """Size of the pinned content."""
        return self.facts.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """See ShardSource."""
        path = self.facts.path
        current, content = self.store.blobs.get(path, (None, b""))
        if current is None:
            raise SourceGoneError(f"{path}: the blob is gone")
        if current.etag != self.facts.etag:
            raise SourceChangedError(
                f"{path}: the blob was overwritten: its ETag was {self.facts.etag}, now it is {current.etag}"
            )
        return content[offset : offset + length]


class MemoryDocumentStore:
    """Implements DocumentStore."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def write_once(self, path: str, content: bytes) -> bool:
        """See DocumentStore."""
        with self._lock:
            if path in self.documents:
                return False
            self.documents[path] = content
            return True

    def write(self, path: str, content: bytes) -> None:
        """See DocumentStore."""
        with self._lock:
            self.documents[path] = content

    def delete(self, path: str) -> None:
        """See DocumentStore."""
        with self._lock:
            self.documents.pop(path, None)

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See DocumentStore."""
        content = self.documents.get(path)
        if content is not None:
            check_size(path, len(content), max_bytes)
        return content

    def has_any(self, folder: str) -> bool:
        """See DocumentStore."""
        with self._lock:
            return any(path.startswith(f"{folder.rstrip('/')}/") for path in self.documents)

    def names(self, folder: str, *, most: int) -> list[str]:
        """See DocumentStore."""
        prefix = f"{folder.rstrip('/')}/"
        with self._lock:
            return sorted(path.removeprefix(prefix) for path in self.documents if path.startswith(prefix))[:most]


class MemoryRequestQueue:
    """Implements RequestQueue and MessageQueue; ``messages`` are those that the trigger would receive."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.taken: dict[str, QueuedMessage] = {}
        """Messages that are hidden, by id."""
        self._deliveries: Counter[str] = Counter()
        """By text: of equal messages each counts."""

    def send(self, request: TrainingRequest, *, hidden_for: timedelta = timedelta(0)) -> QueuedMessage:
        """See RequestQueue. A hidden message appears with `reappear`."""
        message = QueuedMessage(text=request.to_json(), num_deliveries=0, message_id=uuid4().hex, receipt="-")
        if hidden_for:
            self.taken[message.message_id] = message
        else:
            self.send_text(message.text)
        return message

    def send_text(self, text: str) -> None:
        """See MessageQueue."""
        self.messages.append(text)

    def take(self, limit: int, *, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """See MessageQueue. Messages that were taken reappear with `reappear`, not with time."""
        del hidden_for
        texts, self.messages[:limit] = self.messages[:limit], []
        self._deliveries.update(texts)
        found = [
            QueuedMessage(text=text, num_deliveries=self._deliveries[text], message_id=uuid4().hex, receipt="-")
            for text in texts
        ]
        self.taken |= {message.message_id: message for message in found}
        return found

    def delete(self, message: QueuedMessage) -> None:
        """See MessageQueue."""
        self.taken.pop(message.message_id, None)

    def reappear(self) -> None:
        """Make taken messages visible again, as if their time had passed."""
        self.messages += [message.text for message in self.taken.values()]
        self.taken.clear()

    @property
    def requests(self) -> list[TrainingRequest]:
        """The messages, parsed."""
        return [TrainingRequest.from_json(message) for message in self.messages]


class MemoryRejectedCopies:
    """Implements RejectedCopies; tests assert on ``blobs``."""

    def __init__(self, shards: MemoryShardStore) -> None:
        self.shards = shards
        self.blobs: dict[tuple[str, str], bytes] = {}
        """By container and path."""
        self.missing_containers: set[str] = set()

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See RejectedCopies."""
        if container in self.missing_containers:
            raise StorageRefusedError(no_container(container))
        content = self.shards.open(facts).read(0, facts.size_bytes)
        if (container, path) in self.blobs:
            return False
        self.blobs[container, path] = content
        return True

    def note(self, container: str, path: str, content: bytes) -> None:
        """See RejectedCopies."""
        self.blobs[container, path] = content
