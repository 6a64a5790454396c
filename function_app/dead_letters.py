"""Dead letters: messages and events that were given up, kept with their payload, the error and the number of tries.

The record, the part of the ledger that keeps it, and the port to the places where the dead are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

SHARD_UPLOADED = "shard-uploaded"
TRAINING_REQUESTED = "training-requested"
RUN_CHANGED = "run-changed"
"""Sources: two queues, and the trigger that Event Grid calls itself."""

_ID_CHARS = 16


class DeadLetterState(StrEnum):
    """Where a dead letter stands."""

    WAITING = "waiting"
    REPLAYED = "replayed"


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A payload that was given up. The same payload of a source is the same letter, however often it dies."""

    dead_letter_id: str
    source: str
    """``shard-uploaded``, ``training-requested``, ``run-changed``, or the type of an event that is none of these."""
    subject: str
    """The blob's path, run id or ``dataset/version`` that it is about; empty where it cannot be understood."""
    payload: str
    is_whole: bool
    """False where the payload was longer than a row may be: only its beginning is kept, and nothing replays it."""
    error: str
    """The last known one, in words."""
    tries: int
    died_at: datetime
    death: str = ""
    """Of which death it is, see GivenUp."""
    num_deaths: int = 1
    state: DeadLetterState = DeadLetterState.WAITING
    num_replays: int = 0
    replayed_at: datetime | None = None
    revision: str = ""
    """The ledger's own mark of this state of the row."""


def dead_letter_id(source: str, payload: str) -> str:
    """Return the name of a dead letter, made of what it is."""
    return hashlib.sha256(f"{source}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


def dead_letter_order(letter: DeadLetter) -> tuple[bool, float, str]:
    """Sort letters: those that wait for a replay first, then the last to die first."""
    return letter.state is not DeadLetterState.WAITING, -letter.died_at.timestamp(), letter.dead_letter_id


class DeadLetters(Protocol):
    """The part of the ledger that keeps them. Every method may raise ServiceUnavailableError."""

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """Insert a letter; False where its id exists."""
        ...

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """Return one letter."""
        ...

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """Write a changed letter under its revision. Raises LedgerConflictError."""
        ...

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """Return letters, those that wait for a replay first, then the last to die first."""
        ...


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """What a source of dead letters holds: one message that was given up, or one event."""

    source: str
    payload: str
    identity: str
    """Under which the handler's own errors are on record: the payload, or the event's id."""
    error: str
    """What the giver-up says of the reason; empty where it says nothing."""
    tries: int
    """As far as the giver-up says; 0 where it does not."""
    died_at: datetime
    """Storage tells it to the second."""
    death: str
    """Tells one death of a payload from another: the message's id, the ETag of the blob with the event."""
    is_whole: bool = True


class DeadLetterSource(Protocol):
    """A place where the dead are found: a poison queue, a container that Event Grid writes."""

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """Yield what lies there; what the caller has come back for is taken away then, and not before."""
        ...


class MessageQueue(Protocol):
    """A queue to which a dead letter can be sent again."""

    def send_text(self, text: str) -> None:
        """Append a message."""
        ...
