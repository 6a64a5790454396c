"""The route of the overview, with its bodies: what `landfall status` and `landfall watch` show."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from function_app.domain.records import Generation, RunRecord
from function_app.explain.overview import MAX_ACTIVE, MAX_SHARDS, MAX_VERSIONS, OpenVersion, Overview, overview
from function_app.web.bodies import RecordBody
from function_app.web.routes import AppServices
from function_app.web.spending import router

__all__ = ["router"]  # the API's, to which this module adds its route


class ConcernBody(RecordBody):
    """A problem that needs a person."""

    who: str = Field(description="`data owner` or `engineer`.")
    text: str
    page: str = Field(description="Path of the page that says more.")


class RunStandBody(BaseModel):
    """The state of a run."""

    run_id: str
    dataset: str
    version: str
    state: str
    since: datetime
    waiting: str | None = Field(description="What it waits for in the run queue; null if it is not queued.")
    reason: str | None

    @classmethod
    def of(cls, run: RunRecord, waiting: str | None) -> Self:
        """Return the body of a run."""
        return cls(
            run_id=run.run_id,
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            state=run.state,
            since=run.state_since,
            waiting=waiting,
            reason=run.reason,
        )


class ClosedVersionBody(BaseModel):
    """A version that is complete."""

    dataset: str
    version: str
    generation: int
    closed_at: datetime
    num_shards: int
    num_records: int

    @classmethod
    def of(cls, closing: Generation) -> Self:
        """Return the body of a version's latest closing."""
        return cls(
            dataset=closing.dataset_version.dataset,
            version=closing.dataset_version.version,
            generation=closing.number,
            closed_at=closing.closed_at,
            num_shards=closing.num_shards,
            num_records=closing.num_records,
        )


class OpenVersionBody(BaseModel):
    """A version that has never been complete."""

    dataset: str
    version: str
    accepted: int = Field(description=f"Among its first {MAX_SHARDS:,} verdicts, as `rejected`.")
    rejected: int
    num_shards: int | None = Field(description="Null while it is not known how many there will be.")
    last_at: datetime | None = Field(
        description="When the last shard was validated; null for versions that were not counted."
    )

    @classmethod
    def of(cls, each: OpenVersion) -> Self:
        """Return the body of an incomplete version."""
        return cls(
            dataset=each.version.dataset,
            version=each.version.version,
            accepted=each.accepted,
            rejected=each.rejected,
            num_shards=each.num_shards,
            last_at=each.last_at,
        )


class ArrivedBody(RecordBody):
    """What was uploaded today, in UTC."""

    versions: int = Field(description="Versions that became complete, with their `shards` and `records`.")
    shards: int
    records: int
    open_shards: int = Field(description="Shards of incomplete versions.")


class OverviewBody(BaseModel):
    """Problems that need a person, active and waiting runs, and recent uploads."""

    concerns: list[ConcernBody]
    active: list[RunStandBody] = Field(description=f"Runs that have not ended: the newest {MAX_ACTIVE}.")
    runs: list[RunStandBody] = Field(description=f"The newest {MAX_ACTIVE}, also those that have ended.")
    open: list[OpenVersionBody] = Field(description=f"At most {MAX_VERSIONS}, the last names first.")
    closed: list[ClosedVersionBody] = Field(description=f"At most {MAX_VERSIONS}, the last first.")
    arrived: ArrivedBody

    @classmethod
    def of(cls, found: Overview) -> Self:
        """Return the body of an overview."""
        waiting = {each.run.run_id: each.waiting for each in found.active}
        return cls(
            concerns=[ConcernBody.of(each) for each in found.concerns],
            active=[RunStandBody.of(each.run, each.waiting) for each in found.active],
            runs=[RunStandBody.of(run, waiting.get(run.run_id)) for run in found.runs],
            open=[OpenVersionBody.of(each) for each in found.open],
            closed=[ClosedVersionBody.of(closing) for closing in found.closed],
            arrived=ArrivedBody.of(found.arrived),
        )


@router.get("/overview")
def everything(services: AppServices) -> OverviewBody:
    """Show problems that need a person, active and waiting runs, and recent uploads."""
    return OverviewBody.of(overview(services))
