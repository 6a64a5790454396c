"""Dead letters: what was given up is taken to the ledger with its error, and sent again when somebody says so."""

from __future__ import annotations

import logging
from dataclasses import replace

from function_app.dead_letters import RUN_CHANGED, DeadLetter, DeadLetterState, GivenUp, dead_letter_id
from function_app.errors import LedgerConflictError, NotFoundError, ReplayRefusedError
from function_app.steps.dead_letter_subjects import first_event, subject_of
from function_app.steps.message_failures import failures_of
from function_app.steps.notification import add_notifications
from function_app.steps.run_events import handle_run_event, read_run_id
from function_app.steps.services import Services

logger = logging.getLogger(__name__)

MAX_COLLECTED = 200
"""Of one source in one sweep: the timer comes again."""
NO_ERROR_KNOWN = (
    "no error is on record: the handler never came to an end (killed, out of memory or out of time), or the app was "
    "misconfigured; the log of the function app has more"
)


def collect_dead_letters(services: Services) -> int:
    """Take what lies at the sources into the ledger; return how many there were."""
    collected = 0
    for source in services.dead_letter_sources:
        for given_up in source.given_up(limit=MAX_COLLECTED):
            bury(given_up, services)
            collected += 1
    return collected


def bury(given_up: GivenUp, services: Services) -> DeadLetter:
    """Write a letter, or reopen the one that died before; doing it again changes nothing."""
    letter = _letter(given_up, services)
    if services.ledger.add_dead_letter(letter):
        _tell(letter, services)
        return letter
    known = services.ledger.dead_letter(letter.dead_letter_id)
    if known is None or known.state is DeadLetterState.WAITING or not _is_later(letter, known):
        return known or letter  # seen before: its source could not be told that it was taken
    again = replace(
        letter,
        revision=known.revision,
        num_deaths=known.num_deaths + 1,
        num_replays=known.num_replays,
        replayed_at=known.replayed_at,
    )
    saved = services.ledger.save_dead_letter(again)
    _tell(saved, services)
    return saved


def replay(name: str, services: Services) -> DeadLetter:
    """Deliver a letter's payload again; safe at any time, because every handler looks at the world first.

    Raises NotFoundError, ReplayRefusedError.
    """
    letter = services.ledger.dead_letter(name)
    if letter is None:
        raise NotFoundError(f"dead letter {name} is not on record")
    _deliver(letter, services)
    # recorded afterwards: whoever dies in between leaves a letter that waits, and is replayed once more
    replayed = replace(
        letter,
        state=DeadLetterState.REPLAYED,
        num_replays=letter.num_replays + 1,
        replayed_at=services.clock(),
    )
    try:
        replayed = services.ledger.save_dead_letter(replayed)
    except LedgerConflictError:
        logger.info(f"dead letter {name} was replayed by somebody else too", extra={"action": "conflict"})
        replayed = services.ledger.dead_letter(name) or replayed
    services.decide(
        story_of(letter),
        "dead_letter_replayed",
        f"sent to {letter.source} again",
        dead_letter_id=letter.dead_letter_id,
    )
    return replayed


def story_of(letter: DeadLetter) -> str:
    """Return the subject under which a letter's lines are told."""
    return letter.subject or f"dead-letter/{letter.dead_letter_id}"


def _deliver(letter: DeadLetter, services: Services) -> None:
    name = letter.dead_letter_id
    if not letter.is_whole:
        raise ReplayRefusedError(f"dead letter {name} was too large to be kept whole: upload or ask again instead")
    queue = services.queues.get(letter.source)
    if queue is not None:
        queue.send_text(letter.payload)
    elif letter.source == RUN_CHANGED:
        event = first_event(letter.payload)
        handle_run_event(read_run_id(str(event.get("subject") or ""), event.get("data")), services)
    else:
        offered = ", ".join(sorted([*services.queues, RUN_CHANGED]))
        raise ReplayRefusedError(f"dead letter {name} is of {letter.source}; what can be replayed is {offered}")


def _is_later(letter: DeadLetter, known: DeadLetter) -> bool:
    """Whether a letter died anew; within one second, which is all that storage tells, only its name says so."""
    return letter.died_at > known.died_at or (letter.died_at == known.died_at and letter.death != known.death)


def _letter(given_up: GivenUp, services: Services) -> DeadLetter:
    failures = failures_of(given_up.source, given_up.identity, services)
    reasons = [text for text in (failures[-1].reason if failures else "", given_up.error) if text]
    return DeadLetter(
        dead_letter_id=dead_letter_id(given_up.source, given_up.payload),
        source=given_up.source,
        subject=subject_of(given_up.source, given_up.payload),
        payload=given_up.payload,
        is_whole=given_up.is_whole,
        error="; ".join(reasons) or NO_ERROR_KNOWN,
        tries=max(given_up.tries, len(failures)),
        died_at=given_up.died_at,
        death=given_up.death,
    )


def _tell(letter: DeadLetter, services: Services) -> None:
    """Put it into the story, and tell people where a pipeline says whom."""
    name = letter.dead_letter_id
    text = f"{letter.source}: given up after {letter.tries} tries: {letter.error}"
    services.decide(story_of(letter), "dead_letter", text, dead_letter_id=name)
    pipeline = services.pipelines.get(letter.subject.partition("/")[0])
    if pipeline is None:
        return
    add_notifications(
        pipeline,
        subject=letter.subject,
        outcome="dead_letter",
        occasion=f"{name}.{letter.num_deaths}",
        content={
            "text": f"A message about {letter.subject} was given up after {letter.tries} tries: "
            f"{letter.error[:1000]} "
            f"When the cause is gone: landfall dead-letters replay {name}",
            "dead_letter_id": name,
            "source": letter.source,
            "error": letter.error[:4000],
            "tries": letter.tries,
        },
        services=services,
    )
