"""Throughput of the training compared with what a user would otherwise run: Horovod's synthetic benchmark.

`bench/workers/horovod_synthetic.py` does the steps of Horovod's `tensorflow2_synthetic_benchmark.py`, under tf_keras.
Both train ResNet-50 on random images of the same size, with the same batch, one core for each rank. The other side
runs twice: with Open MPI as it is installed, and with Open MPI set to yield its core while it waits, which the
training sets by itself. All three are loaded at the same time and take turns of a few seconds.
"""

from __future__ import annotations

import contextlib

from bench.figures import Context, Figure, median
from bench.training_jobs import imaging, synthetic_job
from bench.trainings import Training, Turn, taking_turns

BATCH_SIZE = 32
"""Images of one process."""
IMAGE_SIZE = 64
STEPS = 4
"""Steps of one turn: about three seconds."""
ROUNDS = 15
"""Two ranks are as slow as the slower of two cores; on a virtual machine one round's ratio is off by a tenth."""
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}
AS_INSTALLED = {"horovod": 1.2, "horovod-yield": 1.0}
"""The least throughput of the training over that of each setting of the other side."""
WORDS = {"horovod": "Horovod's benchmark as installed", "horovod-yield": "Horovod's benchmark with Open MPI yielding"}


def run(context: Context) -> list[Figure]:
    """Compare at one rank and at two."""
    return [figure for ranks in (1, 2) for figure in compare(context, ranks)]


def compare(context: Context, ranks: int) -> list[Figure]:
    """Let the training and both settings of the other side take turns."""
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
                at_least=AS_INSTALLED[name],
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
    return median(theirs.step_s / ours.step_s for ours, theirs in zip(own, other, strict=True))
