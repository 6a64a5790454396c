"""Scaling efficiency of data-parallel training: ResNet-50, one MPI rank against two, one core each.

Efficiency is throughput(2) / (2 x throughput(1)) with the same per-process batch. The two are measured in turn,
so that a machine getting slower slows both. The images are synthetic: reading data is another benchmark's matter.
Steps during which others used the cores are left out (bench.disturbance says why), and how many is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from statistics import median as middle
from typing import Any

from bench.figures import BenchmarkError, Context, Figure, median
from local_azure.twin.children import Child, Part
from local_azure.twin.errors import TwinError

ROUNDS = 5
UNDISTURBED_STEPS = 6
MAX_STEPS = 40
MAX_OTHERS_SHARE = 0.03
"""Of the watched cores' time. The clocks behind it tick in hundredths of a second, steps take nearly one."""
BATCH_SIZE = 32
"""Of one process."""
RANKS = 2
MIN_EFFICIENCY = 0.93

SETTINGS = {
    # Open MPI otherwise polls with the very core that computes: 0.60 instead of 0.95 of the ideal.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "HOROVOD_CYCLE_TIME": "20",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def run(context: Context) -> list[Figure]:
    """Measure in rounds, each with one rank and then with two."""
    allowed = len(os.sched_getaffinity(0))
    if allowed < RANKS:
        raise BenchmarkError(f"{RANKS} ranks need {RANKS} cores, this process may use {allowed}")
    alone: list[Launch] = []
    together: list[Launch] = []
    for number in range(1, ROUNDS + 1):
        alone.append(Launch(context, 1))
        together.append(Launch(context, RANKS))
        context.say(f"round {number} of {ROUNDS}: {alone[-1]} and {together[-1]}")
    return figures(alone, together)


class Launch:
    """One training of a few steps under mpirun, measured."""

    def __init__(self, context: Context, ranks: int) -> None:
        """Run it to its end. Raises BenchmarkError when a rank fails, or the machine was too busy."""
        result = context.scratch / f"{ranks}-ranks.json"
        result.unlink(missing_ok=True)
        launch(context, ranks, worker_arguments(str(result)))
        measured = json.loads(result.read_text(encoding="utf-8"))
        if measured["world_size"] != ranks:
            raise BenchmarkError(f"mpirun was asked for {ranks} ranks, Horovod counted {measured['world_size']}")
        self.ranks = ranks
        self.times_s = undisturbed_times_s(measured["steps"])
        self.disturbed_steps = len(measured["steps"]) - len(self.times_s)

    @property
    def images_per_s(self) -> float:
        """Throughput over all ranks, from the median step time."""
        return self.ranks * BATCH_SIZE / middle(self.times_s)

    def __str__(self) -> str:
        """For the line of progress."""
        left_out = f" ({self.disturbed_steps} disturbed steps left out)" if self.disturbed_steps else ""
        return f"{self.images_per_s:.1f} images/s with {self.ranks} rank(s){left_out}"


def figures(alone: Sequence[Launch], together: Sequence[Launch]) -> list[Figure]:
    """The efficiency of each round's pair, and the throughputs behind it as information."""
    pairs = zip(alone, together, strict=True)
    efficiency = median(two.images_per_s / (RANKS * one.images_per_s) for one, two in pairs)
    left_out = sum(launched.disturbed_steps for launched in (*alone, *together))
    return [
        Figure(name="scaling efficiency, 1 to 2 ranks", value=efficiency, unit="ratio", at_least=MIN_EFFICIENCY),
        Figure(name="throughput of 1 rank", value=median(one.images_per_s for one in alone), unit="images/s"),
        Figure(name="throughput of 2 ranks", value=median(two.images_per_s for two in together), unit="images/s"),
        Figure(name="steps left out, others used the cores", value=float(left_out), unit="steps"),
    ]


def undisturbed_times_s(steps: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds of the steps that had the cores to themselves. Raises BenchmarkError when there are too few."""
    times_s = [float(step["wall_s"]) for step in steps if step["others_share"] <= MAX_OTHERS_SHARE]
    if len(times_s) < UNDISTURBED_STEPS:
        raise BenchmarkError(
            f"the machine is busy with other work: of {len(steps)} steps only {len(times_s)} had at least "
            f"{1 - MAX_OTHERS_SHARE:.0%} of {RANKS} cores to themselves, {UNDISTURBED_STEPS} are needed"
        )
    return times_s


def worker_arguments(result: str) -> list[str]:
    """What both launches are told alike."""
    named = {
        "result": result,
        "batch-size": BATCH_SIZE,
        "undisturbed-steps": UNDISTURBED_STEPS,
        "max-steps": MAX_STEPS,
        "max-others-share": MAX_OTHERS_SHARE,
        "cores": RANKS,
    }
    return [word for name, value in named.items() for word in (f"--{name}", str(value))]


def launch(context: Context, ranks: int, arguments: Sequence[str]) -> None:
    """Run the worker under mpirun to its end, guarded so that no rank outlives this process."""
    python = context.training_python
    mpirun = [str(python.parent / "mpirun"), "-np", str(ranks), "--bind-to", "none", "--oversubscribe"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    part = Part(
        name=f"ResNet-50 on {ranks} rank(s)",
        command=[*mpirun, str(python), "-m", "bench.workers.scaling", *arguments],
        env={**kept, **SETTINGS},
        log=context.scratch / f"{ranks}-ranks.log",
        ready_within_s=600.0,
    )
    child = Child(part)
    try:
        child.await_end()
    except TwinError as error:
        raise BenchmarkError(str(error)) from error
    finally:
        child.ask_to_stop()
