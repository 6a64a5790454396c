"""What one rank holds while it trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import keras

from training_job.checkpoints.position import Position
from training_job.checkpoints.store import CheckpointStore
from training_job.collective import World
from training_job.data.inputs import Inputs
from training_job.decisions import Rules
from training_job.job import Job
from training_job.metrics import MetricLayout
from training_job.optimization.rates import RateSchedule
from training_job.reporting.listeners import Listener
from training_job.reporting.step_times import StepTimes
from training_job.steps import EvaluationStep, TrainingStep
from training_job.survival.node_notices import NodeNotices
from training_job.survival.stop_request import StopRequest
from training_job.survival.watch import Watch


@dataclass(kw_only=True)
class Session:
    """One attempt on one rank. Only ``position`` changes, besides what its members hold."""

    job: Job
    world: World
    inputs: Inputs
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    layout: MetricLayout
    update: TrainingStep
    predict: EvaluationStep
    schedule: RateSchedule
    rules: Rules
    best: CheckpointStore
    listeners: tuple[Listener, ...]
    """The root's; the other ranks have none."""
    times: StepTimes
    watch: Watch
    stop: StopRequest
    notices: NodeNotices
    position: Position
    device: str | None
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
