"""Routes of the operator: sweep now, and look after what was given up."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from function_app.domain.errors import NotFoundError
from function_app.domain.records import DeadLetter, DeadLetterState
from function_app.sweep.dead_letters import replay
from function_app.sweep.sweep import run_sweep
from function_app.web.bodies import Error
from function_app.web.given import Given

MAX_LETTERS = 1000

DeadLetterId = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")]

router = APIRouter(prefix="/api", responses={"4XX": {"model": Error}, "5XX": {"model": Error}})


class SweepBody(BaseModel):
    """What a sweep found and did."""

    shards_judged: int = Field(description="Shards that had landed without their event, judged now.")
    versions: int
    versions_unchanged: int = Field(description="Of these: closed, and storage is as it was at the last look.")
    runs: int = Field(description="Unfinished runs that were looked at.")
    notifications: int = Field(description="Notifications that were not sent, and tried now where they were due.")
    dead_letters: int = Field(description="Messages and events that were given up, and taken to the ledger now.")
    unknown_jobs: int = Field(description="Jobs with Landfall's tags that the ledger did not know.")
    problems: list[str] = Field(description="Parts that failed; the next sweep tries them again.")


class DeadLetterSummary(BaseModel):
    """A message or event that was given up."""

    dead_letter_id: str
    source: str
    subject: str
    error: str
    tries: int
    died_at: datetime
    num_deaths: int
    state: DeadLetterState
    num_replays: int
    replayed_at: datetime | None

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLetterSummary:
        """Take what the ledger holds."""
        return cls(**{name: getattr(letter, name) for name in DeadLetterSummary.model_fields})


class DeadLetterBody(DeadLetterSummary):
    """The same with its payload."""

    payload: str
    is_whole: bool = Field(description="False where the payload was too long to be kept, and cannot be replayed.")

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLetterBody:
        """Take what the ledger holds."""
        return cls(**{name: getattr(letter, name) for name in cls.model_fields})


class DeadLettersBody(BaseModel):
    """Dead letters, those that wait for a replay first."""

    dead_letters: list[DeadLetterSummary]


@router.post("/reconcile")
def reconcile(services: Given) -> SweepBody:
    """Compare the ledger with storage and Azure ML now, as the timer does, and say what was done."""
    return SweepBody(**asdict(run_sweep(services)))


@router.get("/dead-letters")
def dead_letters(services: Given, limit: Annotated[int, Query(ge=1, le=MAX_LETTERS)] = 100) -> DeadLettersBody:
    """List what was given up; what the queues hold appears with the next sweep."""
    letters = services.ledger.dead_letters(limit=limit)
    return DeadLettersBody(dead_letters=[DeadLetterSummary.of(letter) for letter in letters])


@router.get("/dead-letters/{dead_letter_id}")
def dead_letter(dead_letter_id: DeadLetterId, services: Given) -> DeadLetterBody:
    """Show one with its payload."""
    letter = services.ledger.dead_letter(dead_letter_id)
    if letter is None:
        raise NotFoundError(f"dead letter {dead_letter_id} is not on record")
    return DeadLetterBody.of(letter)


@router.post("/dead-letters/{dead_letter_id}/replay")
def replay_dead_letter(dead_letter_id: DeadLetterId, services: Given) -> DeadLetterBody:
    """Deliver one again. Safe at any time: whatever has happened since is looked at first."""
    return DeadLetterBody.of(replay(dead_letter_id, services))
