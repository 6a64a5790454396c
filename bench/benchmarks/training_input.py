"""What reading costs: ResNet-50 fed with JPEG TFRecord shards against the same fed with synthetic images.

As ImageNet is trained on: stored pictures of 500 x 375 and about 110 kB, random crops scaled to 224 x 224 and
flipped. One rank on one core, so every microsecond of decoding is taken from the model; on a GPU node decoding has
the processor's cores to itself. At 224 x 224 the model costs what ResNet-50 costs; with smaller images it would
cost less than it does in any real training while decoding cost the same.
"""

from __future__ import annotations

import contextlib

from bench.figures import Context, Figure, median
from bench.training_jobs import imaging, jpeg_job, pictures, synthetic_job
from bench.trainings import Training, taking_turns

BATCH_SIZE = 4
IMAGE_SIZE = 224
STEPS = 2
MIN_RATIO = 0.95
STORED = {"width": 500, "height": 375, "quality": 98}
NUM_PICTURES = 48
NUM_RECORDS = 480
"""Pictures, repeated: an epoch is longer than the benchmark."""


def run(context: Context) -> list[Figure]:
    """Let both trainings take turns on one core."""
    stored = pictures(NUM_PICTURES, **STORED)
    options = imaging("ResNet50", size=IMAGE_SIZE, batch_size=BATCH_SIZE) | {"augmentation": "resized_crop_flip"}
    with contextlib.ExitStack() as stack:
        jobs = {
            "jpeg": jpeg_job(context.scratch / "jpeg", stored, num_records=NUM_RECORDS, **options),
            "synthetic": synthetic_job(context.scratch / "synthetic", **options),
        }
        read, made = (stack.enter_context(Training(context, name, job)) for name, job in jobs.items())
        reading, making = taking_turns(context, [(read, STEPS), (made, STEPS)])
    ratio = median(m.step_s / r.step_s for r, m in zip(reading, making, strict=True))
    cost_s = median((r.step_s - m.step_s) / BATCH_SIZE for r, m in zip(reading, making, strict=True))
    size_bytes = sum(map(len, stored)) / len(stored)
    return [
        Figure(
            name="JPEG TFRecord against synthetic (ResNet-50, 224 x 224, batch 4)",
            value=ratio,
            unit="ratio",
            at_least=MIN_RATIO,
        ),
        Figure(name="reading, decoding and augmenting a picture", value=cost_s * 1e3, unit="ms"),
        Figure(name="a synthetic picture's step", value=median(m.step_s for m in making) / BATCH_SIZE, unit="s"),
        Figure(name="a stored picture, on average", value=size_bytes / 1e3, unit="kB"),
    ]
