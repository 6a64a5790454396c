"""The training report: evidence for the gate, written when everything else has held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.training_report import FILE_NAME, TrainingReport
from training_job.process_environment import run_id
from training_job.reporting.hardware import hardware, peak_memory_bytes, versions
from training_job.session import Session

_PLACES = frozenset({"manifest", "data", "report", "model", "checkpoints"})


def make_report(
    session: Session, metrics: Mapping[str, float], exported_epoch: int, extra: Mapping[str, Any]
) -> TrainingReport:
    """Return the report of a training that has ended well."""
    job, position = session.job, session.position
    return TrainingReport(
        run_id=run_id(),
        fingerprint=job.manifest.fingerprint,
        metrics=metrics,
        epochs=position.epochs,
        world_size=session.world.size,
        num_nodes=session.world.num_nodes,
        images_per_s=session.times.images_per_s,
        rank_plan={"training": job.training.summary(), "validation": job.validation.summary()},
        seed=job.arguments.seed,
        versions=versions(),
        started_at=session.started_at,
        ended_at=datetime.now(UTC).isoformat(),
        details={
            "best": {"epoch": position.standing.best_epoch, session.rules.monitor: position.standing.best},
            "exported_epoch": exported_epoch,
            "stopped_early": position.standing.stopped,
            "resumed_at_step": job.start.step,
            "step_times": session.times.summary(),
            "hardware": hardware(session.device),
            "exchange": "horovod" if session.world.size > 1 else "none",
            "peak_memory_bytes": peak_memory_bytes(),
            "model": {"name": session.model.name, "weights": session.model.count_params()},
            "options": {k: v for k, v in asdict(job.arguments).items() if k not in _PLACES},
            **extra,
        },
    )


def write_report(report: TrainingReport, folder: Path) -> None:
    """Write ``training_report.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / (FILE_NAME + ".part")
    aside.write_text(report.to_json())
    aside.replace(folder / FILE_NAME)
