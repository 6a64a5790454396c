"""Throughput of five models on one rank and on two, drawn as a picture, and the cost model fitted on the same turns.

Each model is predicted from the others: the link is fitted without it, and the error is that of its scaling
efficiency. The model assumes ranks that compute as fast beside others as alone. Two cores of one machine share its
memory, so the fit takes for "alone" two ranks that compute side by side and never talk; the picture,
`bench/results/training_models.png`, takes one rank with the machine to itself.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import BenchmarkError, Context, Figure, median
from bench.training_jobs import imaging, synthetic_job
from bench.trainings import Training, Turn, taking_turns
from shared.scaling_fit import Measured, fitted, held_out_errors
from shared.scaling_model import Workload

PICTURE = "training_models.png"
IMAGE_SIZE = 75
"""The smallest that Inception V3 takes; the same for all models."""
ROUNDS = 7
MAX_ERROR = 0.05
"""Of the scaling efficiency of a model that the fit has not seen: the five points asked of Horovod's paper."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model at one batch size."""

    model: str
    batch_size: int
    steps: int
    """Of a turn."""


CASES = (
    Case(model="ResNet50", batch_size=8, steps=4),
    Case(model="ResNet101", batch_size=8, steps=3),
    Case(model="VGG16", batch_size=8, steps=3),
    Case(model="InceptionV3", batch_size=8, steps=5),
    Case(model="MobileNetV2", batch_size=8, steps=15),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one case came to."""

    case: Case
    measured: Measured
    buffer_bytes: int
    """Horovod's, as the training set it."""
    images_per_s: tuple[float, float]
    """Of one rank, and of two together."""
    efficiency: float
    """Of two together against one alone, which shares the machine's memory with nobody."""


def run(context: Context) -> list[Figure]:
    """Measure model by model: five ranks are loaded at a time."""
    results = [measure(context, case) for case in CASES]
    draw(context, results)
    (buffer_bytes,) = {result.buffer_bytes for result in results}
    return [*throughputs(results), *cost_model([result.measured for result in results], buffer_bytes)]


def measure(context: Context, case: Case) -> Result:
    """Let one rank, two that never talk, and two that train together take turns."""
    options = imaging(case.model, size=IMAGE_SIZE, batch_size=case.batch_size)
    with contextlib.ExitStack() as stack:

        def started(name: str, ranks: int, *, apart: bool = False) -> Training:
            job = synthetic_job(context.scratch / f"{case.model}-{name}", **options)
            return stack.enter_context(Training(context, f"{case.model}-{name}", job, ranks=ranks, apart=apart))

        trainings = [started("alone", 1), started("apart", 2, apart=True), started("together", 2)]
        alone, apart, together = taking_turns(context, [(each, case.steps) for each in trainings], ROUNDS)
        facts = trainings[-1].facts
    return Result(
        case=case,
        measured=Measured(
            name=case.model,
            workload=Workload(compute_s=_step_s(apart), gradient_bytes=float(facts["gradient_bytes"])),
            num_ranks=2,
            efficiency=_efficiency(apart, together),
        ),
        buffer_bytes=int(facts["buffer_bytes"]),
        images_per_s=(case.batch_size / _step_s(alone), 2 * case.batch_size / _step_s(together)),
        efficiency=_efficiency(alone, together),
    )


def _step_s(turns: Sequence[Turn]) -> float:
    return median(turn.step_s for turn in turns)


def _efficiency(base: Sequence[Turn], turns: Sequence[Turn]) -> float:
    return median(b.step_s / t.step_s for b, t in zip(base, turns, strict=True))


def throughputs(results: list[Result]) -> list[Figure]:
    """Five figures for each model, without bounds: they describe the machine."""
    found: list[Figure] = []
    for result in results:
        label = f"{result.case.model}, {IMAGE_SIZE} x {IMAGE_SIZE}, batch {result.case.batch_size}"
        rates = zip(("1 rank", "2 ranks"), result.images_per_s, strict=True)
        found += [Figure(name=f"{label}: {ranks}", value=rate, unit="images/s") for ranks, rate in rates]
        found += [
            Figure(name=f"{label}: scaling efficiency", value=result.efficiency, unit="ratio"),
            Figure(name=f"{label}: against two that never talk", value=result.measured.efficiency, unit="ratio"),
            Figure(name=f"{label}: gradients", value=result.measured.workload.gradient_bytes / 1e6, unit="MB"),
        ]
    return found


def cost_model(measured: list[Measured], buffer_bytes: int) -> list[Figure]:
    """The link that fits all, and how well the others foretell each."""
    link = fitted(measured, buffer_bytes=buffer_bytes)
    errors = held_out_errors(measured, buffer_bytes=buffer_bytes)
    return [
        Figure(name="fitted link: rate", value=link.bytes_per_s / 1e9, unit="GB/s"),
        Figure(name="fitted link: latency of a hop", value=link.latency_s * 1e3, unit="ms"),
        Figure(name="fitted link: share of a step that hides exchange", value=link.overlap, unit="ratio"),
        *(
            Figure(
                name=f"{name}: efficiency foretold from the other models, off by",
                value=error,
                unit="ratio",
                at_most=MAX_ERROR,
            )
            for name, error in errors.items()
        ),
    ]


def draw(context: Context, results: list[Result]) -> None:
    """Have the picture drawn where matplotlib is. Raises BenchmarkError where it cannot be."""
    folder = context.root / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    bars = {result.case.model: result.images_per_s for result in results}
    title = f"Throughput by model, synthetic images of {IMAGE_SIZE} x {IMAGE_SIZE}, one core for each rank"
    request = {"path": str(folder / PICTURE), "images_per_s": bars, "title": title}
    command = [str(context.training_python), "-m", "bench.workers.throughput_graph"]
    ended = subprocess.run(
        command, cwd=context.root, input=json.dumps(request), text=True, capture_output=True, check=False, timeout=120
    )
    if ended.returncode != 0:
        raise BenchmarkError(f"the picture could not be drawn: {ended.stderr[-500:]}")
    context.say(f"drawn: bench/results/{PICTURE}")
