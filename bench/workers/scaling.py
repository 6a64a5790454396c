"""One rank of the scaling benchmark: ResNet-50 on synthetic images, through the training job's own step.

Weak scaling: every rank has its own batch of the same size, whatever the number of ranks. Started by
`bench.benchmarks.scaling` under mpirun.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import disturbance

TIMING_WARM_UP_STEPS = 2
"""The first step traces and compiles, the second allocates."""

IMAGE_SHAPE = (64, 64, 3)
NUM_CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One timed step, the same on every rank."""

    wall_s: float
    others_share: float


def main() -> None:
    """Train until enough steps were undisturbed, or too many were not; the root writes all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--undisturbed-steps", type=int, required=True)
    parser.add_argument("--max-steps", type=int, required=True)
    parser.add_argument("--max-others-share", type=float, required=True)
    parser.add_argument("--cores", type=int, required=True, help="how many cores to watch, the same for any ranks")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    bind_to_one_core(cores)
    world, step = build(options.batch_size)
    for _ in range(TIMING_WARM_UP_STEPS):
        step()
    times: list[StepTime] = []
    while len(times) < options.max_steps and undisturbed(times, options.max_others_share) < options.undisturbed_steps:
        times.append(timed(step, cores, is_root=world.is_root))
    if world.is_root:
        result = {"world_size": world.size, "steps": [asdict(time) for time in times]}
        options.result.write_text(json.dumps(result), encoding="utf-8")


def bind_to_one_core(cores: Sequence[int]) -> None:
    """Give each local rank a core of its own, before any library starts threads that inherit the choice.

    Not left to mpirun's --bind-to, which counts a virtual machine's hardware threads differently everywhere.
    """
    local_rank = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))
    os.sched_setaffinity(0, {cores[local_rank % len(cores)]})


def build(batch_size: int) -> tuple[Any, Callable[[], None]]:
    """The world, and the training job's own step on one batch of this rank; a call returns when it is done."""
    import keras
    import tensorflow as tf

    from shared.training_options import TrainingOptions
    from training_job import collective
    from training_job.metric_sums import sums_for
    from training_job.metrics import layout_for
    from training_job.models.build import build_model
    from training_job.optimization.optimizers import build_optimizer
    from training_job.steps import StepOptions, Update
    from training_job.variables import all_variables

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    world = collective.join()
    keras.utils.set_random_seed(1 + world.rank)
    options = TrainingOptions(model_name="ResNet50", num_classes=NUM_CLASSES, optimizer="sgd", learning_rate=0.01)
    model = build_model(options, IMAGE_SHAPE)
    optimizer = build_optimizer(options, model.trainable_variables, scaled_loss=False)
    collective.broadcast_from_root(all_variables(model, optimizer))
    sums_of = sums_for(options.task, layout_for(options))
    update = Update(model, optimizer, sums_of, StepOptions(rank=world.rank)).compiled()
    images = tf.random.uniform([batch_size, *IMAGE_SHAPE], 0, 255)
    labels = tf.random.uniform([batch_size], 0, NUM_CLASSES, tf.int64)
    batch, rate, no_wishes = (images, labels, tf.ones([batch_size])), tf.constant(0.01), tf.zeros([2])

    def step() -> None:
        sums, news = update(batch, rate, no_wishes)
        sums.numpy(), news.numpy()

    return world, step


def timed(step: Callable[[], None], cores: Sequence[int], *, is_root: bool) -> StepTime:
    """Time one step by the root's clock.

    The sum over ranks comes after it and is not timed; it makes every rank see the same numbers, so that all
    of them stop after the same step.
    """
    import numpy as np

    from training_job import collective

    before = disturbance.read(cores)
    step()
    after = disturbance.read(cores)
    roots = [after.wall_s - before.wall_s, after.busy_s - before.busy_s] if is_root else [0.0, 0.0]
    sums = collective.summed(np.array([*roots, after.own_cpu_s - before.own_cpu_s], np.float32), "bench.step")
    wall_s, busy_s, own_cpu_s = (float(value) for value in sums)
    share = disturbance.others_share(wall_s=wall_s, busy_s=busy_s, own_cpu_s=own_cpu_s, num_cores=len(cores))
    return StepTime(wall_s=wall_s, others_share=share)


def undisturbed(times: Sequence[StepTime], max_others_share: float) -> int:
    """How many of the steps had the cores to themselves."""
    return sum(time.others_share <= max_others_share for time in times)


if __name__ == "__main__":
    main()
