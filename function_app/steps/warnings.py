"""Warnings: people are told once of what takes too long or cannot be explained, and the story says so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from function_app.pipelines import Pipeline
from function_app.steps.notification import add_notifications
from function_app.steps.services import Services


def warn_once(
    pipeline: Pipeline,
    *,
    subject: str,
    outcome: str,
    occasion: str = "",
    content: Mapping[str, Any],
    services: Services,
) -> bool:
    """Tell people, unless they were told on this occasion; True where this call did it.

    The sweep that calls this sends what is in the outbox afterwards. ``content`` has a ``text``.
    """
    lines = services.ledger.decisions(subject)
    if any(line.action == outcome and line.details.get("occasion", "") == occasion for line in lines):
        return False
    add_notifications(
        pipeline, subject=subject, outcome=outcome, occasion=occasion, content=content, services=services
    )
    services.decide(subject, outcome, str(content["text"]), occasion=occasion)
    return True


def held_since(subject: str, name: str, services: Services, *, holds: bool, reason: str) -> datetime | None:
    """Return since when a condition holds, None where it does not; its begin and its end are lines of the story."""
    over = f"{name}_over"
    lines = services.ledger.decisions(subject)
    last = next((line for line in reversed(lines) if line.action in (name, over)), None)
    begun = last is not None and last.action == name
    if holds != begun:
        services.decide(subject, name if holds else over, reason)
        return services.clock() if holds else None
    return last.at if last is not None and holds else None


def in_words(seconds: float) -> str:
    """Return a duration for people: two units at most."""
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    units = ((days, "d"), (hours, "h")) if days else ((hours, "h"), (minutes % 60, "min"))
    return " ".join(f"{number} {unit}" for number, unit in units if number) or "0 min"
