"""The route of what trainings took in a span of time, with its bodies."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Self

from fastapi import Query
from pydantic import BaseModel, Field

from function_app.explain.spending import Spending, SpentByRun, spending
from function_app.web.bodies import RecordBody
from function_app.web.lists import router
from function_app.web.routes import AppServices, refusals

__all__ = ["router"]  # the API's, to which this module adds its route

MAX_HOURS = 366 * 24
MAX_LISTED = 1000
Hours = Annotated[int, Query(ge=1, le=MAX_HOURS, description="Length of the span that ends now; 168 is a week.")]


class DatasetSpendingBody(RecordBody):
    """What the runs of one dataset took."""

    dataset: str
    num_runs: int
    node_hours: float
    cost: float | None = Field(description="Sum over the runs whose clusters have a price; null without any.")


class RunSpendingBody(BaseModel):
    """What one run took."""

    run_id: str
    dataset: str
    version: str
    state: str
    created_at: datetime
    node_hours: float
    cost: float | None = Field(description="Null where no file states a price for its cluster.")

    @classmethod
    def of(cls, row: SpentByRun) -> Self:
        """Return the body of one run's row."""
        run = row.run
        return cls(
            run_id=run.run_id,
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            state=run.state,
            created_at=run.created_at,
            node_hours=row.node_hours,
            cost=row.cost,
        )


class SpendingBody(BaseModel):
    """What all runs took from `since` to `until`: each run counts with the time in which it had nodes in between."""

    since: datetime
    until: datetime
    num_runs: int
    node_hours: float
    cost: float | None = Field(description="In `currency`; null where no run has a price.")
    currency: str = Field(description="That of all prices; empty where no file says.")
    unpriced_node_hours: float = Field(description="Node-hours of clusters without a price: not in `cost`.")
    is_whole: bool = Field(description="False where there are too many runs to look at; older ones are left out.")
    datasets: list[DatasetSpendingBody] = Field(description="The one with most node-hours first.")
    runs: list[RunSpendingBody] = Field(description=f"The newest {MAX_LISTED}, newest first.")

    @classmethod
    def of(cls, found: Spending, currency: str) -> Self:
        """Return the body of what was spent."""
        return cls(
            since=found.since,
            until=found.until,
            num_runs=len(found.runs),
            node_hours=found.node_hours,
            cost=found.cost,
            currency=currency,
            unpriced_node_hours=found.unpriced_node_hours,
            is_whole=found.is_whole,
            datasets=[DatasetSpendingBody.of(row) for row in found.datasets],
            runs=[RunSpendingBody.of(row) for row in found.runs[:MAX_LISTED]],
        )


@router.get("/spending", responses=refusals(422))
def spent(
    services: AppServices,
    hours: Hours = 168,
    dataset: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
) -> SpendingBody:
    """Show what trainings took in the last hours: node-hours and cost of each dataset and run, and together."""
    return SpendingBody.of(spending(timedelta(hours=hours), services, dataset=dataset), services.plan_facts.currency)
