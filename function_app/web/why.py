"""``GET /api/why/...``: the story of a version, a run or a blob."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from function_app.domain.records import HistoryEntry
from function_app.explain.history import MAX_LINES
from function_app.explain.history import why as tell
from function_app.web.bodies import Error
from function_app.web.given import Given

MAX_SUBJECT_CHARS = 1200
"""A blob's name is 1,024 characters at most."""

Subject = Annotated[str, Path(min_length=1, max_length=MAX_SUBJECT_CHARS)]

router = APIRouter(prefix="/api", responses={"4XX": {"model": Error}, "5XX": {"model": Error}})


class LineBody(BaseModel):
    """One line of a story."""

    at: datetime
    subject: str
    action: str
    reason: str
    details: dict[str, Any]

    @classmethod
    def of(cls, line: HistoryEntry) -> LineBody:
        """Take what the ledger holds."""
        return cls(**{name: getattr(line, name) for name in cls.model_fields})


class StoryBody(BaseModel):
    """Everything on record about one thing, oldest first, and what is awaited now."""

    subject: str
    kind: Literal["version", "run", "blob"]
    lines: list[LineBody]
    num_omitted: int = Field(description=f"Older lines that are left out where there are more than {MAX_LINES}.")
    awaited: list[str] = Field(description="What has to happen next, in words; empty where nothing has.")


@router.get("/why/{subject:path}")
def why(subject: Subject, services: Given) -> StoryBody:
    """Tell the story of <dataset>/<version>, a run id or a blob's path."""
    story = tell(subject, services)
    return StoryBody(
        subject=story.subject,
        kind=story.kind,
        lines=[LineBody.of(line) for line in story.lines],
        num_omitted=story.num_omitted,
        awaited=list(story.awaited),
    )
