"""Send missed uploads to the queue, alternating between datasets.

The sweep itself does not read shards, so a dataset with thousands of them delays neither others nor the sweep.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import BlobFacts
from function_app.domain.shard_paths import ShardPlace
from function_app.ingest.time_budget import UNDER_WAY, continuation_event, send_to_queue
from function_app.services import IngestServices
from function_app.sweep.dead_letters import in_words
from function_app.sweep.inventory import Inventory, missed_shards

MAX_SHARDS = 2000
"""Shards of one dataset that one sweep sends; the next sweep continues."""
BUDGET_S = 20.0
"""After this time the sweep continues to its other work; the next sweep continues."""
SHARDS_OF_A_TURN = 10
"""Shards of one message: a tenth of the requests, and still far below the size of a message."""
LAST_MODIFIED_STEP = timedelta(seconds=1)
"""Storage states the time of a write in whole seconds."""
BYTES_OF_A_TURN = 64 << 20
"""A message is full once its shards have this size, so that one execution handles it."""
NEXT_DATASET = "next_missed"
"""Mark with the dataset that comes first in the next sweep, because this one had no time left; empty if it had."""

logger = logging.getLogger(__name__)


def send_missed(services: IngestServices, inventory: Inventory) -> tuple[int, list[str]]:
    """Send the missed shards to the queue; return how many, and the message of each dataset's failure.

    If the time is over before every listing was read, the next sweep begins with the dataset whose turn it was.
    """
    end_s, problems, next_before = services.time_budget.seconds() + BUDGET_S, list[str](), ""
    with noted(problems):
        next_before = services.ledger.mark(NEXT_DATASET) or ""
    names = list(services.pipelines)
    first = names.index(next_before) if next_before in names else 0
    datasets = [
        _Missed(
            name=name,
            shards=missed_shards(services.pipelines[name], services, inventory),
            sent_at=services.clock(),
        )
        for name in names[first:] + names[:first]
    ]
    waiting = deque(datasets)
    while waiting and services.time_budget.seconds() < end_s:
        dataset = waiting.popleft()
        with noted(problems):
            if dataset.send_turn(services):
                waiting.append(dataset)
    next_after = waiting[0].name if waiting else ""
    if next_after != next_before:
        with noted(problems):
            services.ledger.set_mark(NEXT_DATASET, next_after)
    return sum(dataset.num_sent for dataset in datasets), problems


@contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """Log any failure and add its message to the problems.

    An unexpected error of one thing must not stop the sweep of all others, now and in every later sweep.
    """
    try:
        yield
    except Exception as error:
        logger.exception("a part of the sweep failed", extra={"action": "sweep_failed"})
        problems.append(in_words(error))


@dataclass(kw_only=True)
class _Missed:
    """The missed shards of a dataset, as far as they were sent."""

    name: str
    shards: Iterator[tuple[ShardPlace, BlobFacts]]
    """In the order of their paths."""
    sent_at: datetime
    """The beginning of this sweep, or of the earlier one that it continues."""
    sent_to: str = field(default="", init=False)
    """The last path of which a message was sent since ``sent_at``."""
    is_begun: bool = field(default=False, init=False)
    num_sent: int = field(default=0, init=False)

    def send_turn(self, services: IngestServices) -> bool:
        """Send one message; return whether there may be more."""
        if not self.is_begun:
            self._begin(services)
        turn, size_bytes, is_more = list[tuple[ShardPlace, BlobFacts]](), 0, True
        while len(turn) < SHARDS_OF_A_TURN and size_bytes < BYTES_OF_A_TURN and is_more:
            place, facts = next(self.shards, (None, None))
            is_more = place is not None
            if place is None or facts is None or self._was_sent(place, facts, services):
                continue
            if services.time_budget.is_long(facts.size_bytes):
                send_to_queue(place, facts, services)
                self.num_sent += 1
                break
            turn.append((place, facts))
            size_bytes += facts.size_bytes
        self._send(turn, services)
        return is_more and self.num_sent < MAX_SHARDS

    def _begin(self, services: IngestServices) -> None:
        """Continue behind what an earlier sweep has sent, while those messages may still lie in the queue."""
        at, _, path = (services.ledger.mark(_mark_name(self.name)) or "").partition(" ")
        if path and services.clock() - datetime.fromisoformat(at) < UNDER_WAY:
            self.sent_at, self.sent_to = datetime.fromisoformat(at), path
        self.is_begun = True

    def _was_sent(self, place: ShardPlace, facts: BlobFacts, services: IngestServices) -> bool:
        """Whether an earlier sweep sent this content: it lay there, long enough to be missed, when that one began."""
        missed_since = facts.last_modified + LAST_MODIFIED_STEP + services.sweep_grace
        return place.path <= self.sent_to and missed_since <= self.sent_at

    def _send(self, turn: list[tuple[ShardPlace, BlobFacts]], services: IngestServices) -> None:
        if not turn:
            return
        events = [continuation_event(place, facts, facts.last_modified, services) for place, facts in turn]
        services.queues[SHARD_UPLOADED].send_text(json.dumps(events))
        self.num_sent += len(turn)
        self.sent_to = max(self.sent_to, turn[-1][0].path)
        services.ledger.set_mark(_mark_name(self.name), f"{self.sent_at.isoformat()} {self.sent_to}")


def _mark_name(dataset: str) -> str:
    return f"missed/{dataset}"
