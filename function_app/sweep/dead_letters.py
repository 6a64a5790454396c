"""Dead letters: failed messages and events are moved to the ledger with their error, and can be replayed."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace

from function_app.domain.errors import InvalidEventError, LedgerConflictError, NotFoundError, ReplayRefusedError
from function_app.domain.events import (
    MAX_MESSAGE_BYTES,
    RUN_CHANGED,
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    TRAINING_REQUESTED,
    TrainingRequest,
    blob_of,
    first_event,
    read_run_id,
)
from function_app.domain.records import DeadLetter, DeadLetterState, HistoryEntry, Undelivered, dead_letter_id
from function_app.notify.outbox import DEAD_LETTERS, add_notifications, send_again
from function_app.services import NotifyServices, Services
from shared.errors import LandfallError
from shared.safe_text import counted, mask_secrets

logger = logging.getLogger(__name__)

MAX_COLLECTED = 200
"""From one source in one sweep; the next sweep takes more."""
FAILED = "handler_failed"
MAX_ERROR_CHARS = 2000
NO_ERROR_KNOWN = (
    "no error is on record: the handler was killed, ran out of memory or time, or the app was misconfigured; see the "
    "log of the function app"
)


def collect_dead_letters(services: Services) -> int:
    """Move what the sources hold to the ledger; return how many there were."""
    collected = 0
    for source in services.dead_letter_sources:
        for undelivered in source.undelivered(limit=MAX_COLLECTED):
            add_dead_letter(undelivered, services)
            collected += 1
    return collected


def add_dead_letter(undelivered: Undelivered, services: Services) -> DeadLetter:
    """Add a dead letter, or reopen the one on record where it died again. Safe to repeat."""
    letter = _letter(undelivered, services)
    if services.ledger.add_dead_letter(letter):
        _announce(letter, services)
        return letter
    known = services.ledger.dead_letter(letter.dead_letter_id)
    if known is not None and known.state is DeadLetterState.WAITING:
        _notify(known, services)  # again: the process that added it may have died before it wrote the notifications
        return known
    if known is None or not _is_later(letter, known):
        return known or letter  # added before, but not yet deleted at its source
    again = replace(
        letter,
        revision=known.revision,
        num_deaths=known.num_deaths + 1,
        num_replays=known.num_replays,
        replayed_at=known.replayed_at,
    )
    saved = services.ledger.save_dead_letter(again)
    _announce(saved, services)
    return saved


def replay(name: str, services: Services) -> DeadLetter:
    """Deliver a dead letter's payload again; safe at any time, because every handler checks the real state first.

    Raises NotFoundError, ReplayRefusedError.
    """
    letter = services.ledger.dead_letter(name)
    if letter is None:
        raise NotFoundError(f"dead letter {name} is not on record")
    _deliver(letter, services)
    # Recorded after the delivery: a crash in between leaves a letter that waits, and is replayed once more.
    replayed = replace(
        letter,
        state=DeadLetterState.REPLAYED,
        num_replays=letter.num_replays + 1,
        replayed_at=services.clock(),
    )
    try:
        replayed = services.ledger.save_dead_letter(replayed)
    except LedgerConflictError:
        logger.info(f"dead letter {name} was replayed by another caller too", extra={"action": "conflict"})
        replayed = services.ledger.dead_letter(name) or replayed
    services.history.record(
        history_subject(letter),
        "dead_letter_replayed",
        f"sent to {letter.source} again",
        dead_letter_id=letter.dead_letter_id,
    )
    return replayed


def history_subject(letter: DeadLetter) -> str:
    """Return the subject under which the history has a dead letter's entries."""
    return letter.subject or f"dead-letter/{letter.dead_letter_id}"


def _deliver(letter: DeadLetter, services: Services) -> None:
    name = letter.dead_letter_id
    if not letter.is_whole:
        raise ReplayRefusedError(
            f"dead letter {name} was too large to be stored: upload the shard or submit the run again instead"
        )
    if letter.source == DEAD_LETTERS:
        send_again(letter.payload, services)
        return
    queue = services.queues.get(letter.source)
    if queue is None:
        offered = ", ".join(sorted(services.queues))
        raise ReplayRefusedError(
            f"dead letter {name} comes from {letter.source}, which cannot be replayed; these can: {offered}"
        )
    num_bytes = len(letter.payload.encode())
    if num_bytes > MAX_MESSAGE_BYTES:
        raise ReplayRefusedError(
            f"dead letter {name} has {num_bytes:,} bytes, and a queue message has at most {MAX_MESSAGE_BYTES:,}: "
            "upload the shard or submit the run again instead"
        )
    queue.send_text(letter.payload)


def _is_later(letter: DeadLetter, known: DeadLetter) -> bool:
    """Whether a payload died again. Storage has times to the second; within one second the death's name decides."""
    return letter.died_at > known.died_at or (letter.died_at == known.died_at and letter.death != known.death)


def _letter(undelivered: Undelivered, services: NotifyServices) -> DeadLetter:
    failures = failures_of(undelivered.source, undelivered.identity, services)
    reasons = [text for text in (failures[-1].reason if failures else "", undelivered.error) if text]
    return DeadLetter(
        dead_letter_id=dead_letter_id(undelivered.source, undelivered.payload),
        source=undelivered.source,
        subject=subject_of(undelivered.source, undelivered.payload),
        payload=undelivered.payload,
        is_whole=undelivered.is_whole,
        error="; ".join(reasons) or NO_ERROR_KNOWN,
        tries=max(undelivered.tries, len(failures)),
        died_at=undelivered.died_at,
        death=undelivered.death,
    )


def _announce(letter: DeadLetter, services: Services) -> None:
    """Record a dead letter in the history, and notify the recipients of its pipeline."""
    name = letter.dead_letter_id
    text = f"{letter.source}: given up after {counted(letter.tries, 'try', 'tries')}: {letter.error}"
    services.history.record(history_subject(letter), "dead_letter", text, dead_letter_id=name)
    _notify(letter, services)


def _notify(letter: DeadLetter, services: Services) -> None:
    """Write the notifications about this death of a payload; existing ones stay."""
    name, run = letter.dead_letter_id, services.ledger.run(letter.subject)
    dataset = letter.subject.partition("/")[0] if run is None else run.dataset_version.dataset
    pipeline = services.pipelines.get(dataset)
    if pipeline is None:
        return
    add_notifications(
        pipeline.notify,
        subject=letter.subject,
        outcome="dead_letter",
        occasion=f"{name}.{letter.num_deaths}",
        content={
            "text": f"A message about {letter.subject} was given up after {counted(letter.tries, 'try', 'tries')}: "
            f"{letter.error[:1000]} "
            f"When the cause is fixed: landfall dead-letters replay {name}",
            "dead_letter_id": name,
            "source": letter.source,
            "error": letter.error[:4000],
            "tries": letter.tries,
        },
        services=services,
    )


def subject_of(source: str, payload: str) -> str:
    """Return a blob's path, a run id or ``dataset/version``; empty if the payload names none."""
    try:
        if source == TRAINING_REQUESTED:
            request = TrainingRequest.from_json(payload)
            return request.run_id or str(request.dataset_version)
        event = first_event(payload)
        if source == RUN_CHANGED:
            return read_run_id(event.get("subject"), event.get("data"))
    except InvalidEventError:
        return ""
    blob = blob_of(str(event.get("subject") or ""))
    return blob[1] if source in (SHARD_UPLOADED, SHARD_UPLOADED_BULK) and blob else ""


def record_failure(source: str, identity: str | bytes, error: Exception, services: NotifyServices) -> None:
    """Record a handler's error under its message's identity: its body, which is still known once it was given up."""
    text = identity.decode(errors="replace") if isinstance(identity, bytes) else identity
    try:
        services.history.record(_subject(source, text), FAILED, in_words(error), source=source)
    except LandfallError:
        # The ledger may be what failed. The original error goes on to the host, which delivers again.
        logger.exception("a handler's error could not be recorded", extra={"action": "record_failed"})


def failures_of(source: str, identity: str, services: NotifyServices) -> list[HistoryEntry]:
    """Return a message's recorded failures, oldest first."""
    lines = services.ledger.history(_subject(source, identity))
    return [line for line in lines if line.action == FAILED]


def in_words(error: Exception) -> str:
    """Return an error as one bounded line; an unexpected one with its class name."""
    text = mask_secrets(" ".join(str(error).split()))[:MAX_ERROR_CHARS]
    return text if isinstance(error, LandfallError) and text else f"{type(error).__name__}: {text}"


def _subject(source: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"message/{source}/{digest[:32]}"
