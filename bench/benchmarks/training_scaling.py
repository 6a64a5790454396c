"""Scaling efficiency of the training: ResNet-50 on synthetic images, one MPI rank against two, one core each.

Efficiency is throughput(2) / (2 x throughput(1)) with the same per-process batch, so one rank's step time over two
ranks'. Both trainings are loaded and take turns of a few seconds. What runs is the training job's own loop in the
environment that the training job sets for itself. The images are synthetic: reading is `training_input`'s matter.
"""

from __future__ import annotations

import contextlib

from bench.figures import Context, Figure, median
from bench.training_jobs import imaging, synthetic_job
from bench.trainings import Training, taking_turns

BATCH_SIZE = 32
"""Of one process."""
IMAGE_SIZE = 64
STEPS = 4
"""Of one turn: about three seconds."""
ROUNDS = 25
"""Two ranks are as slow as the slower of two cores; on a virtual machine one round's ratio is off by a tenth."""
MIN_EFFICIENCY = 0.93


def run(context: Context) -> list[Figure]:
    """Let one rank and two take turns."""
    options = imaging("ResNet50", size=IMAGE_SIZE, batch_size=BATCH_SIZE)
    with contextlib.ExitStack() as stack:
        alone, together = (
            stack.enter_context(
                Training(
                    context,
                    f"{ranks}-ranks",
                    synthetic_job(context.scratch / f"{ranks}-ranks", **options),
                    ranks=ranks,
                )
            )
            for ranks in (1, 2)
        )
        one, two = taking_turns(context, [(alone, STEPS), (together, STEPS)], ROUNDS)
    efficiency = median(a.step_s / t.step_s for a, t in zip(one, two, strict=True))
    images = f"ResNet-50, {IMAGE_SIZE} x {IMAGE_SIZE}, batch {BATCH_SIZE} per rank"
    return [
        Figure(
            name=f"scaling efficiency, 1 to 2 ranks ({images})",
            value=efficiency,
            unit="ratio",
            at_least=MIN_EFFICIENCY,
        ),
        Figure(name="throughput of 1 rank", value=BATCH_SIZE / median(t.step_s for t in one), unit="images/s"),
        Figure(name="throughput of 2 ranks", value=2 * BATCH_SIZE / median(t.step_s for t in two), unit="images/s"),
    ]
