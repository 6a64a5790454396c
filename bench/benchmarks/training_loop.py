"""What the training's own loop costs, compared with Keras' bare `fit`: one process each on the same core.

Same model, same batches, same optimizer, float32, no XLA; `fit` runs silently and without Horovod. The loop does
more in each step: it exchanges flags with other ranks, checks for NaN, keeps times, reports where it is.
"""

from __future__ import annotations

import contextlib

from bench.figures import Context, Figure, median
from bench.training_jobs import imaging, synthetic_job
from bench.trainings import Training, taking_turns

BATCH_SIZE = 32
IMAGE_SIZE = 64
STEPS = 4
MIN_RATIO = 0.97
SMALL_STEPS = 200
"""Steps of the small network, which take milliseconds, so that the cost of the loop itself is visible."""


def run(context: Context) -> list[Figure]:
    """Compare with a model of a real size, then with a small one, without a promise."""
    real, rate = compare(context, "ResNet50", size=IMAGE_SIZE, steps=STEPS)
    small, _ = compare(context, "small_cnn", size=8, steps=SMALL_STEPS)
    return [
        Figure(
            name=f"throughput against Keras' fit (ResNet-50, {IMAGE_SIZE} x {IMAGE_SIZE}, batch {BATCH_SIZE})",
            value=real,
            unit="ratio",
            at_least=MIN_RATIO,
        ),
        Figure(name="throughput of the loop", value=rate, unit="images/s"),
        Figure(name="throughput against Keras' fit (small CNN, 8 x 8)", value=small, unit="ratio"),
    ]


def compare(context: Context, model: str, *, size: int, steps: int) -> tuple[float, float]:
    """Return the ratio of the loop's throughput to fit's, and the loop's in images per second."""
    options = imaging(model, size=size, batch_size=BATCH_SIZE)
    with contextlib.ExitStack() as stack:
        ours, fit = (
            stack.enter_context(
                Training(
                    context,
                    f"{model}-{program}",
                    synthetic_job(context.scratch / f"{model}-{program}", **options),
                    program=program,
                )
            )
            for program in ("training", "keras_fit")
        )
        own, theirs = taking_turns(context, [(ours, steps), (fit, steps)])
    ratio = median(t.step_s / o.step_s for o, t in zip(own, theirs, strict=True))
    return ratio, BATCH_SIZE / median(turn.step_s for turn in own)
