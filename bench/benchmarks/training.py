"""Cost of the training on the cores of this machine: its loop, its input, its exchange and its memory.

The compared trainings are loaded at the same time and take turns of a few seconds (`bench.trainings`).
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Sequence

from bench.figures import Context, Figure, median
from bench.timed_worker import Worker
from bench.trainings import Training, Turn, imaging, jpeg_job, pictures, synthetic_job, taking_turns

BATCH_SIZE = 32
"""Batch of one process, in the comparisons with Keras and with Horovod's benchmark."""
IMAGE_SIZE = 64
STEPS = 4
"""Steps of one turn: about three seconds."""

MIN_LOOP_RATIO = 0.97
SMALL_STEPS = 200
"""Steps of the small network, which take milliseconds, so that the cost of the loop itself is visible."""

ROUNDS = 15
"""Two ranks are as slow as the slower core: on a virtual machine the ratio of one round varies by a tenth."""
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
AT_LEAST = {("horovod", 1): 1.0, ("horovod", 2): 1.2, ("horovod-yield", 1): 1.0, ("horovod-yield", 2): 1.0}
"""Minimum ratio of the training's throughput to Horovod's benchmark, for each of its settings and number of ranks.

One rank does not wait for another, and convolutions take nine tenths of its time in both programs."""
WORDS = {"horovod": "Horovod's benchmark as installed", "horovod-yield": "Horovod's benchmark with Open MPI yielding"}

READING = imaging("ResNet50", size=224, batch_size=4) | {"augmentation": "resized_crop_flip"}
READING_STEPS = 2
MIN_READING_RATIO = 0.95
STORED = {"width": 500, "height": 375, "quality": 98}
NUM_PICTURES = 48
NUM_RECORDS = 480
"""The pictures are repeated so often that an epoch is longer than the benchmark."""

CHECK_ROUNDS = 11
MAX_CHECK = 2.0

SMALL_BATCH_SIZE = 16
STEPS_OF_EPOCH = 50
WARM_UP_EPOCHS = 6
EPOCHS = 20
MAX_GROWTH_BYTES = 4 << 20
"""MiB over 1,000 steps: 4 KiB a step. One image batch of this training has 48 KiB, its gradients 1.3 MiB. The limit
was exceeded when the training kept one batch at every step, when the end of an epoch left garbage collection to
Python, and when each epoch's threads filled new arenas of glibc's malloc."""


def run_loop(context: Context) -> list[Figure]:
    """Compare the training's own loop with Keras' `fit`: one process each, on the same core.

    Both use the same model, batches and optimizer, in float32 and without XLA; `fit` runs silently and without
    Horovod. The loop does more in each step: it exchanges flags with other ranks, checks for NaN, measures times and
    reports its progress. A model of realistic size is compared first, then a small one, which has no promise.
    """
    real, rate = _against_fit(context, "ResNet50", size=IMAGE_SIZE, steps=STEPS)
    small, _ = _against_fit(context, "small_cnn", size=8, steps=SMALL_STEPS)
    return [
        Figure(
            name=f"throughput against Keras' fit (ResNet-50, {IMAGE_SIZE} x {IMAGE_SIZE}, batch {BATCH_SIZE})",
            value=real,
            unit="ratio",
            at_least=MIN_LOOP_RATIO,
        ),
        Figure(name="throughput of the loop", value=rate, unit="images/s"),
        Figure(name="throughput against Keras' fit (small CNN, 8 x 8)", value=small, unit="ratio"),
    ]


def _against_fit(context: Context, model: str, *, size: int, steps: int) -> tuple[float, float]:
    """Return the ratio of the loop's throughput to that of `fit`, and the loop's images per second."""
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
    return _speed(own, theirs), BATCH_SIZE / median(turn.step_s for turn in own)


def run_horovod(context: Context) -> list[Figure]:
    """Compare throughput with Horovod's synthetic benchmark: one rank, then two.

    `bench/workers/horovod_synthetic.py` performs the steps of Horovod's `tensorflow2_synthetic_benchmark.py`, under
    tf_keras. Both train ResNet-50 on random images of the same size, with the same batch, one core for each rank.
    Horovod's benchmark runs twice: with Open MPI's defaults, and with Open MPI set to yield its core while it waits,
    as the training always sets it.
    """
    return [figure for ranks in (1, 2) for figure in _against_horovod(context, ranks)]


def _against_horovod(context: Context, ranks: int) -> list[Figure]:
    """Let the training and both settings of Horovod's benchmark take turns."""
    options = imaging("ResNet50", size=IMAGE_SIZE, batch_size=BATCH_SIZE)
    settings = {"horovod": {}, "horovod-yield": YIELD}
    with contextlib.ExitStack() as stack:

        def started(name: str, program: str, environment: dict[str, str]) -> Training:
            name = f"{name}-{ranks}"
            job = synthetic_job(context.scratch / name, **options)
            return stack.enter_context(
                Training(context, name, job, ranks=ranks, program=program, environment=environment)
            )

        ours = started("training", "training", {})
        theirs = [started(name, "horovod_synthetic", environment) for name, environment in settings.items()]
        own_turns, *their_turns = taking_turns(context, [(each, STEPS) for each in (ours, *theirs)], ROUNDS)
    images = f"ResNet-50, {IMAGE_SIZE} x {IMAGE_SIZE}, batch {BATCH_SIZE} per rank"
    count = f"{ranks} rank{'s' if ranks > 1 else ''}"
    return [
        *(
            Figure(
                name=f"throughput against {WORDS[name]}, {count} ({images})",
                value=_speed(own_turns, turns),
                unit="ratio",
                at_least=AT_LEAST[name, ranks],
            )
            for name, turns in zip(settings, their_turns, strict=True)
        ),
        Figure(
            name=f"throughput of {count}",
            value=ranks * BATCH_SIZE / median(t.step_s for t in own_turns),
            unit="images/s",
        ),
    ]


def _speed(own: list[Turn], other: list[Turn]) -> float:
    """Return the ratio of the first training's throughput to the second's: the median over the rounds."""
    return median(theirs.step_s / ours.step_s for ours, theirs in zip(own, other, strict=True))


def run_input(context: Context) -> list[Figure]:
    """Compare training ResNet-50 on TFRecord shards of JPEGs with training it on synthetic images.

    The input is as for ImageNet: pictures of 500 x 375 and about 110 kB, of which random crops are scaled to
    224 x 224 and flipped. One rank runs on one core, so decoding takes its time from the model; on a GPU node the
    processor's cores are free for decoding. Smaller images would make the model cheaper than in any real training,
    but not the decoding.
    """
    stored = pictures(NUM_PICTURES, **STORED)
    with contextlib.ExitStack() as stack:
        jobs = {
            "jpeg": jpeg_job(context.scratch / "jpeg", stored, num_records=NUM_RECORDS, **READING),
            "synthetic": synthetic_job(context.scratch / "synthetic", **READING),
        }
        read, made = (stack.enter_context(Training(context, name, job)) for name, job in jobs.items())
        reading, making = taking_turns(context, [(read, READING_STEPS), (made, READING_STEPS)])
    batch_size = READING["per_process_batch_size"]
    cost_s = median((r.step_s - m.step_s) / batch_size for r, m in zip(reading, making, strict=True))
    size_bytes = sum(map(len, stored)) / len(stored)
    return [
        Figure(
            name="JPEG TFRecord against synthetic (ResNet-50, 224 x 224, batch 4)",
            value=_speed(reading, making),
            unit="ratio",
            at_least=MIN_READING_RATIO,
        ),
        Figure(name="reading, decoding and augmenting a picture", value=cost_s * 1e3, unit="ms"),
        Figure(name="a synthetic picture's step", value=median(m.step_s for m in making) / batch_size, unit="s"),
        Figure(name="a stored picture, on average", value=size_bytes / 1e3, unit="kB"),
    ]


def run_check(context: Context) -> list[Figure]:
    """Measure what comparing contents with the manifest adds to the input of one rank.

    Input with and without the comparison take turns in one process on one core, over the same JPEG shard as in
    `run_input`, without a model. Processor time is compared: it limits the rate, and other processes hardly change
    it.
    """
    job = jpeg_job(context.scratch / "check", pictures(NUM_PICTURES, **STORED), num_records=NUM_RECORDS, **READING)
    arguments = shlex.join(job.to_argv())
    with Worker(context, context.training_python, "reading") as worker:
        pairs = []
        for _ in range(1 + CHECK_ROUNDS):
            pairs.append(
                [worker.ask("epoch", arguments=arguments, checked=checked).result for checked in (True, False)]
            )
            context.say(f"an epoch: {pairs[-1][0]} µs with the check, {pairs[-1][1]} µs without")
    cost = median(checked / alone - 1 for checked, alone in pairs[1:])  # The first round is the warm-up.
    return [
        Figure(
            name="processor time of comparing contents", value=cost * 100, unit="% of the input's", at_most=MAX_CHECK
        )
    ]


def run_memory(context: Context) -> list[Figure]:
    """Measure the growth of a training's memory: two ranks, JPEG shards, a small network.

    An epoch has 50 steps, so the measurement covers everything that a long training repeats: reading, decoding,
    steps, exchange, progress, evaluation, checkpoints, TensorBoard. Resident memory is read before the first step of
    every epoch. Growth is the median slope over all pairs of readings (Theil and Sen), which a single late allocation
    does not change.
    """
    job = jpeg_job(
        context.scratch / "small",
        pictures(64, width=48, height=48, quality=90),
        num_records=2 * SMALL_BATCH_SIZE * STEPS_OF_EPOCH,
        **imaging("small_cnn", size=16, batch_size=SMALL_BATCH_SIZE),
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
    """Return the median slope over all pairs of readings, of which each epoch has one, times ``epochs``."""
    pairs = itertools.combinations(enumerate(readings), 2)
    return epochs * median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
