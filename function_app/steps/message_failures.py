"""Errors of handlers, on record: the host delivers again and in the end gives up, and tells nobody why."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from function_app.ledger import Decision
from function_app.steps.services import Services
from shared.errors import LandfallError

logger = logging.getLogger(__name__)

FAILED = "handler_failed"
MAX_ERROR_CHARS = 2000


@contextmanager
def failures_on_record(source: str, identity: str | bytes, services: Services) -> Iterator[None]:
    """Let an error through to the host, after it was written down under the message's identity.

    ``identity`` is a queue message's body, or an event's id: whatever is still known when the message was given up.
    """
    try:
        yield
    except Exception as error:
        _record(source, identity, error, services)
        raise


def failures_of(source: str, identity: str, services: Services) -> list[Decision]:
    """Return what was recorded of a message's failures, oldest first."""
    lines = services.ledger.decisions(_subject(source, identity))
    return [line for line in lines if line.action == FAILED]


def in_words(error: Exception) -> str:
    """Return an error on one bounded line; one that nobody foresaw with its kind."""
    text = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    return text if isinstance(error, LandfallError) and text else f"{type(error).__name__}: {text}"


def _record(source: str, identity: str | bytes, error: Exception, services: Services) -> None:
    text = identity.decode(errors="replace") if isinstance(identity, bytes) else identity
    try:
        services.decide(_subject(source, text), FAILED, in_words(error), source=source)
    except LandfallError:
        # The ledger may be what failed. The original error goes on to the host, which delivers again.
        logger.exception("a handler's error could not be put on record", extra={"action": "record_failed"})


def _subject(source: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"message/{source}/{digest[:32]}"
