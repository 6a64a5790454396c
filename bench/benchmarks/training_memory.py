"""Memory of a training over 1,000 steps: two ranks, JPEG shards, a small network, an epoch every 50 steps.

So everything that a long training does again and again is in it: reading, decoding, steps, exchange, progress,
evaluation, checkpoints, TensorBoard. Resident memory is read at the same place of every epoch, before its first
step; growth is the median slope over all pairs of readings (Theil and Sen), which a single allocation that comes
late does not move.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.figures import Context, Figure, median
from bench.training_jobs import imaging, jpeg_job, pictures
from bench.trainings import Training

BATCH_SIZE = 16
STEPS_OF_EPOCH = 50
WARM_UP_EPOCHS = 6
EPOCHS = 20
MAX_GROWTH_BYTES = 4 << 20
"""Over 1,000 steps: 4 KiB a step. One image batch of this training is 48 KiB, its gradients are 1.3 MiB; keeping one
batch at every step was seen to fail, and so were an epoch's end that left collecting garbage to Python, and threads
of every epoch that filled other arenas of glibc's malloc than those before them."""


def run(context: Context) -> list[Figure]:
    """Read the memory after every epoch."""
    job = jpeg_job(
        context.scratch / "small",
        pictures(64, width=48, height=48, quality=90),
        num_records=2 * BATCH_SIZE * STEPS_OF_EPOCH,
        **imaging("small_cnn", size=16, batch_size=BATCH_SIZE),
        augmentation="resized_crop_flip",
    )
    with Training(context, "small", job, ranks=2) as training:
        training.await_ready()
        for _ in range(WARM_UP_EPOCHS):
            training.turn(STEPS_OF_EPOCH)
        readings = [training.turn(STEPS_OF_EPOCH).resident_bytes for _ in range(EPOCHS)]
    growth = growth_over(readings, epochs=EPOCHS)
    return [
        Figure(
            name=f"growth over {EPOCHS * STEPS_OF_EPOCH:,} steps",
            value=growth / (1 << 20),
            unit="MiB",
            at_most=MAX_GROWTH_BYTES / (1 << 20),
        ),
        Figure(name="resident memory of a rank", value=median(readings) / (1 << 20), unit="MiB"),
        Figure(name="last reading over the first", value=(readings[-1] - readings[0]) / (1 << 20), unit="MiB"),
    ]


def growth_over(readings: Sequence[int], *, epochs: int) -> float:
    """Return the median slope over all pairs of readings, one for each epoch, times the epochs."""
    pairs = itertools.combinations(enumerate(readings), 2)
    return epochs * median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
