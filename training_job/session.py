"""The state of one rank while it trains, and its set-up: from a job to the first step."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from shared.job_arguments import JobArguments
from training_job import collective
from training_job.checkpoints.position import Position
from training_job.checkpoints.store import CheckpointStore
from training_job.checkpoints.variables import all_variables, assign, separate_random_seeds
from training_job.collective import World
from training_job.data.inputs import Inputs, open_inputs
from training_job.errors import MissingResourcesError
from training_job.job import Job
from training_job.liveness.interruptions import URL_VARIABLE, NodeNotices, StopRequest
from training_job.liveness.liveness import Rendezvous
from training_job.liveness.watch import Watch, start_deadline, start_watch
from training_job.machines import check_devices, check_world, nodes_in_use, simulated_device
from training_job.models import build_model
from training_job.optimizers import build_optimizer, rate_schedule
from training_job.process_environment import pin_gpu, threads_per_rank
from training_job.reporting.listeners import Listener, listeners_for
from training_job.reporting.metrics import MetricLayout, layout_for
from training_job.reporting.step_times import StepTimes
from training_job.schedule import RateSchedule, Rules
from training_job.steps import (
    EvaluationStep,
    StepOptions,
    SumsOf,
    TrainingStep,
    Update,
    ValuesOf,
    evaluation_step,
    sums_for,
    values_for,
)

START_DEADLINE_S = 900.0
"""Between the first and the last rank to start; nodes of one job differ by minutes at most."""
BEST_FOLDER = "best"


@dataclass(kw_only=True)
class Session:
    """One attempt on one rank. Only ``position`` changes, and the state inside its members."""

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
    hosts: Sequence[str]
    """The name of each rank's host."""
    device: str | None
    """The name of this rank's GPU, ``simulated`` on the local twin; None without one."""
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


def open_session(job: Job, stop: StopRequest) -> Session:
    """Join the other ranks, build everything, and restore the job's start position. Raises TrainingError."""
    arguments, threads = job.arguments, threads_per_rank()
    deadline = start_deadline(START_DEADLINE_S, Rendezvous.under(Path(arguments.report)))
    world = collective.join()
    check_world(arguments, world.size, nodes_in_use(world.size, world.num_nodes))
    device = _configure(arguments, world, threads)
    watch = start_watch(world, arguments.stall_timeout_s)
    deadline.cancel()
    job = _from_the_roots_start(job)
    inputs = open_inputs(job, world.rank, threads)
    model = build_model(arguments, inputs.model_shape)
    optimizer = build_optimizer(
        arguments, model.trainable_variables, scaled_loss=arguments.mixed_precision == "float16"
    )
    _restore(job, world, all_variables(model, optimizer))
    separate_random_seeds(model, world.rank)
    layout = layout_for(arguments)
    sums_of = sums_for(arguments.task, layout)
    return Session(
        job=job,
        world=world,
        inputs=inputs,
        model=model,
        optimizer=optimizer,
        layout=layout,
        update=Update(model, optimizer, sums_of, _step_options(arguments, world)).compiled(),
        predict=_prediction(model, sums_of, values_for(arguments.task, layout)),
        schedule=rate_schedule(arguments, job.training.batch.global_batch_size),
        rules=_rules(arguments),
        best=CheckpointStore(job.checkpoints.folder / BEST_FOLDER, keep=1),
        listeners=listeners_for(arguments) if world.is_root else (),
        times=StepTimes(job.training.batch.global_batch_size),
        watch=watch,
        stop=stop,
        notices=_notices(world),
        position=job.start,
        hosts=collective.hosts_of_ranks(),
        device=device,
    )


def _from_the_roots_start(job: Job) -> Job:
    """Return the job as planned by the root, which alone has read the latest checkpoint."""
    own = json.dumps(job.latest.to_members()).encode() if job.latest else b""
    root = collective.message_from_root(own, "start")
    if own == root:
        return job
    return job.resumed_from(Position.from_members(json.loads(root)) if root else None)


def _configure(arguments: JobArguments, world: World, threads: int) -> str | None:
    """Make the settings that must precede any use of a device by TensorFlow; return the name of this rank's GPU.

    Raises MissingResourcesError on every rank if a rank does not have the requested GPU.
    """
    device = _own_gpu(arguments, world)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.deterministic_ops:
        tf.config.experimental.enable_op_determinism()
    if arguments.mixed_precision != "none":
        keras.mixed_precision.set_global_policy(f"mixed_{arguments.mixed_precision}")
    if arguments.expected_device == "gpu":
        check_devices(arguments, collective.count_ranks(device is not None, "devices"), world.size)
    return device


def _own_gpu(arguments: JobArguments, world: World) -> str | None:
    """Pin this rank's GPU. If the job expects GPUs, a rank without one prints the reason, and all ranks fail."""
    try:
        device, reason = pin_gpu(tf.config, world.local_rank), "TensorFlow finds no GPU."
    except MissingResourcesError as error:
        device, reason = None, str(error)
        if arguments.expected_device != "gpu":
            raise
    device = device or simulated_device()
    if device is None and arguments.expected_device == "gpu":
        print(f"rank {world.rank} on {socket.gethostname()}: {reason}", file=sys.stderr, flush=True)
    return device


def _notices(world: World) -> NodeNotices:
    """Poll the metadata service from one rank of each node."""
    notices = NodeNotices(os.environ.get(URL_VARIABLE, ""))
    if world.local_rank == 0:
        notices.start()
    return notices


def _restore(job: Job, world: World, variables: list[Any]) -> None:
    """Give every rank the root's weights and state: those of the checkpoint, or fresh ones."""
    if world.is_root and job.start.step:
        assign(variables, job.checkpoints.latest_variables())
    collective.broadcast_from_root(variables)


def _step_options(arguments: JobArguments, world: World) -> StepOptions:
    return StepOptions(
        accumulation=arguments.gradient_accumulation,
        xla=arguments.xla,
        fp16_compression=arguments.fp16_compression,
        rank=world.rank,
    )


def _prediction(model: keras.Model, sums_of: SumsOf, values_of: ValuesOf) -> EvaluationStep:
    return evaluation_step(lambda images: model(images, training=False), sums_of, values_of)


def _rules(arguments: JobArguments) -> Rules:
    return Rules(
        monitor=arguments.monitor,
        minimum_delta=arguments.minimum_delta,
        early_stopping_patience=arguments.early_stopping_patience,
        plateau_patience=arguments.plateau_patience,
        plateau_factor=arguments.plateau_factor,
    )
