"""Measure the cost of communication between ranks: compare steps with it and the same steps without it."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

from training_job import collective
from training_job.data.dataset import next_batch
from training_job.session import Session
from training_job.steps import Batch, StepOptions, TrainingStep, Update, sums_for

_WARM_UP_STEPS = 2
_TIMED_STEPS = 7


def communication(session: Session) -> dict[str, float]:
    """Time steps with and without averaging, on all ranks at once; empty for one rank or if switched off.

    The weights are unusable afterwards, because each rank trains alone; they must be exported before. Only
    communication that does not overlap with computing is counted, so the share may be near 0 on a good network.
    """
    arguments = session.job.arguments
    if session.world.size == 1 or not arguments.measure_communication:
        return {}
    options = StepOptions(
        accumulation=arguments.gradient_accumulation, xla=arguments.xla, averaging=False, rank=session.world.rank
    )
    alone = Update(session.model, session.optimizer, sums_for(arguments.task, session.layout), options).compiled()
    batch = next_batch(iter(session.inputs.training.training_epoch(0)), session.world.rank)
    together_s, alone_s = (
        _median_step_s(session, step, batch, name) for step, name in ((session.update, "1"), (alone, "2"))
    )
    return {
        "step_ms": round(together_s * 1e3, 3),
        "step_without_exchange_ms": round(alone_s * 1e3, 3),
        "share": round(max(0.0, 1 - alone_s / together_s), 4),
        "gradient_bytes": float(sum(4 * int(np.prod(v.shape)) for v in session.model.trainable_variables)),
    }


def _median_step_s(session: Session, step: TrainingStep, batch: Batch, name: str) -> float:
    rate, local_flags, times = tf.constant(0.0), tf.zeros([2]), []
    collective.wait_for_all(f"communication {name}")
    for _ in range(_WARM_UP_STEPS + _TIMED_STEPS):
        began = time.perf_counter()
        step(batch, rate, local_flags)[1].numpy()
        times.append(time.perf_counter() - began)
    slowest = collective.sum_over_ranks(np.array([np.median(times[_WARM_UP_STEPS:])]), f"communication {name}")
    return float(slowest[0]) / session.world.size
