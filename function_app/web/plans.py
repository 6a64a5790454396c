"""The bodies of plans, which dry runs return too, and of predictions."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, Field

from function_app.domain.records import RunRecord
from function_app.explain.plan import ClusterPlan, RunPlan
from function_app.planning.estimates import Estimate
from function_app.planning.predictions import expected, outcome_of


class PlannedClusterBody(BaseModel):
    """A cluster of clusters.yaml."""

    name: str
    vm_size: str
    is_own: bool = Field(description="Whether the pipeline names it.")
    max_nodes: int
    priority: str
    network: str
    life_cycle: str
    quota: str = Field(description="Quota of its size in the region, or why it is not known.")
    now: str = Field(description="Its current nodes, or why they are not known.")
    price_per_node_hour: float | None = Field(description="Null if neither clusters.yaml nor prices.yaml has it.")

    @classmethod
    def of(cls, plan: ClusterPlan) -> Self:
        """Return the body of a cluster."""
        return cls(
            name=plan.name,
            vm_size=plan.site.machines.vm_size,
            is_own=plan.is_own,
            max_nodes=plan.site.cluster.max_nodes,
            priority=plan.site.cluster.priority,
            network=plan.network,
            life_cycle=plan.life_cycle,
            quota=plan.quota,
            now=plan.now,
            price_per_node_hour=plan.site.price,
        )


class EstimateBody(BaseModel):
    """Time and cost on a number of nodes of a cluster."""

    cluster: str
    vm_size: str
    num_nodes: int
    num_ranks: int
    global_batch: int | None = Field(description="Records of one step; null for your own script, like `steps`.")
    steps: int | None = Field(description="Steps of an epoch.")
    images_per_s: float | None
    source: str | None = Field(description="fitted or scaled (to earlier runs), or published (the cost model).")
    num_runs: int = Field(description="Earlier runs that it is based on.")
    start_s: float = Field(description="From the submission to the start of the job.")
    run_s: float | None = Field(description="Duration of the job; null if it cannot be estimated.")
    run_low_s: float | None = Field(description="Lower end of the interval of 95 %.")
    run_high_s: float | None
    idle_s: float = Field(description="How long the nodes are paid for after the job.")
    total_s: float | None = Field(description="start_s and run_s.")
    cost: float | None = Field(description="Cost of node start, job and idle time, on all nodes.")
    cost_low: float | None
    cost_high: float | None
    problem: str | None = Field(description="Why this size cannot or should not be used.")

    @classmethod
    def of(cls, one: Estimate) -> Self:
        """Return the body of an estimate."""
        members = {name: getattr(one, name) for name in cls.model_fields if hasattr(one, name)}
        pace = one.pace
        return cls(
            **members,
            images_per_s=round(1 / pace.record_s, 2) if pace else None,
            source=pace.source if pace else None,
            num_runs=pace.num_runs if pace else 0,
        )


class PredictionBody(BaseModel):
    """The prediction of a run at submission, and the result: the job without start and idle time."""

    predicted_s: float
    low_s: float = Field(description="Lower end of the interval of 95 %.")
    high_s: float
    predicted_cost: float | None
    source: str = Field(description="fitted or scaled (to earlier runs), or published (the cost model).")
    as_of: str | None = Field(description="Date of prices and published figures.")
    measured_s: float | None = Field(description="Null before the end, and if an attempt failed.")
    measured_cost: float | None
    error: float | None = Field(description="Difference from the prediction, as a share of it.")
    is_wrong: bool | None = Field(
        description="Off by more than a third: later plans use only this run and newer ones."
    )

    @classmethod
    def of(cls, run: RunRecord) -> Self | None:
        """Return the body of a run's prediction; None if there was none."""
        known, outcome = expected(run), outcome_of(run)
        if known is None:
            return None
        return cls(
            predicted_s=known.run_s,
            low_s=known.low_s,
            high_s=known.high_s,
            predicted_cost=known.cost,
            source=known.source,
            as_of=known.as_of,
            measured_s=outcome.measured_s if outcome else None,
            measured_cost=outcome.measured_cost if outcome else None,
            error=outcome.error if outcome else None,
            is_wrong=outcome.is_wrong if outcome else None,
        )


class OutcomeBody(PredictionBody):
    """The same of an earlier run."""

    run_id: str

    @classmethod
    def of(cls, run: RunRecord) -> Self | None:
        """Return the body of an earlier run's prediction."""
        known = PredictionBody.of(run)
        return None if known is None else cls(run_id=run.run_id, **known.model_dump())


class PlanBody(BaseModel):
    """What a request for a run would do. Nothing was changed."""

    dataset: str
    version: str
    generation: int
    fingerprint: str
    pipeline: str
    run_id: str = Field(description="Name of the job; a forced request gets another one.")
    met_run_id: str | None = Field(description="The existing run of the same request; null for a new one.")
    is_new: bool
    reason: str = Field(description="Why a new run would or would not start.")
    problems: list[str] = Field(description="Why the request would be refused; empty if it would be accepted.")
    validation: list[str]
    train_records: int
    validation_records: int
    epochs: int | None = Field(description="Null for a script of your own.")
    num_nodes: int = Field(description="Of the pipeline, as `cluster`.")
    cluster: str
    timeout_s: int
    throughput: str = Field(description="Where the figures come from.")
    as_of: str | None = Field(description="Date of prices and published figures; null without prices.yaml.")
    currency: str
    price_problems: list[str] = Field(description="What is wrong with prices.yaml, or that it is old.")
    clusters: list[PlannedClusterBody]
    estimates: list[EstimateBody]
    own: EstimateBody | None = Field(description="As the pipeline's file says.")
    recommended: EstimateBody | None = Field(
        description="The fastest size that costs at most 25 % more than the cheapest one."
    )
    one_node: str | None = Field(description="Comparison of one node with more GPUs and several nodes.")
    outcomes: list[OutcomeBody] = Field(description="Predictions of earlier runs with their results; newest first.")
    body: dict[str, Any] = Field(description="The body of the request to Azure ML, in full.")

    @classmethod
    def of(cls, plan: RunPlan) -> Self:
        """Return the body of a plan."""
        train = plan.pipeline.train
        return cls(
            dataset=plan.dataset_version.dataset,
            version=plan.dataset_version.version,
            generation=plan.generation.number,
            fingerprint=plan.generation.fingerprint,
            pipeline=plan.pipeline.pipeline,
            run_id=plan.run_id,
            met_run_id=plan.met.run_id if plan.met else None,
            is_new=plan.met is None,
            reason=plan.reason,
            problems=list(plan.problems),
            validation=list(plan.validation),
            train_records=plan.work.train_records,
            validation_records=plan.work.validation_records,
            epochs=None if plan.work.is_own else plan.work.epochs,
            num_nodes=train.num_nodes,
            cluster=train.cluster,
            timeout_s=train.timeout_s,
            throughput=plan.throughput,
            as_of=plan.as_of,
            currency=plan.currency,
            price_problems=list(plan.price_problems),
            clusters=[PlannedClusterBody.of(one) for one in plan.clusters],
            estimates=[EstimateBody.of(one) for one in plan.estimates],
            own=EstimateBody.of(plan.own) if plan.own else None,
            recommended=EstimateBody.of(plan.recommended) if plan.recommended else None,
            one_node=plan.one_node.in_words(plan.currency) if plan.one_node else None,
            outcomes=[one for run in plan.outcomes if (one := OutcomeBody.of(run)) is not None],
            body=dict(plan.body),
        )
