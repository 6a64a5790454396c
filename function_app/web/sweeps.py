"""The routes of option sweeps and of comparisons, with their bodies."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from function_app.config.fields import MAX_NODES
from function_app.domain.errors import OverrideError
from function_app.domain.option_sweeps import MAX_RUNS, OptionSweep, SweepVerdict, option_sets
from function_app.domain.run_states import SETTLED, RunState
from function_app.runs.cancellation import cancel_sweep
from function_app.runs.comparison import ComparedRun
from function_app.runs.option_sweeps import compare, read_sweep, refused_best, runs_of, verdict_of, why_decided
from function_app.runs.requests import asked_version
from function_app.runs.sweep_requests import SweepRequest, request_sweep
from function_app.services import Services
from function_app.web.bodies import BoundedText
from function_app.web.protocol.routing import IdempotencyKey
from function_app.web.routes import HTTP, AppServices, refusals, router

__all__ = ["router"]  # the API's, to which this module adds its routes

MAX_NAMES = 20
MAX_NODE_HOURS = 1e6

SweepId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^sweep-[a-zA-Z0-9_-]+$")]
ComparedId = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$")]
Value = int | float | BoundedText | bool
SWEEP_LOCATION = {"Location": {"description": "Path of the option sweep.", "schema": {"type": "string"}}}


class OptionSweepRequest(BaseModel):
    """An option sweep to start."""

    model_config = ConfigDict(extra="forbid")

    dataset: str = Field(min_length=1, max_length=63)
    version: str | None = Field(
        default=None, min_length=1, max_length=64, description="Omit for synthetic data, which have no versions."
    )
    grid: dict[BoundedText, Annotated[list[Value], Field(min_length=1, max_length=MAX_RUNS)]] = Field(
        default_factory=dict,
        max_length=MAX_NAMES,
        description="Option → its values; there is a run for each combination. Omit it if you state `runs`.",
    )
    runs: list[dict[BoundedText, Value]] = Field(
        default=[], max_length=MAX_RUNS, description="The options of each run. Omit it if you state `grid`."
    )
    max_node_hours: float = Field(
        gt=0,
        le=MAX_NODE_HOURS,
        description="Limit for all runs together: runs times nodes times time limit must not exceed it.",
    )
    num_nodes: int = Field(default=1, ge=1, le=MAX_NODES, description="Nodes of each run.")
    overrides: dict[BoundedText, Value] = Field(
        default_factory=dict, max_length=50, description="Options that all runs override."
    )
    force: bool = Field(
        default=False,
        description="Train even if the same was trained before, or if the training script has lint errors.",
    )


class SweepRunBody(BaseModel):
    """One run of an option sweep."""

    run_id: str = Field(description="The last attempt; for a run that is not started, its first.")
    options: dict[str, Any] = Field(description="Its values of the options that differ.")
    state: RunState | None = Field(description="Null if it is not started.")
    metrics: dict[str, float]
    reason: str | None


class OptionSweepBody(BaseModel):
    """An option sweep."""

    sweep_id: str
    dataset: str
    version: str
    generation: int
    pipeline: str
    state: Literal["running", "ended", "canceled"]
    asked_at: datetime
    num_nodes: int
    node_hours: float = Field(description="Maximum of all runs: runs times nodes times time limit.")
    max_node_hours: float
    metric: str | None = Field(description="Metric that the runs are compared by; null if no model is registered.")
    higher_is_better: bool
    best: str | None = Field(description="The run whose model is registered; null before the end, or without one.")
    reason: str | None = Field(
        description="How it was decided, with why the best run was refused; or why it was canceled."
    )
    runs: list[SweepRunBody]

    @classmethod
    def of(cls, sweep: OptionSweep, services: Services) -> Self:
        """Return the body of an option sweep as it stands."""
        verdict, rows = verdict_of(sweep.sweep_id, services.ledger), runs_of(sweep, services.ledger)
        runs = [
            SweepRunBody(
                run_id=row.run_id if row else planned.run_id,
                options=dict(planned.options),
                state=row.state if row else None,
                metrics=dict(row.metrics) if row else {},
                reason=row.reason if row else None,
            )
            for planned, row in zip(sweep.runs, [*rows, *[None] * (len(sweep.runs) - len(rows))], strict=True)
        ]
        return cls(
            **{name: getattr(sweep, name) for name in cls.model_fields if hasattr(sweep, name) and name != "runs"},
            state=_state(verdict),
            best=verdict.best if verdict and refused_best(verdict, rows) is None else None,
            reason=why_decided(verdict, rows) if verdict else None,
            runs=runs,
        )


class ComparedRunBody(BaseModel):
    """One run of a comparison: its last attempt, with the time and cost of all attempts."""

    run_id: str
    dataset: str
    version: str
    generation: int
    state: RunState
    reason: str | None
    sweep_id: str | None
    model_name: str | None
    model_version: str | None
    options: dict[str, str] = Field(description="Those that differ among the runs.")
    metrics: dict[str, float]
    intervals: dict[str, list[float]] = Field(
        description="Metric, low and high bound of its 95 % interval, if the run stored the results of each example."
    )
    images_per_s: float | None
    epochs: list[dict[str, float]] = Field(description="From the training report, which a run has at its end.")
    trained_s: float = Field(description="Time on nodes, of all attempts so far.")
    node_hours: float
    cost: float | None = Field(
        description="At the prices in clusters.yaml, otherwise prices.yaml; null where neither has one."
    )

    @classmethod
    def of(cls, row: ComparedRun) -> Self:
        """Return the body of a compared run."""
        version = row.run.dataset_version
        known = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        known["intervals"] = row.run.evidence.get("intervals", {})
        known |= {
            name: getattr(row.run, name) for name in cls.model_fields if hasattr(row.run, name) and name not in known
        }
        return cls(dataset=version.dataset, version=version.version, **known)


class ComparisonBody(BaseModel):
    """Runs side by side, in the order in which they were named."""

    options: list[str] = Field(description="Names of the options that differ.")
    metrics: list[str] = Field(description="Names of the metrics that any of them has.")
    notes: list[str] = Field(description="Which metrics have no interval, and why.")
    runs: list[ComparedRunBody]


def _state(verdict: SweepVerdict | None) -> Literal["running", "ended", "canceled"]:
    if verdict is None:
        return "running"
    return "canceled" if verdict.is_canceled else "ended"


@router.post(
    "/sweeps",
    status_code=202,
    responses={
        202: {"description": "A new option sweep.", "headers": SWEEP_LOCATION},
        200: {
            "model": OptionSweepBody,
            "description": "The option sweep that was requested before.",
            "headers": SWEEP_LOCATION,
        },
        **refusals(404, 409, 422),
    },
)
def start_sweep(
    body: OptionSweepRequest, services: AppServices, response: Response, idempotency_key: IdempotencyKey = None
) -> OptionSweepBody:
    """Request runs of one version with different options; the model of the best one is registered.

    The runs follow one another in the run queue. 202 for a new sweep, 200 if it was requested before; an
    Idempotency-Key and `force` are as for runs.
    """
    forced_by = (idempotency_key or uuid.uuid4().hex) if body.force else None
    request = SweepRequest(
        version=asked_version(body.dataset, body.version, services),
        option_sets=option_sets(body.grid, body.runs),
        max_node_hours=body.max_node_hours,
        trigger=HTTP,
        overrides=body.overrides,
        num_nodes=body.num_nodes,
        forced_by=forced_by,
        key=idempotency_key,
    )
    try:
        sweep, is_new = request_sweep(request, services)
    except OverrideError as error:
        error.member = "grid" if error.name in body.grid else error.member
        raise
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/api/sweeps/{sweep.sweep_id}"
    return OptionSweepBody.of(sweep, services)


@router.get("/sweeps/{sweep_id}", responses=refusals(404, 422))
def option_sweep(sweep_id: SweepId, services: AppServices) -> OptionSweepBody:
    """Show an option sweep: its runs, and which one is the best."""
    return OptionSweepBody.of(read_sweep(sweep_id, services.documents), services)


@router.post(
    "/sweeps/{sweep_id}/cancel",
    status_code=202,
    responses={
        202: {"description": "The job of a run is being canceled.", "headers": SWEEP_LOCATION},
        200: {"model": OptionSweepBody, "description": "All runs have ended."},
        **refusals(404, 409, 422),
    },
)
def cancel_option_sweep(sweep_id: SweepId, services: AppServices, response: Response) -> OptionSweepBody:
    """Cancel an option sweep and its runs, and register no model; 409 if it has ended otherwise."""
    sweep = cancel_sweep(sweep_id, reason="canceled by a person over the API", services=services)
    body = OptionSweepBody.of(sweep, services)
    if all(run.state is None or run.state in SETTLED for run in body.runs):
        response.status_code = 200
    else:
        response.headers["Location"] = f"/api/sweeps/{sweep_id}"
    return body


@router.get("/compare", responses=refusals(404, 422))
def comparison(
    services: AppServices,
    run: Annotated[list[ComparedId], Query(min_length=1, max_length=MAX_RUNS, description="Runs or option sweeps.")],
) -> ComparisonBody:
    """Show runs side by side: options that differ, metrics, time and cost; a sweep stands for its runs."""
    found = compare(run, services)
    return ComparisonBody(
        options=list(found.options),
        metrics=list(found.metrics),
        notes=list(found.notes),
        runs=[ComparedRunBody.of(row) for row in found.runs],
    )
