"""The training report: evidence for the gate, written when everything else has held."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from shared.training_report import FILE_NAME, TrainingReport
from training_job.process_environment import run_id

if TYPE_CHECKING:
    from training_job.session import Session

_PACKAGES = ("keras", "numpy", "horovod")


def write_report(session: Session) -> None:
    """Write ``training_report.json`` into the report folder."""
    job = session.job
    report = TrainingReport(
        run_id=run_id(),
        fingerprint=job.manifest.fingerprint,
        metrics={k: v for k, v in session.epochs[-1].items() if k in _METRICS},
        epochs=tuple(session.epochs),
        world_size=session.world.size,
        num_nodes=session.world.num_nodes,
        images_per_s=session.throughput.images_per_s,
        rank_plan={"training": job.training.summary(), "validation": job.validation.summary()},
        seed=job.arguments.seed,
        versions=_versions(),
        started_at=session.started_at,
        ended_at=datetime.now(UTC).isoformat(),
        details={"model": job.arguments.model_name, "weights": session.model.count_params()},
    )
    folder = Path(job.arguments.report)
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / (FILE_NAME + ".part")
    aside.write_text(report.to_json())
    aside.replace(folder / FILE_NAME)


_METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


def _versions() -> dict[str, str]:
    import tensorflow as tf

    return {"python": platform.python_version(), "tensorflow": tf.__version__, **{p: version(p) for p in _PACKAGES}}
